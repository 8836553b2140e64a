"""HTTP/1.1 with keep-alive and server-sent events, as little of it as a client can tell from uvicorn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One HTTP request; `route` is 'GET /health', header names are lower case."""

    route: str
    headers: Mapping[str, str]
    body: bytes


class Connection(asyncio.Protocol):
    """One client. The next request is read when the answer before it is complete."""

    def __init__(self, handle: Callable[[Connection, Call], None]) -> None:
        self._handle = handle
        self._abandon: Callable[[], None] | None = None
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, _exc: Exception | None) -> None:
        """A client that hangs up frees its place in the batch."""
        self._transport = None
        if self._abandon is not None:
            self._abandon()

    def data_received(self, data: bytes) -> None:
        """Answer every complete request in the buffer."""
        self._buffer += data
        self._read()

    def _read(self) -> None:
        while self._abandon is None and b"\r\n\r\n" in self._buffer:
            head, _, rest = self._buffer.partition(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            parted = (line.partition(":") for line in lines)
            headers = {name.lower(): value.strip() for name, _, value in parted}
            size = int(headers.get("content-length", "0"))
            if len(rest) < size:
                return
            self._buffer = rest[size:]
            method, target, _ = first.split(" ")
            route = f"{method} {target.partition('?')[0]}"
            self._handle(self, Call(route=route, headers=headers, body=rest[:size]))

    def hold(self, abandon: Callable[[], None]) -> None:
        """Read no further until `release`; call `abandon` when the client hangs up before."""
        self._abandon = abandon

    def release(self) -> None:
        """The answer is complete."""
        self._abandon = None
        self._read()

    def send(self, content: object, *, status: int = 200, kind: str = "application/json") -> None:
        """Send a whole answer: text as it is, anything else as JSON."""
        body = (content if isinstance(content, str) else json.dumps(content)).encode()
        self._write(_head(status, kind, f"content-length: {len(body)}") + body)

    def refuse(self, status: int, message: str) -> None:
        """Send an error in OpenAI's form."""
        self.send(error_body(status, message), status=status)

    def open_events(self) -> None:
        """Begin a stream of server-sent events."""
        self._write(_head(200, "text/event-stream; charset=utf-8", "transfer-encoding: chunked"))

    def event(self, content: object) -> None:
        """Send one event in a chunk of its own."""
        text = content if isinstance(content, str) else json.dumps(content, separators=(",", ":"))
        data = f"data: {text}\n\n".encode()
        self._write(b"%x\r\n%b\r\n" % (len(data), data))

    def close_events(self) -> None:
        """End the stream as OpenAI does."""
        self.event("[DONE]")
        self._write(b"0\r\n\r\n")

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


def error_body(status: int, message: str) -> dict[str, object]:
    """An error object as vLLM words it."""
    kind = {400: "BadRequestError", 404: "NotFoundError"}.get(status, "InternalServerError")
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


def _head(status: int, kind: str, framing: str) -> bytes:
    phrase = HTTPStatus(status).phrase
    return (
        f"HTTP/1.1 {status} {phrase}\r\nserver: uvicorn\r\ncontent-type: {kind}\r\n{framing}\r\n\r\n".encode()
    )
