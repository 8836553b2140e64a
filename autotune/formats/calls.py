"""Calls as gateways log them: with a beginning, an end, and the session that they belong to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from autotune.domain.workload import Request
from autotune.errors import InputError
from autotune.formats.arrays import groups
from autotune.formats.cells import shown
from autotune.formats.order import in_order
from autotune.formats.outline import outline
from autotune.formats.reading import Recording, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request, when its answer had ended on the clock of its `offset_s`, and the log's name for it."""

    request: Request
    end_s: float | None
    id: str | None


Read = Callable[[str, str | bytes], list[Call] | None]
"""A row, by its place and text, as its call; empty for what asked no engine, None for what failed."""


def read_calls(source: Source, read: Read, *, id_key: str, hint: str) -> Recording:
    """A log with a row a line or in one array, linked; raises `InputError` with file:line."""
    rows = _Rows(source, read, id_key)
    in_one_piece = outline(source.head()).opens == "[{"
    found = groups(source, rows.several, hint=hint) if in_one_piece else source.rows(rows, ordered=False)
    return Recording(requests=linked(found, rows.ends_s))


@dataclass(slots=True)
class _Rows:
    """Rows as requests; keeps when each ended, and the ids."""

    source: Source
    read: Read
    id_key: str
    ends_s: list[float | None] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)

    def __call__(self, where: str, text: str | bytes) -> list[Request] | None:
        calls = self.read(where, text)
        if calls is None:
            return None
        for call in calls:
            if call.id in self.ids:
                raise InputError(
                    f"{where}: the {self.id_key} {shown(call.id)} is there twice",
                    hint="remove one of the rows",
                )
        self.ids.update(call.id for call in calls if call.id is not None)
        self.ends_s.extend(call.end_s for call in calls)
        return [call.request for call in calls]

    def several(self, where: str, value: bytes) -> list[Request]:
        """As a call, for rows of an array."""
        found = self(where, value)
        self.source.failed += found is None
        return found or []


def linked(requests: Iterable[Request], ends_s: Iterable[float | None]) -> Iterator[Request]:
    """Requests in order of arrival; one of a session that began after all before it had ended follows them.

    Its pause is then `think_s`. One that ran beside another of its session, or after one whose end is not
    known, did not wait for it: it has no session. `ends_s` may grow while `requests` are read.
    """
    calls = sorted(zip(requests, ends_s, strict=False), key=lambda call: call[0].offset_s)
    ended_s: dict[str, float | None] = {}
    found = []
    for request, end_s in calls:
        name, begins_s = request.session, request.offset_s
        if name is None:
            found.append(request)
            continue
        if name not in ended_s:
            found.append(request)
            ended_s[name] = end_s
            continue
        before_s = ended_s[name]
        if before_s is not None and before_s <= begins_s:
            found.append(replace(request, think_s=begins_s - before_s))
        else:
            found.append(replace(request, session=None))
        ended_s[name] = None if before_s is None or end_s is None else max(before_s, end_s)
    yield from in_order(found)
