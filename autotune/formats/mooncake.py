"""Traces of lengths and block hashes: JSONL with timestamp (ms), input_length, output_length and hash_ids.

Sources: FAST25-release/traces in kvcache-ai/Mooncake; `timed_trace` of vLLM's benchmarks, `mooncake` of
guidellm and `mooncake_trace` of aiperf read the same rows. aiperf adds `session_id`, `delay` (ms after the
answer before) and `context_mode`: docs/benchmark-modes/trace-replay.md and class MooncakeTrace of
src/aiperf/dataset/loader/models.py in ai-dynamo/aiperf.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from autotune.domain.workload import Request
from autotune.errors import InputError
from autotune.formats.bodies import DEFAULT_OUTPUT_TOKENS
from autotune.formats.cells import decoded
from autotune.formats.outline import outline
from autotune.formats.reading import Recording, Source, request

BLOCK_TOKENS = 512
"""What Mooncake's traces use; the last block of a prompt has an id although it is not full."""

_OTHER_BLOCK_TOKENS = (256, 128, 64, 32, 16, 1024, 2048)
_ROWS_TO_TELL = 100
_SELF_CONTAINED = "message_array_with_responses"
_HINT = "a row holds timestamp in ms, input_length and output_length in tokens, and hash_ids"


class _Row(msgspec.Struct):
    input_length: int
    output_length: int = DEFAULT_OUTPUT_TOKENS
    hash_ids: list[int] | None = None
    timestamp: float | None = None
    delay: float | None = None
    session_id: str | int | None = None
    context_mode: str | None = None


_ROW = msgspec.json.Decoder(_Row)


def sniff(head: str) -> bool:
    """True when the first row has a length and none of the keys of other formats."""
    first = outline(head)
    others = {"chat_id", "text_input", "messages", "payload", "body", "prompt"}
    return "input_length" in first.keys and not first.ours and not others & first.keys


def read(source: Source) -> Recording:
    """The recording; raises `InputError` with file:line for what cannot be replayed.

    A session's rows hold what is new in each turn, unless `context_mode` says that they hold all: a turn's
    prompt is then the prompt and the answer before it and the new tokens, and its blocks are the full ones of
    the prompt before it, since ids of a piece in the middle name no prefix.
    """
    _, first = next(source.lines())
    block_tokens = _block_tokens(line for _, line in itertools.islice(source.peek(), _ROWS_TO_TELL))
    timed = "timestamp" in outline(first).keys
    return Recording(
        requests=source.rows(_Reader(block_tokens=block_tokens, timed=timed)),
        block_tokens=block_tokens,
        timed=timed,
    )


@dataclass(slots=True, kw_only=True)
class _Reader:
    """Rows as requests, in order: a turn without a stamp is put at the moment of the row before it."""

    block_tokens: int | None
    timed: bool
    latest_s: float = 0.0
    turns: dict[str, Request] = field(default_factory=dict)

    def __call__(self, where: str, line: str) -> Request:
        row = decoded(where, _ROW, line, hint=_HINT)
        session = None if row.session_id is None else str(row.session_id)
        before = self.turns.get(session) if session is not None else None
        if row.context_mode == _SELF_CONTAINED:
            before = None
        if self.timed and row.timestamp is None and session is None:
            raise InputError(f"{where}: no timestamp", hint=_HINT)
        blocks = row.hash_ids or []
        history = 0
        if before is not None:
            history = before.prompt_tokens + before.output_tokens
            blocks = list(before.blocks[: before.prompt_tokens // (self.block_tokens or 1)])
        found = request(
            where,
            offset_s=row.timestamp / 1000 if self.timed and row.timestamp is not None else self.latest_s,
            prompt_tokens=history + row.input_length if row.input_length > 0 else row.input_length,
            output_tokens=row.output_length,
            blocks=blocks,
            block_tokens=self.block_tokens,
            session=session,
            think_s=None if row.delay is None else row.delay / 1000,
        )
        self.latest_s = found.offset_s
        if session is not None:
            self.turns[session] = found
        return found


def _block_tokens(lines: Iterable[str]) -> int | None:
    """The size of blocks that gives each prompt as many as it has ids; None where no row has any."""
    counts = []
    for line in lines:
        try:
            row = _ROW.decode(line)
        except (msgspec.MsgspecError, RecursionError, ValueError):
            continue  # named with its place when the rows are read
        if row.hash_ids:
            counts.append((row.input_length, len(row.hash_ids)))
    if not counts:
        return None
    for size in (BLOCK_TOKENS, *_OTHER_BLOCK_TOKENS):
        if all(-(-tokens // size) == blocks for tokens, blocks in counts):
            return size
    return BLOCK_TOKENS
