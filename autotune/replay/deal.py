"""How many processes send a window, and which sends what."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.traffic import Due

EVENTS_PER_S = 10_000
"""Token events/s planned for one worker, well below what one carries within 2 % of the truth (ADR 0010)."""


def workers(due: Sequence[Due], *, cores: int) -> int:
    """One for each 10,000 token events/s that the window is expected to bring, and no more than cores.

    The rate is all output tokens over the time from the first due to the last, at least a second.
    """
    if not due:
        return 1
    times_s = [one.due_s for one in due]
    events = sum(one.request.output_tokens for one in due)
    rate = events / max(max(times_s) - min(times_s), 1.0)
    return max(1, min(math.ceil(rate / EVENTS_PER_S), cores, len(due)))


def deal(due: Sequence[Due], count: int) -> tuple[tuple[Due, ...], ...]:
    """The window in `count` shares, each in order of due times: requests in turn, a whole session to one."""
    shares: list[list[Due]] = [[] for _ in range(count)]
    holder: dict[str, int] = {}
    holder_of: dict[int, int] = {}
    turn = 0
    for one in sorted(due, key=lambda one: one.due_s):
        session = one.request.session
        held = holder.get(session) if session is not None else None
        if held is None and one.after is not None:
            held = holder_of.get(one.after)
        if held is None:
            held, turn = turn % count, turn + 1
        if session is not None:
            holder[session] = held
        holder_of[one.index] = held
        shares[held].append(one)
    return tuple(tuple(share) for share in shares if share)
