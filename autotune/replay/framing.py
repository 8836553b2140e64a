"""Where an HTTP/1.1 answer begins and ends, and which of its bytes are the body.

Source: RFC 9112, sections 4 (status line), 6 (message body) and 7.1 (chunked transfer coding).
"""

from __future__ import annotations

from dataclasses import dataclass

_MAX_LINE = 65_536
"""A head or a chunk's size line longer than this is not HTTP."""
_USUAL_DIGITS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Status line and headers; `size` counts their bytes up to and with the empty line.

    The body is `chunked`, has `length` bytes, or (None) lasts until the server closes. `reusable` is False
    when the server said that it will close.
    """

    size: int
    status: int
    chunked: bool
    length: int | None
    reusable: bool


class NotHttp(ValueError):  # noqa: N818  what the bytes are
    """The bytes are no HTTP answer."""


def read_head(data: bytes) -> Head | None:
    """The final head in `data`, informational ones (1xx) passed over; None while it is incomplete.

    Raises `NotHttp`.
    """
    begin = 0
    while (end := data.find(b"\r\n\r\n", begin)) >= 0:
        first, *lines = data[begin:end].split(b"\r\n")
        version, _, rest = first.partition(b" ")
        if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
            raise NotHttp(f"{first[:60].decode('latin-1')!r} is no HTTP status line")
        begin = end + 4
        status = int(rest[:3])
        if status >= 200:
            return _head(begin, status, version, lines)
    if len(data) > _MAX_LINE:
        raise NotHttp("the headers have no end")
    return None


def _head(size: int, status: int, version: bytes, lines: list[bytes]) -> Head:
    chunked, length, reusable = False, None, version == b"HTTP/1.1"
    for line in lines:
        name, _, value = line.lower().partition(b":")
        value = value.strip()
        if name == b"transfer-encoding":
            chunked = value.endswith(b"chunked")
        elif name == b"content-length":
            if not value.isdigit():
                raise NotHttp(f"content-length {value.decode('latin-1')!r} is no number")
            length = int(value)
        elif name == b"connection":
            reusable = reusable and b"close" not in value
    if status in (204, 304):
        chunked, length = False, 0
    return Head(
        size=size, status=status, chunked=chunked, length=None if chunked else length, reusable=reusable
    )


class Dechunker:
    """The chunked coding taken off a body that comes in pieces, wherever they are cut.

    `ended` after the last chunk and its trailer; what follows is counted in `excess`.
    """

    __slots__ = ("_left", "_line", "_trailer", "ended", "excess")

    def __init__(self) -> None:
        self._left = 0  # bytes of the chunk under way, its line end included
        self._line = b""  # the size line or trailer line under way
        self._trailer = False
        self.ended = False
        self.excess = 0

    def feed(self, data: bytes) -> bytes:
        """The payload in the next piece; raises `NotHttp`."""
        if not self._left and not self._line and not self._trailer:
            # Nearly always: one event, in one chunk, in one read.
            end = data.find(b"\r\n")
            if 0 < end <= _USUAL_DIGITS and data[:end].isalnum():
                length = self._size_of(data[:end])
                if length and len(data) == end + 4 + length:
                    return data[end + 2 : -2]
        at, size, payload = 0, len(data), []
        while at < size and not self.ended:
            if self._left:
                end = min(at + self._left, size)
                # of the last two bytes that are left, the line end, nothing is payload
                payload.append(data[at : min(end, at + max(self._left - 2, 0))])
                self._left -= end - at
                at = end
                continue
            end = data.find(b"\n", at)
            if end < 0:
                self._line += data[at:]
                if len(self._line) > _MAX_LINE:
                    raise NotHttp("a chunk's size line has no end")
                return b"".join(payload)
            line = (self._line + data[at:end]).rstrip(b"\r")
            self._line = b""
            at = end + 1
            if self._trailer:
                self.ended = not line
            else:
                self._begin(line)
        self.excess += size - at
        return payload[0] if len(payload) == 1 else b"".join(payload)

    def _begin(self, line: bytes) -> None:
        size = self._size_of(line.partition(b";")[0].strip())
        self._trailer = size == 0
        self._left = size + 2 if size else 0

    @staticmethod
    def _size_of(digits: bytes) -> int:
        try:
            size = int(digits, 16)
        except ValueError:
            raise NotHttp(f"chunk size {digits[:20].decode('latin-1')!r} is no number") from None
        if size < 0:
            raise NotHttp(f"chunk size {size} is negative")
        return size
