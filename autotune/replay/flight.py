"""One request on its way, and what has come back of its answer."""

from __future__ import annotations

from autotune.replay.framing import Dechunker, Head, NotHttp, read_head


class Flight:
    """A request's bytes, and each read of its answer with its stamp.

    `position` is that in the worker's share of the window. `error` says what went wrong below the level of
    the answer's content; once there is an `ended_ns`, nothing changes any more. `line` is the connection that
    carries it.
    """

    __slots__ = (
        "_chunks", "_fed", "_pieces", "due_ns", "ended_ns", "error", "head", "line", "parts", "position",
        "request", "sent_ns", "stamps",
    )  # fmt: skip

    def __init__(self, position: int, due_ns: int, request: bytes) -> None:
        self.position, self.due_ns, self.request = position, due_ns, request
        self.sent_ns: int | None = None
        self.stamps: list[int] = []
        self.parts: list[bytes] = []
        self.head: Head | None = None
        self.ended_ns: int | None = None
        self.error: str | None = None
        self.line: object = None
        self._chunks: Dechunker | None = None
        self._fed = 0  # reads whose bytes are in `_pieces`
        self._pieces: list[tuple[int, bytes]] = []

    def open(self) -> bool:
        """Look for the head in what has come; True when it is there. Raises `NotHttp`."""
        data = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)
        self.head = read_head(data)
        if self.head is None:
            return False
        self._chunks = Dechunker() if self.head.chunked else None
        self._fed = len(self.parts)
        self._take(self.stamps[-1], data[self.head.size :])
        return True

    def whole(self) -> bool:
        """True when a chunked body has come to its end. Raises `NotHttp`."""
        self._catch_up()
        return self._chunks is not None and self._chunks.ended

    @property
    def excess(self) -> int:
        """Bytes that came after the end of a chunked body."""
        return self._chunks.excess if self._chunks else 0

    def body(self) -> list[tuple[int, bytes]]:
        """The body so far without its coding, `(arrival in ns, bytes)`."""
        try:
            self._catch_up()
        except NotHttp as reason:
            self.error = self.error or f"not HTTP: {reason}"
        return self._pieces

    def seen(self) -> tuple[int, int] | None:
        """Stamps of the first and the last read of the body; None before the first."""
        if self._pieces:
            return self._pieces[0][0], self.stamps[-1]
        return (
            (self.stamps[self._fed], self.stamps[-1]) if self.head and self._fed < len(self.stamps) else None
        )

    def _catch_up(self) -> None:
        if self.head is not None:
            for at in range(self._fed, len(self.parts)):
                self._take(self.stamps[at], self.parts[at])
            self._fed = len(self.parts)

    def _take(self, at_ns: int, raw: bytes) -> None:
        if piece := raw if self._chunks is None else self._chunks.feed(raw):
            self._pieces.append((at_ns, piece))
