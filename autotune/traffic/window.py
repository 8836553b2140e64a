"""Windows cut from a recording: which requests, and when each is due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.domain.workload import Request

LEAD_IN_SHARE = 0.1
"""Share of the recording, at its front, that only serves as lead-in of the first window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """One request of a window: `due_s` counts from the window's start; lead-in is not measured.

    `after` is the index of the request of its session whose answer it waits for; None when it waits for none.
    Then it leaves `request.think_s` after that answer's end, or at `due_s` if the recording holds no think
    time and the answer is there by then.
    """

    index: int
    due_s: float
    request: Request
    measured: bool
    after: int | None = None


HELD_OUT_SHARE = 0.45
"""Share at its end that only the final confirmation may use."""


def holdout(requests: int) -> int:
    """Index of the first request that the search never sees."""
    return int(requests * (1 - HELD_OUT_SHARE) + 1e-9)


def mean_rate_rps(requests: Sequence[Request]) -> float:
    """Mean recorded rate of a slice: gaps over duration."""
    return (len(requests) - 1) / max(requests[-1].offset_s - requests[0].offset_s, 1e-9)


def first_of_search(requests: int) -> int:
    """Index of the first measured request of the search slice."""
    return int(requests * LEAD_IN_SHARE)


def due_times_s(requests: Sequence[Request], *, first: int, speed: float) -> list[float]:
    """When each request is due, in seconds after the request `first` at this speed, negative before it.

    `speed` divides the gaps between sessions: at 1 the recorded stamps are replayed exactly. Within a session
    time runs as recorded, since nobody thinks faster because there are more users.
    """
    origin = requests[first].offset_s
    began: dict[str, float] = {}
    due = []
    for request in requests:
        own = request.offset_s
        start = own if request.session is None else began.setdefault(request.session, own)
        due.append((start - origin) / speed + (own - start))
    return due


def cut(
    requests: Sequence[Request],
    *,
    first: int,
    end: int,
    speed: float,
    count: int,
    at_least_s: float,
    at_most_s: float,
    lead_in_s: float,
) -> tuple[Due, ...]:
    """Requests of [first, end) until there are `count` of them and `at_least_s` is over, with their lead-in.

    Both, because few requests prove nothing and a queue needs time to build: 300 requests at 60 requests/s
    held in 5 s what failed in 20. `at_most_s` ends the window in any case; so does `end`. The lead-in is what
    was due up to `lead_in_s` before the first measured request. A request of a session waits for the one
    before it when that is in the window; else it is due like any other.
    """
    due_s = due_times_s(requests[:end], first=first, speed=speed)
    near = [index for index in range(end) if -lead_in_s <= due_s[index] <= at_most_s]
    if not near:
        return ()
    near.sort(key=lambda index: due_s[index])
    lead_s = max(-due_s[near[0]], 0.0)
    window: list[Due] = []
    last_of: dict[str, int] = {}
    measured = 0
    for index in near:
        if measured >= count and due_s[index] > at_least_s:
            break
        request = requests[index]
        counts = index >= first and due_s[index] >= 0
        measured += counts
        window.append(
            Due(
                index=index,
                due_s=lead_s + due_s[index],
                request=request,
                measured=counts,
                after=last_of.get(request.session) if request.session else None,
            )
        )
        if request.session:
            last_of[request.session] = index
    return tuple(window)


def offered_rps(window: Sequence[Due]) -> float | None:
    """Mean rate of the measured part: gaps over duration; None below two requests."""
    due = [request.due_s for request in window if request.measured]
    return (len(due) - 1) / (due[-1] - due[0]) if len(due) > 1 and due[-1] > due[0] else None
