"""A request's head, checked and addressed to the upstream; and an answer, followed to its end."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from autotune.record.framing import (
    LONGEST_HEAD,
    Body,
    Chunked,
    Head,
    Malformed,
    UntilClosed,
    request_body,
    response_body,
)
from autotune.record.place import Upstream

_FOR_PROXIES = (b"host", b"proxy-authorization", b"proxy-connection")
_LENGTHS = (b"content-length", b"transfer-encoding", b"expect")


def read_request(raw: bytes) -> tuple[Head, Body]:
    """The head of a request and how its body ends; raises `Malformed`."""
    head = Head.parse(raw)
    _, target, version = head.first
    if not version.startswith(b"HTTP/1.") or not target.startswith((b"/", b"*")):
        raise Malformed("the request line is not one for a server")
    return head, request_body(head)


def path_of(head: Head) -> str:
    """The target without its query."""
    return head.first[1].partition(b"?")[0].decode("latin-1")


def addressed(head: Head, upstream: Upstream, *, size: int | None = None) -> bytes:
    """The head as the upstream gets it: its own host, its prefix, and with `size` a body of that length.

    `Connection` and its kin stay, because the upstream connection is this client's alone (RFC 9110, 7.6.1
    asks a proxy to drop them since its connections differ). What is addressed to a proxy goes.
    """
    method, target, version = head.first
    dropped = _FOR_PROXIES if size is None else _FOR_PROXIES + _LENGTHS
    lines = [
        b"%b %b%b %b" % (method, upstream.prefix.encode(), target, version),
        b"Host: " + upstream.authority.encode(),
        *head.without(*dropped),
    ]
    if size is not None:
        lines.append(b"Content-Length: %d" % size)
    return b"\r\n".join(lines) + b"\r\n\r\n"


def refusal(status: int, message: str) -> bytes:
    """An answer in the upstream's place, as OpenAI words errors; the last one on its connection."""
    body = msgspec.json.encode({"error": {"message": message, "type": "recorder_error", "code": status}})
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
    return f"{head}connection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


class Answer:
    """Follows one answer through its bytes; what cannot be followed lasts until the connection ends.

    `status` is None until the head is whole, `upgraded` is True when other bytes than HTTP follow.
    """

    def __init__(self, method: bytes) -> None:
        self._method = method
        self._head = b""
        self._body: Body | None = None
        self.status: int | None = None
        self.encoding = ""
        self.upgraded = False

    @property
    def begun(self) -> bool:
        """True once the first byte is there."""
        return bool(self._head) or self._body is not None

    @property
    def done(self) -> bool:
        """True when the body ended as it was announced."""
        return self._body is not None and self._body.done

    @property
    def chunked(self) -> bool:
        """True when the body came in chunks."""
        return isinstance(self._body, Chunked)

    @property
    def ends_with_connection(self) -> bool:
        """True when a closed connection is the announced end."""
        return isinstance(self._body, UntilClosed) and self.status is not None

    def feed(self, data: bytes) -> bytes:
        """What of these bytes belongs to the body, with its chunk framing."""
        at = 0
        while self._body is None and not self.upgraded:
            known = len(self._head)
            self._head += data[at:]
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                if len(self._head) > LONGEST_HEAD:
                    self._body = UntilClosed()
                return b""
            raw, self._head = self._head[:end], b""
            at += end + 4 - known
            self._begin(raw)
        if self._body is None or self._body.done:
            return b""
        try:
            end = self._body.feed(data, at)
        except Malformed:
            self._body, end = UntilClosed(), len(data)
        return data if end - at == len(data) else data[at:end]

    def _begin(self, raw: bytes) -> None:
        try:
            head = Head.parse(raw)
            status = int(head.first[1])
            body = response_body(head, self._method)
        except (Malformed, ValueError):
            self._body = UntilClosed()
            return
        self.upgraded = status == 101
        if status >= 200:
            self.status, self._body = status, body
            self.encoding = head.value(b"content-encoding")
