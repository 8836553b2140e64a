"""What the tuner and its replay workers say to each other on their pipes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from autotune.replay.job import Job

_LENGTH = struct.Struct("<cI")
START = struct.Struct("<q")
"""The second thing a worker is told: the instant that the window begins, of `perf_counter_ns`."""
STOP = b"s"
"""The last: the window is decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The first thing a worker is told: a job whose `due` are its part of the window.

    `last_due_s` is the last planned due time of the whole window.
    """

    job: Job
    last_due_s: float


class Alive(msgspec.Struct, array_like=True):
    """Nothing to tell; bodies are being built."""


class Ready(msgspec.Struct, array_like=True):
    """Everything that can be done before the start is done."""


class Running(msgspec.Struct, array_like=True):
    """A request that is under way: `first_ns` and `last_ns` are stamps of its answer's body, 0 before it."""

    position: int
    due_ns: int
    sent_ns: int
    first_ns: int
    last_ns: int


class Tick(msgspec.Struct, array_like=True):
    """All that is under way now."""

    now_ns: int
    running: list[Running]


class Ended(msgspec.Struct, array_like=True):
    """A request that is over, with its answer as it came; `cut` when we ended it ourselves."""

    position: int
    due_ns: int
    sent_ns: int | None
    ended_ns: int
    status: int | None
    error: str | None
    cut: bool
    body: list[tuple[int, bytes]]


class Done(msgspec.Struct, array_like=True):
    """The last frame: lags in seconds, CPU and waiting time of this process since the start."""

    loop_lags_s: list[float]
    send_lags_s: list[float]
    cpu_s: float
    waited_s: float | None
    wall_s: float
    reconnects: int


class Answered(msgspec.Struct, array_like=True):
    """A request as the server of known timing saw it, which tells all of them at its end.

       When it was there, when its first byte was written, and by how much its latest token was late.
    `index` is the number that its prompt begins with.
    """

    index: int
    asked_ns: int
    first_ns: int
    late_ns: int


Frame = Alive | Ready | Tick | Ended | Done
_KINDS: dict[bytes, type[Frame]] = {b"a": Alive, b"r": Ready, b"t": Tick, b"e": Ended, b"d": Done}
_CODES = {kind: code for code, kind in _KINDS.items()}
_ENCODER = msgspec.msgpack.Encoder()
_DECODERS = {code: msgspec.msgpack.Decoder(kind) for code, kind in _KINDS.items()}


def packed(frame: Frame) -> bytes:
    """One frame as bytes: a kind byte, a length, MessagePack."""
    body = _ENCODER.encode(frame)
    return _LENGTH.pack(_CODES[type(frame)], len(body)) + body


def packed_share(share: Share) -> bytes:
    """A worker's first input: a length, MessagePack."""
    body = msgspec.msgpack.encode(share)
    return START.pack(len(body)) + body


class Frames:
    """Frames out of the bytes of a pipe, however they are cut."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete with this piece."""
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= _LENGTH.size:
            code, length = _LENGTH.unpack_from(buffer, at)
            end = at + _LENGTH.size + length
            if len(buffer) < end:
                break
            yield _DECODERS[code].decode(memoryview(buffer)[at + _LENGTH.size : end])
            at = end
        del buffer[:at]
