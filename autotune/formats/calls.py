"""Calls as gateways log them: with a beginning, an end, and the session that they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from autotune.domain.workload import Request
from autotune.formats.order import in_order


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
