"""HTTP/1.1 as far as a relay must know it: where a head ends, where a body ends, and where to.

Source: RFC 9112, sections 2 to 7.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LONGEST_HEAD = 65_536
"""Bytes; uvicorn and nginx stop at 64 and 32 KiB."""
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?\r?")
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Malformed(Exception):  # noqa: N818  what the peer sent is so, and it never leaves this package
    """What was sent is no HTTP/1.1 that two programs would read alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A request's or response's first line in three parts, and its header lines as they came."""

    first: tuple[bytes, bytes, bytes]
    lines: tuple[tuple[bytes, bytes], ...]  # name in lower case, the whole line

    @classmethod
    def parse(cls, raw: bytes) -> Head:
        """A head without the empty line behind it; raises `Malformed`."""
        first, *rest = raw.lstrip(b"\r\n").split(b"\r\n")
        words = first.split(b" ", 2)
        if len(words) < 3:
            words.append(b"")  # a status line may end before its reason
        if len(words) < 3:
            raise Malformed("the first line has fewer than three parts")
        lines = []
        for line in rest:
            name, colon, _ = line.partition(b":")
            if not colon or not _TOKEN.fullmatch(name) or b"\n" in line or b"\r" in line:
                raise Malformed("a header line is not one")
            lines.append((name.lower(), line))
        return cls(first=(words[0], words[1], words[2]), lines=tuple(lines))

    def values(self, name: bytes) -> list[bytes]:
        """All values of that header, in order."""
        return [line.partition(b":")[2].strip() for other, line in self.lines if other == name]

    def value(self, name: bytes) -> str:
        """The header as text in lower case, '' when it is absent."""
        return b", ".join(self.values(name)).decode("latin-1").lower()

    def without(self, *names: bytes) -> list[bytes]:
        """The header lines but for those names."""
        return [line for name, line in self.lines if name not in names]


class Counted:
    """A body of a known length."""

    def __init__(self, size: int) -> None:
        self._left = size
        self.done = size == 0

    def feed(self, data: bytes, at: int) -> int:
        """The index behind the last byte of `data`, read from `at`, that belongs to the body."""
        step = min(self._left, len(data) - at)
        self._left -= step
        self.done = self._left == 0
        return at + step


class Chunked:
    """A body in chunks, with its trailer; raises `Malformed` where a size should stand and does not."""

    def __init__(self) -> None:
        self._left = 0
        self._line = b""
        self._trailer = False
        self.done = False

    def feed(self, data: bytes, at: int) -> int:
        """As `Counted.feed`."""
        end = len(data)
        while at < end and not self.done:
            if self._left:
                step = min(self._left, end - at)
                self._left -= step
                at += step
                continue
            stop = data.find(b"\n", at)
            if stop < 0:
                self._line += data[at:]
                if len(self._line) > LONGEST_HEAD:
                    raise Malformed("a chunk's size is longer than a head")
                return end
            line, self._line = self._line + data[at:stop], b""
            at = stop + 1
            self._begin(line)
        return at

    def _begin(self, line: bytes) -> None:
        if self._trailer:
            self.done = line in {b"", b"\r"}
            return
        size = _CHUNK_SIZE.fullmatch(line)
        if size is None:
            raise Malformed("a chunk has no size")
        count = int(size[1], 16)
        self._trailer = count == 0
        self._left = count + 2 if count else 0


class UntilClosed:
    """A body that ends with its connection."""

    done = False

    def feed(self, data: bytes, _at: int) -> int:
        """As `Counted.feed`: everything belongs to it."""
        return len(data)


Body = Counted | Chunked | UntilClosed


def request_body(head: Head) -> Body:
    """How the request's body ends; raises `Malformed` where two readers could disagree."""
    lengths, coding = set(head.values(b"content-length")), head.value(b"transfer-encoding")
    if coding:
        if coding != "chunked" or lengths:
            raise Malformed("the request's length is given in two ways")
        return Chunked()
    return Counted(_length(lengths))


def response_body(head: Head, method: bytes) -> Body:
    """How the response's body ends; what cannot be told ends with the connection."""
    status = head.first[1]
    if method == b"HEAD" or status in {b"204", b"304"}:
        return Counted(0)
    coding = head.value(b"transfer-encoding")
    if coding:
        return Chunked() if coding.rpartition(",")[2].strip() == "chunked" else UntilClosed()
    lengths = set(head.values(b"content-length"))
    return Counted(_length(lengths)) if lengths else UntilClosed()


def _length(values: set[bytes]) -> int:
    if not values:
        return 0
    if len(values) > 1 or not re.fullmatch(rb"[0-9]{1,18}", next(iter(values))):
        raise Malformed("the length is not one number")
    return int(next(iter(values)))


def unchunked(raw: bytes) -> bytes:
    """The content of a body in chunks, as far as it came."""
    parts, at = [], 0
    while (stop := raw.find(b"\n", at)) >= 0:
        size = _CHUNK_SIZE.fullmatch(raw, at, stop)
        if size is None or int(size[1], 16) == 0:
            break
        end = stop + 1 + int(size[1], 16)
        parts.append(raw[stop + 1 : end])
        at = end + 2
    return b"".join(parts)
