"""When each request of a share leaves: at its due time, or after the answer it waits for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from autotune.replay.alarm import Alarm
from autotune.replay.flight import Flight
from autotune.replay.frames import Share

EARLY_NS = 60_000
"""A wake-up takes 20-40 µs; the alarm rings this much before a due time and the rest is spent spinning."""


class Sends:
    """The schedule of one share. It never moves: who is late stays due when he was due.

    A request of a session becomes due when the one before it has been answered (`Due.after`). In a window
    that is not run to its end, one that would leave after the last planned due time is not sent, and neither
    is what waits for it.
    """

    def __init__(self, share: Share, requests: list[bytes], send: Callable[[Flight], None]) -> None:
        self._share, self._requests, self._send = share, requests, send
        self._due = share.job.due
        here = {due.index for due in self._due}
        self._waiting: dict[int, list[int]] = {}
        self._queue: list[tuple[int, int]] = []
        self._first = []
        for position, due in enumerate(self._due):
            if due.after in here and due.after is not None:
                self._waiting.setdefault(due.after, []).append(position)
            else:
                self._first.append(position)
        self._alarm = Alarm()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._start_ns = self._last_ns = 0
        self._left = len(self._due)
        self.give_up_ns = 0
        """When what still runs is cut off: the drain limit after the last due time, planned or real."""

    def begin(self, loop: asyncio.AbstractEventLoop, start_ns: int) -> None:
        """Make everything that waits for nothing due, counted from `start_ns`."""
        self._loop, self._start_ns = loop, start_ns
        self._last_ns = self._planned_ns(self._share.last_due_s)
        self._expect(self._last_ns)
        self._queue = [(self._planned_ns(self._due[at].due_s), at) for at in self._first]
        heapify(self._queue)
        loop.add_reader(self._alarm.fileno(), self._ring)
        self._set()

    @property
    def all_gone(self) -> bool:
        """True when nothing is left to be sent."""
        return self._left == 0

    def answered(self, flight: Flight) -> None:
        """Make due what waits for this answer, be it a good one or a failure."""
        followers = self._waiting.pop(self._due[flight.position].index, None)
        if not followers:
            return
        ended_ns = flight.ended_ns or time.perf_counter_ns()
        for position in followers:
            due = self._due[position]
            think_s = due.request.think_s
            due_ns = (
                max(ended_ns, self._planned_ns(due.due_s))
                if think_s is None
                else ended_ns + round(think_s * 1e9)
            )
            if due_ns > self._last_ns and not self._share.job.run_to_end:
                self._left -= self._drop(position)
            else:
                heappush(self._queue, (due_ns, position))
                self._expect(due_ns)
        self._set()

    def unsent(self) -> Iterator[tuple[int, int]]:
        """Position and planned due time of all that never left."""
        for position in [at for _, at in self._queue] + [at for ats in self._waiting.values() for at in ats]:
            yield position, self._planned_ns(self._due[position].due_s)

    def end(self) -> None:
        """Send nothing any more."""
        if self._loop is not None:
            self._loop.remove_reader(self._alarm.fileno())
        self._alarm.close()

    def _planned_ns(self, due_s: float) -> int:
        return self._start_ns + round(due_s * 1e9)

    def _expect(self, due_ns: int) -> None:
        self.give_up_ns = max(self.give_up_ns, due_ns + round(self._share.job.drain_s * 1e9))

    def _drop(self, position: int) -> int:
        """How many requests go with this one: a session may have thousands of turns."""
        count, dropped = 0, [position]
        while dropped:
            count += 1
            dropped += self._waiting.pop(self._due[dropped.pop()].index, [])
        return count

    def _set(self) -> None:
        if self._queue:
            self._alarm.set(self._queue[0][0] - EARLY_NS)

    def _ring(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        """Send all that is due by now or within the time that is not worth another wake-up."""
        self._alarm.hush()
        queue = self._queue
        while queue and queue[0][0] - clock() <= EARLY_NS:
            due_ns, position = heappop(queue)
            while clock() < due_ns:
                pass
            self._left -= 1
            request, self._requests[position] = self._requests[position], b""
            self._send(Flight(position, due_ns, request))
        self._set()
