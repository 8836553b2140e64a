"""Agentic coding sessions: one JSON object a file, its requests with t (s), in, out, hash_ids and think_time.

Source: docs/TRACE_FORMAT.md of callanjfox/agentic-coding-analysis, and the traces of
callanjfox/kv-cache-tester. Blocks hold 64 tokens and the last partial one has no id; ids are comparable
within one file only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from autotune.domain.workload import Request
from autotune.errors import InputError
from autotune.formats.arrays import placed, whole_json
from autotune.formats.cells import decoded
from autotune.formats.order import descending, in_order
from autotune.formats.outline import outline
from autotune.formats.reading import MOST_BLOCK_TOKENS, Recording, Source, request

_HINT = "a session holds id, block_size and requests, each with t, in, out and hash_ids"


class _Session(msgspec.Struct):
    id: str
    block_size: Annotated[int, msgspec.Meta(ge=1, le=MOST_BLOCK_TOKENS)]
    requests: list[msgspec.Raw]
    hash_id_scope: Literal["local"] = "local"


class _Row(msgspec.Struct):
    t: float
    type: str = "n"
    tokens_in: int = msgspec.field(name="in", default=0)
    tokens_out: int = msgspec.field(name="out", default=0)
    hash_ids: list[int] = []
    api_time: float | None = None
    think_time: float | None = None
    agent_id: str | None = None
    requests: list[msgspec.Raw] = []


_DEEPEST = 20

_SESSION = msgspec.json.Decoder(_Session)
_ROW = msgspec.json.Decoder(_Row)


def sniff(head: str) -> bool:
    """True for an object with requests that says what its block ids mean."""
    first = outline(head)
    meaning = {"block_size", "hash_id_scope"} & first.keys
    return first.opens == "{" and "requests" in first.keys and bool(meaning)


def read(source: Source) -> Recording:
    """The session; raises `InputError` with file:line for what cannot be replayed.

    A sub-agent is a session of its own, ID/AGENT, that starts at its recorded moment: its parent does not
    wait for it by name, but the parent's next think time covers it. A think time counts only where the
    request before it has a service time: without one the recorder counted from an earlier answer.
    """
    data, session = whole_json(source, _SESSION, hint=_HINT)
    reader = _Reader(source, session.block_size)
    requests = [*reader.session(session.id, placed(source, data, session.requests), start_s=0.0)]
    return Recording(requests=iter(in_order(requests)), block_tokens=session.block_size)


class _Reader:
    """Requests of one file; a bad one is left out or raises as `Source.tolerate` says."""

    def __init__(self, source: Source, block_tokens: int) -> None:
        self._source = source
        self._block_tokens = block_tokens
        self._names: set[str] = set()

    def session(self, name: str, rows: Iterator[tuple[str, bytes]], *, start_s: float) -> Iterator[Request]:
        self._names.add(name)
        before: _Row | None = None
        latest = 0.0
        for where, raw in rows:
            try:
                row = decoded(where, _ROW, raw, hint=_HINT)
                if row.type == "subagent":
                    found = self._subagent(where, row, name, raw)
                else:
                    if row.t < latest:
                        raise descending(where, latest - row.t)
                    found = [self._request(where, row, name, before, start_s)]
                    before, latest = row, row.t
            except InputError as error:
                self._source.tolerate(error)
                before = None
            else:
                yield from found

    def _subagent(self, where: str, row: _Row, name: str, raw: bytes) -> list[Request]:
        agent = f"{name}/{row.agent_id}"
        if row.agent_id is None or agent in self._names:
            said = "without an agent_id" if row.agent_id is None else f"{row.agent_id!r} is there twice"
            raise InputError(
                f"{where}: a sub-agent {said}", hint="give each sub-agent an agent_id of its own"
            )
        if name.count("/") >= _DEEPEST:
            raise InputError(f"{where}: sub-agents nested too deeply", hint=_HINT)
        first = decoded(where, _ROW, row.requests[0], hint=_HINT) if row.requests else None
        # its stamps count from its own start, or from the session's
        start_s = row.t if first is not None and first.t < row.t else 0.0
        _, _, lines = where.rpartition(":")
        inner = placed(self._source, raw, row.requests)
        shifted = (
            (f"{self._source.path}:{int(lines) + int(at.rpartition(':')[2]) - 1}", one) for at, one in inner
        )
        return list(self.session(agent, shifted, start_s=start_s))

    def _request(self, where: str, row: _Row, name: str, before: _Row | None, start_s: float) -> Request:
        known = row.think_time is not None and before is not None and before.api_time is not None
        return request(
            where,
            offset_s=start_s + row.t,
            prompt_tokens=row.tokens_in,
            output_tokens=row.tokens_out,
            blocks=row.hash_ids,
            block_tokens=self._block_tokens,
            session=name,
            think_s=row.think_time if known else None,
        )
