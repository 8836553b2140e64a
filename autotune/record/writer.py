"""The writing process: reads exchanges off a socket, makes rows of them and keeps those on disk.

Started as `python -m autotune.record.writer FD`. What is slow about recording (JSON, hashes, the disk) is
slow here, where no request waits for it. It ends when the relay closes the socket, even by dying.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from autotune.record.exchange import Exchange, Frames, Order, Standing, frame
from autotune.record.parts import SYNC_S, Parts
from autotune.record.prefixes import BLOCK_TOKENS
from autotune.record.rows import Rows
from autotune.record.tokens import Tokenizer

NICENESS = 5
TELL_S = 0.05
"""What was written and not told of is taken for lost when the process dies."""
_READ = 1 << 20
_VERSION = 2


class Writer:
    """Counts what became of each exchange."""

    def __init__(self, order: Order) -> None:
        header = {
            "autotune_workload": _VERSION,
            "block_tokens": BLOCK_TOKENS,
            "timed": True,
            "counted": True,
            "text": order.keep_text,
            "order": "end",
            "recorded_at": order.recorded_at,
        }
        self._parts = Parts(
            Path(order.out),
            order.fd,
            msgspec.json.encode(header) + b"\n",
            rotate_bytes=order.rotate_bytes,
            rotate_s=order.rotate_s,
            clock=time.monotonic,
        )
        self._rows = Rows(
            key=secrets.token_bytes(32),
            origin_ns=order.origin_ns,
            keep_text=order.keep_text,
            tokenizer=Tokenizer(Path(order.tokenizer)) if order.tokenizer else None,
        )
        self._standing = Standing()
        self._parts.begin()

    def take(self, told: Exchange, request: bytes, answer: bytes) -> None:
        """Write an exchange down."""
        standing, row = self._standing, self._rows.row(told, request, answer)
        if row is None:
            standing.unread += 1
        elif not self._parts.write(msgspec.json.encode(row) + b"\n"):
            standing.lost += 1
        else:
            standing.recorded += 1
            standing.failed += row.failed is not None
            standing.estimated += row.failed is None and not row.counted
        self._parts.sync()

    def standing(self, *, last: bool = False) -> Standing:
        """How it stands, with what was written on disk."""
        self._parts.sync(now=last)
        standing = self._standing
        standing.mismatched, standing.files = self._rows.mismatched, self._parts.count
        standing.trouble = self._parts.trouble
        return standing


def _told(wire: socket.socket, frames: Frames) -> Iterator[tuple[Exchange, bytes, bytes] | None]:
    """Exchanges as they come, and None when the relay should be told; ends with the relay."""
    told_s, more = time.monotonic(), False
    while True:
        if select.select([wire], [], [], TELL_S if more else SYNC_S)[0]:
            data = wire.recv(_READ)
            if not data:
                return
            frames.feed(data)
            more = True
            yield from frames.exchanges()
        if time.monotonic() - told_s >= TELL_S:
            told_s, more = time.monotonic(), False
            yield None


def main() -> int:
    """Write until the relay is gone and everything it handed over is on disk."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the relay decides when it is over
    os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    wire, frames = socket.socket(fileno=int(sys.argv[1])), Frames()
    order = None
    while order is None:
        data = wire.recv(_READ)
        if not data:
            return 0
        frames.feed(data)
        order = next(frames.messages(), None)
    writer = Writer(msgspec.msgpack.decode(order, type=Order))
    wire.sendall(frame(writer.standing()))
    for told in _told(wire, frames):
        if told is not None:
            writer.take(*told)
        else:
            with suppress(OSError):  # a relay that was killed
                wire.sendall(frame(writer.standing()))
    with suppress(OSError):
        wire.sendall(frame(writer.standing(last=True)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
