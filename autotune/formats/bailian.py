"""Alibaba Bailian traces: JSONL with chat_id, parent_chat_id, timestamp (s), lengths, turn and hash_ids.

Source: README.md of alibaba-edu/qwen-bailian-usagetraces-anon: blocks of 16 tokens, -1 for no parent, and the
lengths and ids of a follow-up cover the whole context.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from autotune.domain.workload import Request
from autotune.errors import InputError
from autotune.formats.cells import brief, decoded
from autotune.formats.outline import outline
from autotune.formats.reading import Recording, Source, request

BLOCK_TOKENS = 16

_HINT = "a row holds chat_id, parent_chat_id, timestamp in s, input_length, output_length and hash_ids"


class _Row(msgspec.Struct):
    chat_id: int
    timestamp: float
    input_length: int
    output_length: int
    parent_chat_id: int = -1
    hash_ids: list[int] = []


_ROW = msgspec.json.Decoder(_Row)


def sniff(head: str) -> bool:
    """True when the first row has a chat's id and a length."""
    return {"chat_id", "input_length"} <= outline(head).keys


def read(source: Source) -> Recording:
    """The recording; raises `InputError` with file:line for what cannot be replayed.

    A session is all that goes back to one root. The trace does not say when answers ended, so there are no
    think times.
    """
    return Recording(requests=source.rows(_Reader()), block_tokens=BLOCK_TOKENS)


@dataclass(slots=True)
class _Reader:
    """Rows as requests; holds the root of every chat (about 100 bytes each)."""

    roots: dict[int, int] = field(default_factory=dict)

    def __call__(self, where: str, line: str) -> Request:
        row = decoded(where, _ROW, line, hint=_HINT)
        if row.chat_id in self.roots:
            raise InputError(
                f"{where}: chat_id {brief(row.chat_id)} is there twice", hint="remove one of the rows"
            )
        parent = row.parent_chat_id
        # a parent before the trace's start is still the root that its follow-ups share
        root = row.chat_id if parent == -1 else self.roots.get(parent, parent)
        found = request(
            where,
            offset_s=row.timestamp,
            prompt_tokens=row.input_length,
            output_tokens=row.output_length,
            blocks=row.hash_ids,
            block_tokens=BLOCK_TOKENS,
            session=str(root),
        )
        self.roots[row.chat_id] = root
        return found
