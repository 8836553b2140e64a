"""A replay worker: sends its share of a window on time and stamps what comes back; others read it.

Started as `python -m autotune.replay.client`: a share and the start instant come in on standard input, frames
go out on standard output. It shares nothing with the tuner, so that neither the live view nor a journal's
fsync can make it late, and it parses nothing while the window runs (docs/adr/0010).
"""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import uvloop

from autotune.errors import ReplayError
from autotune.replay.alarm import Alarm
from autotune.replay.bodies import requests
from autotune.replay.flight import Flight
from autotune.replay.frames import START, Alive, Done, Ended, Frame, Ready, Running, Share, Tick, packed
from autotune.replay.lines import Lines
from autotune.replay.place import Place
from autotune.replay.priority import go_first, take_precedence
from autotune.replay.sends import Sends

TICK_NS = 10_000_000
PROGRESS_S = 0.25


class Worker:
    """One share while it is being sent."""

    def __init__(self, share: Share, place: Place, ready: list[bytes], tell: Callable[[Frame], None]) -> None:
        self._tell = tell
        self._over = asyncio.Event()
        self._told_to_stop = False
        self._lines = Lines(place, self._landed, self._out_of)
        self._lacks: str | None = None
        self._flights: dict[int, Flight] = {}
        self._send_lags: list[float] = []
        self._loop_lags: list[float] = []
        self._heart = Alarm()
        self._next_beat_ns = self._told_ns = 0
        self._sends = Sends(share, ready, self._send)

    async def run(self, start_ns: int) -> None:
        """Send everything, wait for the answers until the drain limit or `stop`, tell the rest.

        Raises `ReplayError` when this machine, not the server, is at its end.
        """
        cpu_s, waited_s = _cpu_s(), _waited_s()
        loop = asyncio.get_running_loop()
        self._sends.begin(loop, start_ns)
        self._told_ns = self._next_beat_ns = start_ns
        loop.add_reader(self._heart.fileno(), self._beat)
        self._heart.set(start_ns)
        await self._over.wait()
        loop.remove_reader(self._heart.fileno())
        self._heart.close()
        self._sends.end()
        if self._lacks is not None:
            raise ReplayError(f"our own client could not open a connection: {self._lacks}")
        for flight in tuple(self._flights.values()):
            self._lines.drop(flight)
            self._note_lag(flight)
            self._tell(_ended(flight, cut=True))
        if not self._told_to_stop:
            for position, due_ns in self._sends.unsent():
                self._tell(_never_sent(position, due_ns))
        self._lines.close()
        waited = _waited_s()
        self._tell(
            Done(
                loop_lags_s=self._loop_lags,
                send_lags_s=self._send_lags,
                cpu_s=_cpu_s() - cpu_s,
                waited_s=None if waited is None or waited_s is None else waited - waited_s,
                wall_s=(time.perf_counter_ns() - start_ns) / 1e9,
                reconnects=self._lines.reconnects,
            )
        )

    def stop(self) -> None:
        """End the window now."""
        self._told_to_stop = True
        self._over.set()

    def _out_of(self, what: str) -> None:
        self._lacks = what
        self._over.set()

    def _send(self, flight: Flight) -> None:
        self._flights[flight.position] = flight
        self._lines.send(flight)

    def _landed(self, flight: Flight) -> None:
        """First what has to be sent next, then what has come."""
        del self._flights[flight.position]
        self._sends.answered(flight)
        self._note_lag(flight)
        self._tell(_ended(flight, cut=False))
        if not self._flights and self._sends.all_gone:
            self._over.set()

    def _note_lag(self, flight: Flight) -> None:
        if flight.sent_ns is not None:
            self._send_lags.append((flight.sent_ns - flight.due_ns) / 1e9)

    def _beat(self) -> None:
        """Every 10 ms see how late this loop is; every quarter of a second say what is under way."""
        self._heart.hush()
        now = time.perf_counter_ns()
        self._loop_lags.append((now - self._next_beat_ns) / 1e9)
        if now >= self._sends.give_up_ns or (self._sends.all_gone and not self._flights):
            self._over.set()
        if now - self._told_ns >= PROGRESS_S * 1e9:
            self._told_ns = now
            self._lines.prune()
            self._tell(Tick(now_ns=now, running=[_running(one) for one in self._flights.values()]))
        self._next_beat_ns += TICK_NS * (1 + (now - self._next_beat_ns) // TICK_NS)
        self._heart.set(self._next_beat_ns)


def _running(flight: Flight) -> Running:
    first_ns, last_ns = flight.seen() or (0, 0)
    return Running(flight.position, flight.due_ns, flight.sent_ns or 0, first_ns, last_ns)


def _ended(flight: Flight, *, cut: bool) -> Ended:
    body = flight.body()
    return Ended(
        position=flight.position,
        due_ns=flight.due_ns,
        sent_ns=flight.sent_ns,
        ended_ns=flight.ended_ns or time.perf_counter_ns(),
        status=flight.head.status if flight.head else None,
        error=flight.error,
        cut=cut,
        body=body,
    )


def _never_sent(position: int, due_ns: int) -> Ended:
    """A turn of a session whose turn before was never answered: a failure like any other."""
    return Ended(
        position=position,
        due_ns=due_ns,
        sent_ns=None,
        ended_ns=max(time.perf_counter_ns(), due_ns),
        status=None,
        error="not sent: the answer it waits for did not come",
        cut=False,
        body=[],
    )


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _waited_s() -> float | None:
    """Time that this process was ready to run and did not (proc(5), schedstat); None where it is not kept."""
    try:
        return int(Path("/proc/self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


class _Out(asyncio.Protocol):
    """The pipe to the tuner; `closed` is set when all of it has been written, or nobody reads it."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  the tuner sees its side
        """Say that there is nothing more to wait for."""
        self.closed.set()


async def _send_share(share: Share, place: Place, ready: list[bytes], start_ns: int) -> None:
    loop = asyncio.get_running_loop()
    pipe, out = await loop.connect_write_pipe(_Out, sys.stdout)
    worker = Worker(share, place, ready, lambda frame: pipe.write(packed(frame)))
    loop.add_reader(sys.stdin.fileno(), worker.stop)  # a word, or the end of the tuner
    await worker.run(start_ns)
    loop.remove_reader(sys.stdin.fileno())
    pipe.close()
    await out.closed.wait()


def main() -> int:
    """Read a share, send it, tell what came; dies with its parent, even one that is killed."""
    take_precedence()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # every request in flight holds one
    said, out = sys.stdin.buffer, sys.stdout.buffer

    def tell(frame: Frame) -> None:
        out.write(packed(frame))
        out.flush()

    share = msgspec.msgpack.decode(said.read(*START.unpack(said.read(START.size))), type=Share)
    place = Place.find(share.job.url)
    ready = requests(share.job, place, lambda: tell(Alive()))
    gc.collect()
    gc.freeze()
    gc.disable()
    tell(Ready())
    if len(go := said.read(START.size)) < START.size:
        return 0  # the tuner has gone
    go_first()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_send_share(share, place, ready, *START.unpack(go)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
