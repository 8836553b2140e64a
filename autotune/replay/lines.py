"""Connections: a request in one write, every read stamped at the socket, nothing else while it streams."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable
from typing import cast

from autotune.replay.flight import Flight
from autotune.replay.framing import NotHttp
from autotune.replay.place import Place

KEEP_ALIVE_S = 4.0
"""Below the 5 s after which vLLM (uvicorn) closes an idle connection: a request must not meet that moment."""
_OURS = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM)
_SHORTEST_END = 5  # bytes of the chunk that ends a body: 0, CR LF, CR LF


class Line(asyncio.Protocol):
    """One connection. It carries one flight at a time and tells `Lines` when the answer is whole."""

    __slots__ = ("_chunked", "_flight", "_left", "_lines", "_transport", "closed", "idle_ns", "used")

    def __init__(self, lines: Lines, flight: Flight) -> None:
        self._lines = lines
        self._flight: Flight | None = flight
        self._transport: asyncio.Transport | None = None
        self._chunked = False
        self._left: int | None = None  # bytes that a body of known length lacks
        self.idle_ns = 0
        self.closed = self.used = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Write the request that this connection was opened for."""
        self._transport = cast("asyncio.Transport", transport)
        if (flight := self._flight) is not None and flight.ended_ns is None:
            self.carry(flight)
        else:
            self.hang_up()

    def carry(self, flight: Flight) -> None:
        """Write a request."""
        self._flight = flight
        flight.line = self
        if self._transport is not None:
            self._transport.write(flight.request)

    def hang_up(self) -> None:
        """Close without a word."""
        self.closed = True
        self._flight = None
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes, stamp: Callable[[], int] = time.perf_counter_ns) -> None:
        """Stamp and keep; look only whether this can be the end."""
        now = stamp()
        flight = self._flight
        if flight is None:  # nobody asked
            self.hang_up()
            return
        flight.stamps.append(now)
        flight.parts.append(data)
        if self._chunked:
            # A chunk ends in one line end, the last one or its trailer in two. That may also be payload that
            # was cut there: then the framing decides.
            if data.endswith(b"\r\n\r\n") or len(data) < _SHORTEST_END:
                self._look_for_end(flight)
        elif self._left is not None:
            self._left -= len(data)
            if self._left <= 0:
                self._end(flight, excess=-self._left)
        elif flight.head is None:
            self._begin(flight)

    def _begin(self, flight: Flight) -> None:
        try:
            opened = flight.open()
        except NotHttp as reason:
            self._fail(flight, f"not HTTP: {reason}")
            return
        head = flight.head
        if not opened or head is None:
            return
        self._chunked = head.chunked
        if head.chunked:
            self._look_for_end(flight)
        elif head.length is not None:
            self._left = head.length - (sum(map(len, flight.parts)) - head.size)
            if self._left <= 0:
                self._end(flight, excess=-self._left)

    def _look_for_end(self, flight: Flight) -> None:
        try:
            if flight.whole():
                self._end(flight, excess=flight.excess)
        except NotHttp as reason:
            self._fail(flight, f"not HTTP: {reason}")

    def _end(self, flight: Flight, *, excess: int) -> None:
        """The answer is whole; a connection that said more than it should is not used again."""
        self._flight = self._left = None
        self._chunked = False
        self.used = True
        if flight.head is not None and flight.head.reusable and not excess:
            self._lines.landed(flight, self)
        else:
            self.hang_up()
            self._lines.landed(flight, None)

    def _fail(self, flight: Flight, error: str) -> None:
        self.hang_up()
        flight.error = error
        self._lines.landed(flight, None)

    def connection_lost(self, exc: Exception | None) -> None:
        """The end of an answer without a length, or of a request that has none."""
        self.closed = True
        flight, self._flight = self._flight, None
        if flight is None or flight.ended_ns is not None:
            return
        why = f": {exc}" if exc else ""
        if not flight.stamps:
            if self.used and self._lines.again(flight):
                return
            flight.error = f"connection closed without an answer{why}"
        elif flight.head is None or flight.head.chunked or flight.head.length is not None or exc is not None:
            flight.error = f"connection closed in the middle of the answer{why}"
        self._lines.landed(flight, None)


class Lines:
    """The connections to one server: as many as requests are in flight, the one used last first.

    `landed` is called with each flight when it is over, `out_of` when this machine has nothing to connect
    with: files, ports or memory. `reconnects` counts requests that met a kept connection which the server was
    just closing, and were written once more on a new one.
    """

    def __init__(self, place: Place, landed: Callable[[Flight], None], out_of: Callable[[str], None]) -> None:
        self._place, self._landed, self._out_of = place, landed, out_of
        self._idle: list[Line] = []
        self._dialling: dict[int, asyncio.Task[None]] = {}
        self._again: set[int] = set()
        self._loop = asyncio.get_running_loop()
        self.reconnects = 0

    def send(self, flight: Flight) -> None:
        """Put the request on a kept connection, or on one opened for it."""
        now = time.perf_counter_ns()
        flight.sent_ns = now
        idle = self._idle
        while idle:
            line = idle.pop()
            if line.closed:
                continue
            if now - line.idle_ns < KEEP_ALIVE_S * 1e9:
                line.carry(flight)
                return
            line.hang_up()
        self._dial(flight)

    def prune(self) -> None:
        """Close what has been idle for too long; the oldest lie at the bottom."""
        idle, limit_ns = self._idle, time.perf_counter_ns() - KEEP_ALIVE_S * 1e9
        while idle and (idle[0].closed or idle[0].idle_ns < limit_ns):
            idle.pop(0).hang_up()

    def again(self, flight: Flight) -> bool:
        """Write a request that got no byte of an answer once more; False when it was done before."""
        if flight.position in self._again:
            return False
        self._again.add(flight.position)
        self.reconnects += 1
        self._dial(flight)
        return True

    def landed(self, flight: Flight, line: Line | None) -> None:
        """Take the connection back and hand the flight on."""
        flight.ended_ns = now = (
            flight.stamps[-1] if flight.error is None and flight.stamps else time.perf_counter_ns()
        )
        flight.line = None
        if line is not None:
            line.idle_ns = now
            self._idle.append(line)
        self._landed(flight)

    def drop(self, flight: Flight) -> None:
        """Give a flight up where it is."""
        flight.ended_ns = time.perf_counter_ns()
        if isinstance(flight.line, Line):
            flight.line.hang_up()
            flight.line = None
        elif task := self._dialling.pop(flight.position, None):
            task.cancel()

    def close(self) -> None:
        """Hang up every kept connection."""
        for line in self._idle:
            line.hang_up()
        self._idle.clear()

    def _dial(self, flight: Flight) -> None:
        self._dialling[flight.position] = self._loop.create_task(self._open(flight))

    async def _open(self, flight: Flight) -> None:
        place = self._place
        try:
            await self._loop.create_connection(
                lambda: Line(self, flight),
                place.address,
                place.port,
                ssl=place.tls,
                server_hostname=place.host if place.tls else None,
            )
        except OSError as reason:
            if reason.errno in _OURS:
                self._out_of(reason.strerror or str(reason))
            elif flight.ended_ns is None:
                flight.error = f"no connection: {reason.strerror or reason}"
                self.landed(flight, None)
        finally:
            self._dialling.pop(flight.position, None)
