"""What the relay hands to the writer: one request and its answer as raw bytes, framed on a socket."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

RECORDED = {"/v1/completions", "/v1/chat/completions", "/v1/responses"}
"""The requests that ask for tokens; everything else is passed through."""
_SIZE = struct.Struct(">I")


class Exchange(msgspec.Struct, array_like=True):
    """One request: when it came, when its answer ended, and how its bodies are to be read.

    Stamps are nanoseconds of the monotonic clock. `complete` is True when the answer ended as its framing
    says; `left` is True when the client was gone before. The bodies follow as raw bytes with their chunk
    framing. `status` is None when no answer began.
    """

    path: str = ""
    arrived_ns: int = 0
    ended_ns: int = 0
    status: int | None = None
    complete: bool = False
    left: bool = False
    request_chunked: bool = False
    request_encoding: str = ""
    request_bytes: int = 0
    answer_chunked: bool = False
    answer_encoding: str = ""
    answer_bytes: int = 0


@dataclass(slots=True)
class Copy:
    """An exchange under way and what was copied of its bodies; not `kept` when it is not to be recorded."""

    told: Exchange
    kept: bool
    request: list[bytes] = field(default_factory=list)
    answer: list[bytes] = field(default_factory=list)
    size: int = 0

    def add(self, data: bytes, *, answer: bool) -> None:
        """One piece more of the answer's body, or of the request's."""
        (self.answer if answer else self.request).append(data)
        self.size += len(data)

    def pieces(self) -> list[bytes]:
        """All of it as it goes to the writer."""
        self.told.request_bytes = sum(map(len, self.request))
        self.told.answer_bytes = self.size - self.told.request_bytes
        return [frame(self.told), *self.request, *self.answer]


class Order(msgspec.Struct, kw_only=True):
    """What the writer is started with; `fd` is the open file, offsets count from `origin_ns`."""

    fd: int
    out: str
    recorded_at: str
    origin_ns: int
    keep_text: bool
    rotate_bytes: int | None
    rotate_s: float | None
    tokenizer: str | None


class Standing(msgspec.Struct):
    """What the writer tells from time to time: counts since the start, the parts, and its latest trouble.

    Of the recorded, `estimated` have token counts from text and `mismatched` other prompt lengths by the
    tokenizer than by the server; `unread` were no requests of the API, and `lost` could not be written.
    """

    recorded: int = 0
    failed: int = 0
    estimated: int = 0
    mismatched: int = 0
    unread: int = 0
    lost: int = 0
    files: int = 1
    trouble: str | None = None


_EXCHANGE = msgspec.msgpack.Decoder(Exchange)


def frame(message: msgspec.Struct) -> bytes:
    """The message with its length in front."""
    data = msgspec.msgpack.encode(message)
    return _SIZE.pack(len(data)) + data


class Frames:
    """Messages out of bytes as they come."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """More bytes of the socket."""
        self._data += data

    def messages(self) -> Iterator[bytes]:
        """The whole messages, where none has bodies."""
        while (end := self._end()) is not None:
            message = bytes(self._data[_SIZE.size : end])
            del self._data[:end]
            yield message

    def exchanges(self) -> Iterator[tuple[Exchange, bytes, bytes]]:
        """The whole exchanges with the raw bodies of request and answer."""
        while (end := self._end()) is not None:
            told = _EXCHANGE.decode(bytes(self._data[_SIZE.size : end]))
            middle = end + told.request_bytes
            last = middle + told.answer_bytes
            if len(self._data) < last:
                return
            request, answer = bytes(self._data[end:middle]), bytes(self._data[middle:last])
            del self._data[:last]
            yield told, request, answer

    def _end(self) -> int | None:
        """Where the first message ends; None while it is not whole."""
        if len(self._data) < _SIZE.size:
            return None
        end = _SIZE.size + int(_SIZE.unpack_from(self._data)[0])
        return end if len(self._data) >= end else None
