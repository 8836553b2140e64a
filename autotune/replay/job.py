"""What goes into and comes out of the replay process: values, and their framing on a pipe."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import BinaryIO

import msgspec

from autotune.domain.slo import Sla
from autotune.domain.timing import Timing
from autotune.traffic import Due

_LENGTH = struct.Struct("<cI")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One window to replay.

    `vocabulary`, `block_tokens`, `seed` and `salt` decide the prompts (`traffic.prompt`);
    `cache_salt` keeps this window's prefixes from every other's.
    `allowed` holds for each objective of `sla` how many bad values the window may have: with one more
    it is decided and stops, unless `run_to_end`. Requests still running `drain_s` after the last due time
    are cut off.
    """

    url: str
    key: str
    model: str
    vocabulary: int
    block_tokens: int | None
    seed: int
    salt: str
    cache_salt: str
    due: tuple[Due, ...]
    sla: Sla
    allowed: tuple[int, ...]
    run_to_end: bool
    drain_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Measured requests sent and finished, and certainly bad values so far.

    `bad` of `allowed` is that of the objective that is nearest to failing.
    """

    sent: int
    finished: int
    bad: int
    allowed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The measured requests of a window, in order of arrival.

    `loop_lag_p99_s` is the 99th percentile by which a periodic 10 ms sleep of the measuring loop overshot.
    """

    timings: tuple[Timing, ...]
    curtailed: bool
    loop_lag_p99_s: float


Frame = Progress | Replayed
_KINDS: dict[bytes, type[Progress | Replayed]] = {b"p": Progress, b"r": Replayed}


def write_frame(stream: BinaryIO, frame: Frame) -> None:
    """One frame: a kind byte, a length, MessagePack."""
    kind = b"p" if isinstance(frame, Progress) else b"r"
    body = msgspec.msgpack.encode(frame)
    stream.write(_LENGTH.pack(kind, len(body)) + body)
    stream.flush()


def read_frame(stream: BinaryIO) -> Frame | None:
    """The next frame; None when the other side is gone, also in the middle of one."""
    head = _read(stream, _LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    kind, length = _LENGTH.unpack(head)
    body = _read(stream, length)
    return msgspec.msgpack.decode(body, type=_KINDS[kind]) if len(body) == length else None


def _read(stream: BinaryIO, size: int) -> bytes:
    """`size` bytes of an unbuffered pipe, fewer only at its end."""
    parts = bytearray()
    while len(parts) < size and (part := stream.read(size - len(parts))):
        parts += part
    return bytes(parts)
