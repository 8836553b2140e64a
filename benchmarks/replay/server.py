"""The server of known truth: an OpenAI-compatible stream whose timing is given, and a log of what it did.

    python benchmarks/replay/server.py --port P --log FILE [--core C] [--ttft-ms 50] [--gap-ms 10]

The first token leaves `--ttft-ms` after the request was read, then one each `--gap-ms`. Nothing sleeps: the
loop polls sockets and clock in turn and so takes a whole core, because a timer of the loop would be up to
1 ms late before the client has done anything. Every event is one `write` to the socket, stamped when that
call returned. At SIGTERM the log is written: arrival, first and last write of every request, and how late
the writes were against their plan. Stamps are nanoseconds of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import re
import resource
import signal
import socket
from array import array
from collections import deque
from pathlib import Path
from time import perf_counter_ns
from typing import cast

import uvloop
import wire

BATCH = 8
"""Writes at most between two looks at the sockets: a read waits some 100 µs for them."""
TOKENS = 64
"""Answer length where the request does not say."""

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_MAX_TOKENS = re.compile(rb'"max_(?:completion_)?tokens": *(\d+)')
_STREAM = re.compile(rb'"stream": *true')
_USAGE = re.compile(rb'"include_usage": *true')
_TOKEN_IDS = re.compile(rb'"return_token_ids": *true')


class Answering:
    """One request that is being answered; `row` is its place in the log."""

    __slots__ = ("connection", "due_ns", "row", "script", "tail", "todo")

    def __init__(
        self, connection: Connection, script: wire.Script, *, todo: int, row: int, due_ns: int
    ) -> None:
        self.connection, self.script, self.todo, self.row = connection, script, todo, row
        self.due_ns = due_ns
        self.tail = b""  # the usage event, where it was asked for


class Log:
    """What happened, as columns; `late_ns` holds one value for each token written."""

    def __init__(self) -> None:
        self.arrived_ns, self.first_ns, self.last_ns = array("q"), array("q"), array("q")
        self.asked, self.late_ns = array("q"), array("q")
        self.blocked = 0

    def open(self, now_ns: int, tokens: int) -> int:
        """Start a row: 0 stands for not yet written."""
        self.arrived_ns.append(now_ns)
        self.first_ns.append(0)
        self.last_ns.append(0)
        self.asked.append(tokens)
        return len(self.asked) - 1

    def write(self, path: Path) -> None:
        """All columns as JSON; the lateness as quantiles, in ns."""
        late = sorted(self.late_ns)
        picks = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}
        body = {
            "arrived_ns": list(self.arrived_ns), "first_ns": list(self.first_ns),
            "last_ns": list(self.last_ns), "asked": list(self.asked), "events": len(late),
            "blocked": self.blocked,
            "late_ns": {name: late[int((len(late) - 1) * share)] for name, share in picks.items() if late},
        }  # fmt: skip
        part = path.with_suffix(".part")
        part.write_text(json.dumps(body), encoding="utf-8")
        part.replace(path)


class Truth:
    """The clock work: two queues that are sorted by themselves, since delays are constant."""

    def __init__(self, *, ttft_ns: int, gap_ns: int) -> None:
        self.ttft_ns, self.gap_ns = ttft_ns, gap_ns
        self.log = Log()
        self.first: deque[Answering] = deque()
        self.later: deque[Answering] = deque()
        self.loop = asyncio.get_running_loop()
        self.scripts = {
            (c, t): wire.Script(chat=c, token_ids=t) for c in (False, True) for t in (False, True)
        }

    def accept(self, connection: Connection, body: bytes, *, chat: bool, now_ns: int) -> None:
        """Plan the answer to a request that has just been read."""
        found = _MAX_TOKENS.search(body)
        tokens = max(int(found[1]), 1) if found else TOKENS
        row = self.log.open(now_ns, tokens)
        usage = {"prompt_tokens": 16, "completion_tokens": tokens, "total_tokens": 16 + tokens}
        if not _STREAM.search(body):
            wait_s = (self.ttft_ns + (tokens - 1) * self.gap_ns) / 1e9
            self.loop.call_later(wait_s, connection.reply, wire.whole(chat=chat, tokens=tokens, usage=usage))
            return
        script = self.scripts[chat, _TOKEN_IDS.search(body) is not None]
        answering = Answering(connection, script, todo=tokens, row=row, due_ns=now_ns + self.ttft_ns)
        if _USAGE.search(body):
            name, kind = ("chatcmpl", "chat.completion.chunk") if chat else ("cmpl", "text_completion")
            answering.tail = wire.event({**wire.envelope(name, kind, None), "usage": usage})
        connection.send(wire.STREAM_HEAD)
        self.first.append(answering)

    def tick(self) -> None:
        """Write what is due, then let the loop look at its sockets."""
        for queue in (self.first, self.later):
            for _ in range(BATCH):
                if not queue or queue[0].due_ns > perf_counter_ns():
                    break
                self._emit(queue.popleft())
        self.loop.call_soon(self.tick)

    def _emit(self, answering: Answering) -> None:
        connection, script, log = answering.connection, answering.script, self.log
        if connection.gone:
            return
        first = log.first_ns[answering.row] == 0
        if first and script.opening:
            connection.send(script.opening)
        connection.send(script.token if answering.todo > 1 else script.last)
        now_ns = perf_counter_ns()
        log.late_ns.append(now_ns - answering.due_ns)
        if first:
            log.first_ns[answering.row] = now_ns
        answering.todo -= 1
        if answering.todo:
            answering.due_ns += self.gap_ns
            self.later.append(answering)
            return
        log.last_ns[answering.row] = now_ns
        if answering.tail:
            connection.send(answering.tail)
        connection.send(script.closing)


class Connection(asyncio.Protocol):
    """HTTP/1.1 as far as clients of this server speak it: whole requests, one at a time, kept alive."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self.gone = False
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep a descriptor of our own: the loop's may be closed and reused while a stream is planned."""
        self.transport = cast("asyncio.Transport", transport)
        self.fd = os.dup(transport.get_extra_info("socket").fileno())

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  the protocol's signature
        """Drop what was still planned for this connection."""
        self.gone = True
        os.close(self.fd)

    def data_received(self, data: bytes) -> None:
        """Stamp before anything else; a request counts as read with its last byte."""
        now_ns = perf_counter_ns()
        self.buffer = self.buffer + data if self.buffer else data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            found = _LENGTH.search(self.buffer, 0, end)
            whole = end + 4 + (int(found[1]) if found else 0)
            if len(self.buffer) < whole:
                return
            request, self.buffer = self.buffer[:whole], self.buffer[whole:]
            self._route(request, end, now_ns)

    def _route(self, request: bytes, end: int, now_ns: int) -> None:
        path = request[: request.find(b" HTTP/1.1")]
        if path == b"POST /v1/completions":
            self.truth.accept(self, request[end:], chat=False, now_ns=now_ns)
        elif path == b"POST /v1/chat/completions":
            self.truth.accept(self, request[end:], chat=True, now_ns=now_ns)
        elif path == b"GET /health":
            self.reply(wire.answer({}))
        elif path == b"GET /v1/models":
            self.reply(wire.models())
        else:
            self.reply(wire.answer({"error": {"message": "no such path"}}, "404 Not Found"))

    def reply(self, data: bytes) -> None:
        """Write at the loop's leisure: not part of what is timed."""
        if not self.gone:
            self.transport.write(data)

    def send(self, data: bytes) -> None:
        """Write now; a full socket (the client has stopped reading) falls back to the loop's buffer."""
        if self.gone:
            return
        try:
            sent = 0 if self.transport.get_write_buffer_size() else os.write(self.fd, data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.gone = True
            self.transport.abort()
            return
        if sent < len(data):
            self.truth.log.blocked += 1
            self.transport.write(data[sent:])


async def _serve(args: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    truth = Truth(ttft_ns=int(args.ttft_ms * 1e6), gap_ns=int(args.gap_ms * 1e6))
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    listener = socket.create_server(("127.0.0.1", args.port), backlog=4096)
    server = await loop.create_server(lambda: Connection(truth), sock=listener)
    gc.collect()
    gc.freeze()
    gc.disable()
    truth.tick()
    print(f"known-truth on port {args.port}", flush=True)
    await stopped.wait()
    server.close()
    truth.log.write(args.log)


def main() -> None:
    """Serve until SIGTERM, then write the log."""
    parser = argparse.ArgumentParser(description="A server of known timing.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--core", type=int, help="run on this core only")
    parser.add_argument("--ttft-ms", type=float, default=50.0)
    parser.add_argument("--gap-ms", type=float, default=10.0)
    args = parser.parse_args()
    if args.core is not None:
        os.sched_setaffinity(0, {args.core})
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(args))


if __name__ == "__main__":
    main()
