"""The relay: each client's connection has one upstream connection of its own, and bytes pass between them.

Because the two are tied, everything about a connection that HTTP leaves to its two ends (keep-alive,
upgrades, trailers, a broken end) means the same on both. Only a request's head is touched: it names the
upstream's host. Bytes are passed on first and looked at afterwards.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from contextlib import suppress
from typing import cast

from autotune.record.exchange import RECORDED, Copy, Exchange
from autotune.record.framing import LONGEST_HEAD, Body, Chunked, Head, Malformed
from autotune.record.heads import Answer, addressed, path_of, read_request, refusal
from autotune.record.relay import Relay
from autotune.record.usage import with_usage

CONNECT_S = 10.0
LINGER_S = 2.0
"""A refused client may read this long before its connection is cut."""
_RESET = struct.pack("ii", 1, 0)


class Origin(asyncio.Protocol):
    """The upstream's side of one pair."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        """On to the client, then note what it was."""
        self._client.transport.write(data)
        self._client.answered(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client's side ends the same way."""
        self._client.origin_lost(exc)

    def pause_writing(self) -> None:
        """The upstream reads slowly: let the client wait."""
        self._client.read_on(full=True)

    def resume_writing(self) -> None:
        """The upstream has caught up."""
        self._client.read_on(full=False)


class Client(asyncio.Protocol):
    """The client's side of one pair, and where both stand."""

    transport: asyncio.Transport

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._origin: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: list[bytes] = []  # for the upstream connection
        self._full = False  # the upstream takes no more
        self._next = b""  # head of the next request, as far as it came
        self._arrived_ns = 0
        self._held: tuple[Head, list[bytes]] | None = None  # a request that is to be changed
        self._body: Body | None = None  # of the request under way, while it comes
        self._copy: Copy | None = None  # of the exchange under way
        self._answer = Answer(b"")
        self._refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connect to the upstream at once: the request is still on its way."""
        self.transport = cast("asyncio.Transport", transport)
        self._relay.connections.add(self)
        self._connect()

    def connection_lost(self, _exc: Exception | None) -> None:
        """The client is gone, and nobody wants what it asked for."""
        self._relay.left(self)
        if self._connecting is not None:
            self._connecting.cancel()
        if self._origin is not None:
            self._origin.abort()
        self._end(left=True)

    def data_received(self, data: bytes) -> None:
        """A request's body goes on as it comes; its head must be whole first."""
        now = time.perf_counter_ns()
        if self._answer.upgraded:
            self._send(data)
        elif not self._refused:
            if self._body is not None:
                data = self._pass(self._body, data)
            if data:
                self._arrived_ns = self._arrived_ns if self._next else now
                self._next += data
                self._begin()

    def pause_writing(self) -> None:
        """The client reads slowly: let the upstream wait."""
        if self._origin is not None:
            self._origin.pause_reading()

    def resume_writing(self) -> None:
        """The client has caught up."""
        if self._origin is not None:
            self._origin.resume_reading()

    def read_on(self, *, full: bool) -> None:
        """Read from the client while the upstream has room and no request waits for its turn."""
        self._full = full
        if full or (self._next and self._copy is not None):
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def stop(self) -> None:
        """End now, unless an answer is under way."""
        if self._copy is None and not self._answer.upgraded:
            self.transport.close()

    def answered(self, data: bytes) -> None:
        """Note how far the answer is; its bytes were sent on already."""
        if self._copy is None:
            return
        mine = self._answer.feed(data)
        if mine:
            self._keep(mine, answer=True)
        if self._answer.upgraded:
            self._copy = None
        elif self._answer.done and self._body is None:
            self._end()

    def origin_lost(self, exc: Exception | None) -> None:
        """The upstream closed: so does the client's side, after what came, and by a reset if it was one."""
        self._origin = None
        self._end(closed=exc is None)
        if self._refused:
            return
        wire = self.transport.get_extra_info("socket")
        if exc is not None and wire is not None:
            with suppress(OSError):
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.close()

    def _connect(self) -> None:
        self._connecting = asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> None:
        upstream, loop = self._relay.upstream, asyncio.get_running_loop()
        name = upstream.host if upstream.tls else None
        try:
            async with asyncio.timeout(CONNECT_S):
                transport, _ = await loop.create_connection(
                    lambda: Origin(self),
                    upstream.host,
                    upstream.port,
                    ssl=self._relay.tls,
                    server_hostname=name,
                )
        except (OSError, TimeoutError) as error:
            self._connecting = None
            if self._copy is not None:  # else the first request tries again
                self._refuse(502, f"the recorder cannot reach {upstream}: {error or 'no answer in time'}")
            return
        self._connecting = None
        if not transport.is_closing():
            self._origin, waiting = transport, self._waiting
            self._waiting = []
            for data in waiting:
                transport.write(data)
            self.read_on(full=self._full)

    def _send(self, data: bytes) -> None:
        if self._origin is not None:
            self._origin.write(data)
            return
        self._waiting.append(data)
        if self._connecting is None:
            self._connect()
        self.transport.pause_reading()  # the rest may wait where it is

    def _begin(self) -> None:
        """Send the next request on, once its head is whole and the answer before it has ended."""
        if self._copy is not None:
            self.read_on(full=self._full)
            return
        self._next = self._next.lstrip(b"\r\n")
        raw, found, rest = self._next.partition(b"\r\n\r\n")
        if not found:
            if len(raw) > LONGEST_HEAD:
                self._refuse(431, "the request's head is too long")
            return
        try:
            head, body = read_request(raw)
        except Malformed as error:
            self._refuse(400, f"the recorder does not pass this on: {error}")
            return
        method, path = head.first[0], path_of(head)
        self._next, self._answer = b"", Answer(method)
        self._body = None if body.done else body
        told = Exchange(
            path=path,
            arrived_ns=self._arrived_ns,
            request_chunked=isinstance(body, Chunked),
            request_encoding=head.value(b"content-encoding"),
        )
        self._copy = Copy(told, kept=method == b"POST" and path in RECORDED)
        if self._relay.ask_usage and self._copy.kept and self._body and not told.request_encoding:
            self._held = (head, [])
            if head.value(b"expect"):
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        else:
            self._send(addressed(head, self._relay.upstream))
        if rest and self._body is not None:
            rest = self._pass(self._body, rest)
        if rest and not self._refused:
            self._next, self._arrived_ns = rest, time.perf_counter_ns()
            self.read_on(full=self._full)

    def _pass(self, body: Body, data: bytes) -> bytes:
        """Send on what belongs to the request's body; return what does not."""
        try:
            end = body.feed(data, 0)
        except Malformed as error:
            self._refuse(400, f"the recorder does not pass this on: {error}")
            return b""
        mine = data if end == len(data) else data[:end]
        if self._held is None:
            self._send(mine)
        else:
            self._held[1].append(mine)
        self._keep(mine, answer=False)
        if body.done:
            self._body = None
            if self._held is not None:
                self._send_changed(*self._held, chunked=isinstance(body, Chunked))
            if self._answer.done:
                self._end()
        return data[end:]

    def _send_changed(self, head: Head, chunks: list[bytes], *, chunked: bool) -> None:
        self._held = None
        content = with_usage(b"".join(chunks), chunked=chunked)
        self._send(addressed(head, self._relay.upstream, size=len(content)) + content)

    def _keep(self, data: bytes, *, answer: bool) -> None:
        copy = self._copy
        if copy is None or not copy.kept:
            return
        if self._relay.keeper.room(len(data)):
            copy.add(data, answer=answer)
        else:
            copy.kept = False
            self._relay.keeper.keep(copy)

    def _end(self, *, left: bool = False, closed: bool = False) -> None:
        """The exchange under way is over; the next one may begin."""
        copy, answer = self._copy, self._answer
        if copy is None:
            return
        self._copy = None
        if copy.kept:
            told = copy.told
            told.ended_ns, told.left, told.status = time.perf_counter_ns(), left, told.status or answer.status
            told.complete = answer.done or (closed and answer.ends_with_connection)
            told.answer_chunked, told.answer_encoding = answer.chunked, answer.encoding
            self._relay.keeper.keep(copy)
        if self._refused or left:
            return
        if self._relay.stopping:
            self.transport.close()
        elif self._next:
            self._begin()
            self.read_on(full=self._full)

    def _refuse(self, status: int, message: str) -> None:
        """Answer in the upstream's place, and end the connection once the client has read it."""
        self._refused, late = True, self._copy is not None and self._answer.begun
        if self._copy is not None:
            self._copy.told.status = self._answer.status or status
        self._end()
        if self._origin is not None:
            self._origin.abort()
        if late:
            self.transport.abort()
            return
        self.transport.resume_reading()
        self.transport.write(refusal(status, message))
        self.transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_S, self.transport.abort)
