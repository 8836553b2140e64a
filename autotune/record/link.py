"""The relay's side of the writing process: a queue that never waits."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from contextlib import suppress
from typing import cast

import msgspec

from autotune.errors import SetupError
from autotune.record.exchange import Copy, Frames, Order, Standing, frame

READY_S = 30.0
REAP_S = 2.0


class Link(asyncio.Protocol):
    """Hands finished copies to the writer; at most `limit` bytes are copied or on their way to it.

    A copy that finds no room is dropped and counted: traffic does not wait for a disk.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._copied = 0
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = asyncio.Event()
        self._gone = asyncio.Event()
        self._handed = 0
        self._dropped = 0
        self.standing = Standing()

    async def start(self, order: Order) -> None:
        """Start the process and wait until it is ready; raises `SetupError` when it does not become so."""
        ours, self._process = _spawned(order.fd)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_unix_connection(lambda: self, sock=ours)
        transport.write(frame(order))
        await first_of(self._ready, self._gone, within_s=READY_S)
        if not self._ready.is_set():
            _reap(self._process)
            raise SetupError("the writing process did not start", hint="its own words stand above")

    @property
    def dropped(self) -> int:
        """Requests that went by and are not in the file: no room, no writer, or no space on disk."""
        return self._dropped + self.standing.lost

    @property
    def gone(self) -> bool:
        """True once the writer has ended."""
        return self._gone.is_set()

    def _told(self) -> int:
        """How many exchanges the writer has told of."""
        return self.standing.recorded + self.standing.unread + self.standing.lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way to the writer."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """The writer tells how it stands."""
        self._frames.feed(data)
        for message in self._frames.messages():
            self.standing = msgspec.msgpack.decode(message, type=Standing)
            self._ready.set()

    def eof_received(self) -> bool:
        """The writer has ended."""
        return False

    def connection_lost(self, _exc: Exception | None) -> None:
        """The writer has ended: what it had not told of is lost."""
        self._transport = None
        self._dropped += self._handed - self._told()
        self._handed = self._told()
        self._gone.set()

    def room(self, size: int) -> bool:
        """True when that many bytes more may be copied; they count until the copy is handed on."""
        queued = self._transport.get_write_buffer_size() if self._transport is not None else 0
        if self._copied + queued + size > self._limit:
            return False
        self._copied += size
        return True

    def keep(self, copy: Copy) -> None:
        """Hand a copy to the writer, or count it as dropped."""
        self._copied -= copy.size
        if not copy.kept or self._transport is None:
            self._dropped += 1
            return
        self._handed += 1
        self._transport.writelines(copy.pieces())

    async def finish(self, silent_s: float, leave: asyncio.Event) -> None:
        """Wait until the writer has written everything, or told of nothing for `silent_s`, or `leave`.

        What it has not written then is dropped.
        """
        if self._transport is not None:
            self._transport.write_eof()
        while not self.gone and not leave.is_set():
            before = self._told()
            await first_of(self._gone, leave, within_s=silent_s)
            if self._told() == before:
                break
        if self._transport is not None:
            self._transport.abort()
        await self._gone.wait()
        if self._process is not None:
            _reap(self._process)


async def first_of(*events: asyncio.Event, within_s: float) -> None:
    """Wait until one of the events is set, or the time is over."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waits, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


def _reap(process: subprocess.Popen[bytes]) -> None:
    process.kill()  # has ended, or hangs in a disk and may not end now
    with suppress(subprocess.TimeoutExpired):
        process.wait(REAP_S)


def _spawned(fd: int) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "autotune.record.writer", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(), fd),
            start_new_session=True,  # Ctrl-C is not meant for it
        )
    return ours, process
