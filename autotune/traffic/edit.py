"""Recordings made from recordings: slices, overlays, other speeds, arrival times where there were none.

All take requests in order of arrival and give them back so, counted from the first that is left. They stream:
what they hold does not grow with the recording, unless they say so.
"""

from __future__ import annotations

import heapq
import math
import random
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from autotune.domain.workload import Request
from autotune.traffic.reuse import mix

SAME_STAMP_S = 5e-4
"""Arrivals closer than this have the same stamp: recordings count in milliseconds at best."""

_PLAIN_ID = 2**52


def rebased(requests: Iterable[Request]) -> Iterator[Request]:
    """The same requests with offsets counted from the first."""
    origin_s = None
    for request in requests:
        if origin_s is None:
            origin_s = request.offset_s
        yield replace(request, offset_s=request.offset_s - origin_s) if origin_s else request


def between(requests: Iterable[Request], *, from_s: float, to_s: float) -> Iterator[Request]:
    """What starts in [from_s, to_s): requests of no session, and whole sessions whose first request does."""
    return rebased(_started(requests, lambda request, _: from_s <= request.offset_s < to_s))


def leading(requests: Iterable[Request], *, starts: int) -> Iterator[Request]:
    """The first `starts` sessions and requests of no session, whole."""
    return rebased(_started(requests, lambda _, started: started < starts))


def starts(requests: Iterable[Request]) -> int:
    """How many sessions and requests of no session there are."""
    begun: set[str] = set()
    alone = 0
    for request in requests:
        if request.session is None:
            alone += 1
        else:
            begun.add(request.session)
    return alone + len(begun)


def busiest(requests: Iterable[Request], *, window_s: float, by_tokens: bool) -> tuple[float, float]:
    """The window [from, to) of `window_s`, begun by an arrival, whose slice holds most; the first of equals.

    Most requests, or most prompt and output tokens. A session counts whole in the window where it starts,
    because its slice holds it whole. Holds 16 bytes for each start.
    """
    start_s, weight = array("d"), array("q")
    place_of: dict[str, int] = {}
    for request in requests:
        place = (
            len(start_s) if request.session is None else place_of.setdefault(request.session, len(start_s))
        )
        if place == len(start_s):
            start_s.append(request.offset_s)
            weight.append(0)
        weight[place] += request.prompt_tokens + request.output_tokens if by_tokens else 1
    best, best_from_s, held, end = -1, 0.0, 0, 0
    for begin, from_s in enumerate(start_s):
        while end < len(start_s) and start_s[end] < from_s + window_s:
            held += weight[end]
            end += 1
        if held > best:
            best, best_from_s = held, from_s
        held -= weight[begin]
    return best_from_s, best_from_s + window_s


def scale(requests: Iterable[Request], *, speed: float) -> Iterator[Request]:
    """The recording at another speed: gaps between sessions divided by it, time within a session kept.

    The same rule as `due_times_s` in autotune/traffic/window.py. Turns change places with other sessions'
    requests, so this holds what a later start could still overtake.
    """
    began: dict[str, float] = {}
    waiting: list[tuple[float, int, Request]] = []
    for index, request in enumerate(rebased(requests)):
        own_s = request.offset_s
        start_s = own_s if request.session is None else began.setdefault(request.session, own_s)
        due_s = start_s / speed + (own_s - start_s)
        # Whatever comes later is due no sooner than this: its session began at 0 or with it.
        settled_s = own_s / max(speed, 1.0) * (1 - 1e-9)
        while waiting and waiting[0][0] < settled_s:
            yield heapq.heappop(waiting)[2]
        heapq.heappush(waiting, (due_s, index, replace(request, offset_s=due_s)))
    while waiting:
        yield heapq.heappop(waiting)[2]


