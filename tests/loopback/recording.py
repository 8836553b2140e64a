"""For tests of the recorder: an upstream that answers with given bytes, and a recorder under way."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from autotune.record import Job, Listen, Listening, Recorder, Stand
from autotune.record import Upstream as Place

DEADLINE_S = 20.0
Answer = Callable[[socket.socket, bytes], None]


def until(condition: Callable[[], object], within_s: float = DEADLINE_S) -> None:
    deadline, tick = time.monotonic() + within_s, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        tick.wait(0.01)


def read_message(wire: socket.socket, data: bytes = b"") -> bytes:
    """One HTTP message, head and framed body, as raw bytes; what came when the peer closed before its end."""
    while True:
        head, found, body = data.partition(b"\r\n\r\n")
        lower = head.lower()
        if found and b"transfer-encoding: chunked" in lower:
            whole = body.endswith(b"0\r\n\r\n")
        elif found and b"content-length: " in lower:
            whole = len(body) >= int(lower.partition(b"content-length: ")[2].split(b"\r\n")[0])
        else:
            whole = bool(found) and not lower.startswith(b"http/1.1 200")
        if whole:
            return data
        more = wire.recv(65536)
        if not more:
            return data
        data += more


class Upstream:
    """Reads requests and has each answered by a function; `gone` is set when a client hangs up on it."""

    def __init__(self, answer: Answer, port: int = 0) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self.requests: list[bytes] = []
        self.gone = threading.Event()
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                wire, _ = self._listener.accept()
                self._open.append(wire)
                self._threads.append(threading.Thread(target=self._serve, args=(wire,)))
                self._threads[-1].start()

    def _serve(self, wire: socket.socket) -> None:
        asked = False
        with wire, suppress(OSError):
            while request := read_message(wire):
                asked = True
                self.requests.append(request)
                self._answer(wire, request)
        if asked:
            self.gone.set()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for wire in self._open:
            with suppress(OSError):
                wire.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(DEADLINE_S)


class Running:
    """A recorder in a thread; `stands` are what it told."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.recorder = Recorder(job)
        self.stands: list[Stand] = []
        self.listening: Listening | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()
        until(lambda: self.listening or not self._thread.is_alive())

    def _listen(self) -> None:
        for event in self.recorder.events():
            if isinstance(event, Listening):
                self.listening = event
            else:
                self.stands.append(event)

    @property
    def address(self) -> tuple[str, int]:
        assert self.listening is not None
        host, _, port = self.listening.address.removeprefix("http://").rpartition(":")
        return host, int(port)

    def connect(self) -> closing[socket.socket]:
        wire = socket.create_connection(self.address, timeout=DEADLINE_S)
        return closing(wire)

    def ask(self, request: bytes) -> bytes:
        """What comes back for one request on a connection of its own."""
        with self.connect() as wire:
            wire.sendall(request)
            return read_message(wire)

    def stop(self) -> Stand:
        """End it; the last word."""
        self.recorder.stop()
        return self.join()

    def join(self) -> Stand:
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        assert self.stands[-1].ended
        return self.stands[-1]

    def rows(self) -> list[dict[str, Any]]:
        """Rows written so far."""
        return [json.loads(line) for line in self.job.out.read_text().splitlines()[1:]]

    def written(self, count: int) -> list[dict[str, Any]]:
        """The rows once there are that many."""
        until(lambda: len(self.rows()) >= count)
        return self.rows()

    def writer(self) -> psutil.Process:
        """The writing process."""
        out = os.fspath(self.job.out)
        (found,) = [
            child
            for child in psutil.Process().children()
            if "autotune.record.writer" in child.cmdline()
            and out in [file.path for file in child.open_files()]
        ]
        return found


@contextmanager
def recording(port: int, out: Path, **changes: Any) -> Iterator[Running]:
    """A recorder in front of a loopback port."""
    given: dict[str, Any] = {
        "upstream": Place.parse(f"http://127.0.0.1:{port}"),
        "listen": Listen.parse("127.0.0.1:0"),
        "out": out,
    }
    running = Running(Job(**(given | changes)))
    try:
        yield running
    finally:
        running.recorder.stop()
        running.recorder.stop()
        running.join()


def request(path: str = "/v1/chat/completions", body: bytes | None = None, *lines: str) -> bytes:
    """A POST as clients send it."""
    content = chat("Hello") if body is None else body
    head = (f"POST {path} HTTP/1.1", "Host: tests", f"Content-Length: {len(content)}", *lines)
    return "\r\n".join(head).encode() + b"\r\n\r\n" + content


def chat(*texts: str, **fields: object) -> bytes:
    """A chat of a user and an assistant in turn."""
    roles = ("user", "assistant")
    messages = [{"role": roles[place % 2], "content": text} for place, text in enumerate(texts)]
    return json.dumps({"model": "m", "messages": messages, **fields}).encode()


def answer(text: str = "Hi", prompt_tokens: int = 40, output_tokens: int = 5) -> bytes:
    """A whole chat answer."""
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": output_tokens}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    content = json.dumps({"id": "c", "choices": [choice], "usage": usage}).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Kept: yes\r\n" + framed(content)


def framed(content: bytes) -> bytes:
    """The end of a head, and the body."""
    return b"Content-Length: %d\r\n\r\n" % len(content) + content


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(**fields: object) -> bytes:
    """A chunk with one event."""
    data = b"data: " + json.dumps(fields).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


def delta(text: str, finish_reason: str | None = None) -> bytes:
    """An event with some text of a chat."""
    return event(choices=[{"index": 0, "delta": {"content": text}, "finish_reason": finish_reason}])


STREAM_END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
