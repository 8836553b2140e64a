"""A server of known timing: it answers to the microsecond, and writes down when it really did.

Started as `python -m autotune.replay.known FIRST_S GAP_S`. It prints its port; when its standard input ends
it prints what it did and is gone. Written on bare sockets, so that a stamp stands right before its write.
"""

from __future__ import annotations

import contextlib
import gc
import select
import socket
import sys
import time
from heapq import heappop, heappush

import msgspec

from autotune.replay.alarm import Alarm
from autotune.replay.frames import Answered
from autotune.replay.priority import go_first, take_precedence

_BACKLOG = 1024
_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: known\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


def _chunk(*events: str) -> bytes:
    data = "".join(f"data: {event}\n\n" for event in events).encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


def _token(reason: str) -> str:
    """An event of the size that vLLM's have with `return_token_ids`."""
    return (
        '{"id":"cmpl-0123456789abcdef","object":"text_completion","created":1700000000,"model":"known",'
        '"choices":[{"index":0,"text":" w","logprobs":null,'
        f'"finish_reason":{reason},"stop_reason":null,"token_ids":[300]}}]}}'
    )


_NEXT = _chunk(_token("null"))


def _last(tokens: int) -> bytes:
    usage = f'{{"choices":[],"usage":{{"prompt_tokens":1,"completion_tokens":{tokens}}}}}'
    return _chunk(_token('"length"')) + _chunk(usage, "[DONE]") + b"0\r\n\r\n"


class _Asked(msgspec.Struct):
    prompt: str
    max_tokens: int


_BODY = msgspec.json.Decoder(_Asked)


class _Stream:
    """One connection and the answer that it is being written."""

    __slots__ = ("answered", "buffer", "socket", "tokens", "wanted")

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.buffer = b""
        self.tokens = self.wanted = 0
        self.answered: Answered | None = None

    def asked(self) -> _Asked | None:
        """A complete request in the buffer, taken out of it."""
        head, found, rest = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return None
        at = head.lower().find(b"content-length:")
        size = int(head[at + 15 :].split(b"\r\n", 1)[0])
        if len(rest) < size:
            return None
        self.buffer = rest[size:]
        return _BODY.decode(rest[:size])


class _Server:
    def __init__(self, first_s: float, gap_s: float) -> None:
        self._first_ns, self._gap_ns = round(first_s * 1e9), round(gap_s * 1e9)
        self._streams: dict[int, _Stream] = {}
        self._queue: list[tuple[int, int]] = []
        self.answered: list[Answered] = []

    def serve(self, listener: socket.socket) -> None:
        """Answer until standard input ends."""
        poll, alarm = select.epoll(), Alarm()
        for fd in (listener.fileno(), alarm.fileno(), sys.stdin.fileno()):
            poll.register(fd, select.EPOLLIN)
        while True:
            if self._queue:
                alarm.set(self._queue[0][0])
            for fd, _ in poll.poll():
                if fd == alarm.fileno():
                    alarm.hush()
                elif fd == listener.fileno():
                    self._accept(listener, poll)
                elif fd == sys.stdin.fileno():
                    return
                elif (stream := self._streams.get(fd)) is not None:
                    self._read(fd, stream)
            self._write_due()

    def _accept(self, listener: socket.socket, poll: select.epoll) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                connection, _ = listener.accept()
                connection.setblocking(False)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._streams[connection.fileno()] = _Stream(connection)
                poll.register(connection.fileno(), select.EPOLLIN)

    def _read(self, fd: int, stream: _Stream) -> None:
        try:
            data = stream.socket.recv(2**20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        now = time.perf_counter_ns()
        if not data:
            self._drop(fd)
            return
        stream.buffer += data
        if (asked := stream.asked()) is not None:
            stream.tokens, stream.wanted = 0, asked.max_tokens
            index = int(asked.prompt.partition(" ")[0])
            stream.answered = Answered(index=index, asked_ns=now, first_ns=0, late_ns=0)
            heappush(self._queue, (now + self._first_ns, fd))

    def _drop(self, fd: int) -> None:
        self._streams.pop(fd).socket.close()
        self._queue = [entry for entry in self._queue if entry[1] != fd]

    def _write_due(self) -> None:
        now = time.perf_counter_ns()
        while self._queue and self._queue[0][0] <= now:
            due_ns, fd = heappop(self._queue)
            self._write(fd, due_ns, now)
            now = time.perf_counter_ns()

    def _write(self, fd: int, due_ns: int, now: int) -> None:
        stream = self._streams[fd]
        answered = stream.answered
        if answered is None:
            return
        stream.tokens += 1
        last = stream.tokens == stream.wanted
        data = _last(stream.wanted) if last else _NEXT
        if stream.tokens == 1:
            answered.first_ns, data = now, _HEAD + data
        answered.late_ns = max(answered.late_ns, now - due_ns)
        try:
            sent = stream.socket.send(data)
        except OSError:
            sent = 0
        if sent < len(data):  # gone, or it has not read for thousands of tokens
            self._drop(fd)
        elif last:
            self.answered.append(answered)
            stream.answered = None
        else:
            heappush(self._queue, (due_ns + self._gap_ns, fd))


def main() -> int:
    """Serve, then tell; at the priority of the client that it is there to measure."""
    take_precedence()
    first_s, gap_s = map(float, sys.argv[1:3])
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        sys.stdout.buffer.write(b"%d\n" % listener.getsockname()[1])
        sys.stdout.buffer.flush()
        server = _Server(first_s, gap_s)
        gc.collect()
        gc.freeze()
        gc.disable()
        go_first()
        server.serve(listener)
    sys.stdout.buffer.write(msgspec.msgpack.encode(server.answered))
    return 0


if __name__ == "__main__":
    sys.exit(main())