def resize(requests: Iterable[Request], *, factor: float) -> Iterator[Request]:
    """Prompts and answers `factor` times as long, rounded up; whoever asks resizes the blocks as well.

    For a small model that is to see the arrivals, the proportions and the shared prefixes of large traffic.
    """
    for request in requests:
        yield replace(
            request,
            prompt_tokens=math.ceil(request.prompt_tokens * factor - 1e-9),
            output_tokens=math.ceil(request.output_tokens * factor - 1e-9),
        )


def merge(recordings: Sequence[Iterable[Request]]) -> Iterator[Request]:
    """All recordings laid over one another, each from its own start; blocks and sessions stay apart.

    The session NAME of the second recording becomes 2/NAME. Block ids are spread out, id·n + place, which no
    two recordings share; ids too large for that (hashes) are mixed anew.
    """
    several = len(recordings)
    numbered = [
        _apart(rebased(requests), place=place, several=several) for place, requests in enumerate(recordings)
    ]
    return heapq.merge(*numbered, key=lambda request: request.offset_s)


def spread(requests: Iterable[Request], *, step_s: float, seed: int) -> Iterator[Request]:
    """Requests that share a stamp, drawn evenly over the step that begins with it, in their order.

    A stamp that was rounded to a step says that the request came within it and no more; evenly drawn moments
    are what a Poisson process gives once the count is known.
    """
    return rebased(_spread(requests, step_s=step_s, draw=_draw(f"{seed}/spread")))


def arrive(requests: Iterable[Request], *, rate_rps: float, seed: int) -> list[Request]:
    """Arrival times for requests that have none: starts as a Poisson process of `rate_rps`, the first at 0.

    Every turn of a session gets the moment of its start: it waits for the answer before it in any case.
    Holds all requests.
    """
    draw = _draw(f"{seed}/arrivals")
    began: dict[str, float] = {}
    next_s = 0.0
    found: list[Request] = []
    for request in requests:
        start_s = began.get(request.session) if request.session is not None else None
        if start_s is None:
            start_s = next_s
            next_s += draw.expovariate(rate_rps)
            if request.session is not None:
                began[request.session] = start_s
        found.append(replace(request, offset_s=start_s))
    found.sort(key=lambda request: request.offset_s)
    return found


def _started(requests: Iterable[Request], belongs: Callable[[Request, int], bool]) -> Iterator[Request]:
    """Requests that belong, a session by its first; `belongs` also hears how many starts came before."""
    chosen: dict[str, bool] = {}
    started = 0
    for request in requests:
        belonging = chosen.get(request.session) if request.session is not None else None
        if belonging is None:
            belonging = belongs(request, started)
            started += 1
            if request.session is not None:
                chosen[request.session] = belonging
        if belonging:
            yield request


def _apart(requests: Iterable[Request], *, place: int, several: int) -> Iterator[Request]:
    for request in requests:
        yield replace(
            request,
            blocks=tuple(
                block * several + place
                if -_PLAIN_ID < block < _PLAIN_ID
                else 2**62 | mix(block ^ mix(place)) >> 2
                for block in request.blocks
            ),
            session=None if request.session is None else f"{place + 1}/{request.session}",
        )


def _spread(requests: Iterable[Request], *, step_s: float, draw: random.Random) -> Iterator[Request]:
    together: list[Request] = []
    for request in requests:
        if together and request.offset_s - together[0].offset_s >= SAME_STAMP_S:
            yield from _drawn(together, min(together[0].offset_s + step_s, request.offset_s), draw)
            together = []
        together.append(request)
    if together:
        yield from _drawn(together, together[0].offset_s + step_s, draw)


def _drawn(together: list[Request], until_s: float, draw: random.Random) -> Iterator[Request]:
    from_s = together[0].offset_s
    moments_s = sorted(min(draw.uniform(from_s, until_s), until_s) for _ in together)
    for request, moment_s in zip(together, moments_s, strict=True):
        yield replace(request, offset_s=moment_s)


def _draw(key: str) -> random.Random:
    return random.Random(key)  # noqa: S311  arrival times hide nothing
