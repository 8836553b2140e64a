"""The replay's own HTTP client against servers that answer oddly, hang up, or close a kept connection."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import trustme

from autotune.domain.slo import Sla
from autotune.domain.timing import Timing
from autotune.domain.workload import Request
from autotune.replay import Job, Replayed, replay
from autotune.traffic import Due

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def event(finish: str | None = None) -> bytes:
    choice = {"index": 0, "text": "x", "token_ids": [7], "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def chunk(payload: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(payload), payload)


TWO = event() + event("length") + b"data: [DONE]\n\n"
WHOLE = CHUNKED + chunk(event()) + chunk(event("length")) + chunk(b"data: [DONE]\n\n") + END
Serving = Callable[["Visitor"], None]


class Visitor:
    """One connection of a client, with its number; `requests` are the bodies it has sent."""

    def __init__(self, connection: socket.socket, number: int) -> None:
        self.connection, self.number = connection, number
        self.requests: list[dict[str, object]] = []
        self.heads: list[bytes] = []
        self._buffer = b""

    def ask(self) -> bool:
        """Read one request; False when the client has hung up."""
        while b"\r\n\r\n" not in self._buffer:
            if not (data := self.connection.recv(65536)):
                return False
            self._buffer += data
        head, _, rest = self._buffer.partition(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        while len(rest) < size:
            rest += self.connection.recv(65536)
        self._buffer = rest[size:]
        self.heads.append(head)
        self.requests.append(json.loads(rest[:size]))
        return True

    def say(self, *pieces: bytes, pause_s: float = 0.02) -> None:
        """Write the pieces so that each arrives by itself."""
        for number, piece in enumerate(pieces):
            if number:
                threading.Event().wait(pause_s)
            self.connection.sendall(piece)


class Host:
    """A server whose every connection is served by one function in a thread of its own."""

    def __init__(self, serve: Serving, tls: ssl.SSLContext | None) -> None:
        self._serve, self._tls = serve, tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.visitors: list[Visitor] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                thread = threading.Thread(target=self._visit, args=(connection,))
                self._threads.append(thread)
                thread.start()

    def _visit(self, connection: socket.socket) -> None:
        with suppress(OSError):
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            visitor = Visitor(connection, len(self.visitors))
            with connection:
                # the client's look whether anybody is there says nothing and is no visitor
                if visitor.ask():
                    visitor.number = len(self.visitors)
                    self.visitors.append(visitor)
                    self._serve(visitor)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)


@pytest.fixture
def host() -> Iterator[Callable[..., Host]]:
    with ExitStack() as cleanup:

        def start(serve: Serving, tls: ssl.SSLContext | None = None) -> Host:
            started = Host(serve, tls)
            cleanup.callback(started.close)
            return started

        yield start


def job(host: Host, *due_s: float, scheme: str = "http", **changes: object) -> Job:
    """Requests of two tokens at these times."""
    request = Request(offset_s=0.0, prompt_tokens=4, output_tokens=2)
    due = tuple(
        Due(index=index, due_s=at, request=request, measured=True) for index, at in enumerate(due_s or (0.0,))
    )
    fields: dict[str, object] = {
        "url": f"{scheme}://127.0.0.1:{host.port}",
        "key": "secret",
        "model": "m",
        "vocabulary": 100,
        "block_tokens": None,
        "seed": 0,
        "salt": "",
        "cache_salt": "s",
        "due": due,
        "sla": Sla.parse(["ttft_p90=20s"]),
        "allowed": (len(due),),
        "run_to_end": True,
        "drain_s": 5.0,
    }
    return Job(**fields | changes)  # type: ignore[arg-type]


def replayed(work: Job) -> Replayed:
    *_, last = replay(work)
    assert isinstance(last, Replayed)
    return last


def only(work: Job) -> Timing:
    (timing,) = replayed(work).timings
    return timing


def answering(*pieces: bytes, pause_s: float = 0.02) -> Serving:
    def serve(visitor: Visitor) -> None:
        while True:
            visitor.say(*pieces, pause_s=pause_s)
            if not visitor.ask():
                return

    return serve


# -- framing --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pieces",
    [
        [WHOLE],
        [WHOLE[:-5], WHOLE[-5:]],
        [WHOLE[:-4], WHOLE[-4:]],
        [WHOLE[:-1], WHOLE[-1:]],
        [WHOLE[:-5], b"0", b"\r", b"\n", b"\r", b"\n"],
        [WHOLE[:20], WHOLE[20 : len(CHUNKED) + 1], WHOLE[len(CHUNKED) + 1 : -5], END],
        [WHOLE[:-2] + b"Expires: never\r\n", b"\r\n"],
        [b"HTTP/1.1 100 Continue\r\n\r\n", WHOLE],
        [HEAD + b"content-length: %d\r\n\r\n" % len(TWO), TWO[:30], TWO[30:]],
    ],
)
def test_an_answer_is_whole_however_it_is_cut_and_its_connection_is_kept(
    host: Callable[..., Host], pieces: list[bytes]
) -> None:
    there = host(answering(*pieces))
    result = replayed(job(there, 0.0, 0.5))
    assert [(timing.finished, timing.error, len(timing.token_ns)) for timing in result.timings] == [
        (True, None, 2)
    ] * 2
    assert len(there.visitors) == 1
    assert len(there.visitors[0].requests) == 2
    assert result.client.reconnects == 0


def test_payload_that_looks_like_the_end_is_not_the_end(host: Callable[..., Host]) -> None:
    trap = b": 0\r\n\r\n" + event()  # an event stream's comment, cut where its bytes read as the last chunk
    framed = chunk(trap)
    cut = framed.index(b"0\r\n\r\n") + 5
    last = chunk(event("length")) + END
    timing = only(job(host(answering(CHUNKED + framed[:cut], framed[cut:], last))))
    assert (timing.finished, timing.error) == (True, None)
    assert timing.token_ns[1] - timing.token_ns[0] > 10_000_000  # 20 ms apart


def test_an_answer_may_end_with_its_connection(host: Callable[..., Host]) -> None:
    there = host(lambda visitor: visitor.say(HEAD + b"\r\n", TWO))
    result = replayed(job(there, 0.0, 0.3))
    assert [timing.error for timing in result.timings] == [None, None]
    assert len(there.visitors) == 2


def test_a_server_that_wants_to_close_is_not_asked_again_on_the_same_connection(
    host: Callable[..., Host],
) -> None:
    there = host(answering(WHOLE.replace(b"content-type", b"connection: close\r\ncontent-type")))
    assert all(timing.finished for timing in replayed(job(there, 0.0, 0.3)).timings)
    assert len(there.visitors) == 2


def test_the_request_says_what_a_server_needs(host: Callable[..., Host]) -> None:
    there = host(answering(WHOLE))
    work = job(there, url=f"http://localhost:{there.port}/api/v1/")
    assert only(work).finished
    (visitor,) = there.visitors
    first, *lines = visitor.heads[0].decode().split("\r\n")
    assert first == "POST /api/v1/completions HTTP/1.1"
    assert {f"host: localhost:{there.port}", "authorization: Bearer secret"} <= set(lines)
    assert visitor.requests[0]["max_tokens"] == 2
    prompt = visitor.requests[0]["prompt"]
    assert isinstance(prompt, list)
    assert len(prompt) == 4


def test_a_recorded_body_goes_to_its_own_endpoint(host: Callable[..., Host]) -> None:
    there = host(answering(WHOLE))
    body = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "model": "theirs"})
    request = Request(offset_s=0.0, prompt_tokens=4, output_tokens=2, body=body)
    assert only(job(there, due=(Due(index=0, due_s=0.0, request=request, measured=True),))).finished
    (visitor,) = there.visitors
    assert visitor.heads[0].startswith(b"POST /v1/chat/completions ")
    assert visitor.requests[0]["messages"] == [{"role": "user", "content": "Hi"}]
    assert (visitor.requests[0]["model"], visitor.requests[0]["max_tokens"]) == ("m", 2)


# -- what goes wrong ------------------------------------------------------------------------------


def test_a_kept_connection_that_is_just_being_closed_is_not_the_engines_failure(
    host: Callable[..., Host],
) -> None:
    def serve(visitor: Visitor) -> None:
        visitor.say(WHOLE)
        if visitor.number == 0:
            visitor.ask()  # and hang up without a word

    there = host(serve)
    result = replayed(job(there, 0.0, 0.3))
    assert [(timing.finished, timing.error) for timing in result.timings] == [(True, None)] * 2
    assert result.client.reconnects == 1
    assert len(there.visitors) == 2


def test_an_idle_connection_that_the_server_closed_is_replaced_without_a_word(
    host: Callable[..., Host],
) -> None:
    there = host(lambda visitor: visitor.say(WHOLE))  # and hang up
    result = replayed(job(there, 0.0, 0.3))
    assert all(timing.finished for timing in result.timings)
    assert result.client.reconnects == 0


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ([], "connection closed without an answer"),
        ([CHUNKED[:30]], "connection closed in the middle of the answer"),
        ([CHUNKED + chunk(event())], "connection closed in the middle of the answer"),
        ([HEAD + b"content-length: 999\r\n\r\n" + event()], "connection closed in the middle of the answer"),
        ([HEAD + b"\r\n" + event()], "stream ended without a finish reason"),
        ([CHUNKED + chunk(event("length")) + END], "short output: 1 of 2 tokens"),
        ([CHUNKED + chunk(event()), b"what\r\n\r\n"], "not HTTP: chunk size 'what' is no number"),
        ([b"SSH-2.0-OpenSSH_9.6\r\n\r\n"], "not HTTP: 'SSH-2.0-OpenSSH_9.6' is no HTTP status line"),
        (
            [b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy"],
            "HTTP 503: busy",
        ),
        ([b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n"], "HTTP 429: "),
    ],
)
def test_each_way_of_failing_has_its_own_words(
    host: Callable[..., Host], said: list[bytes], error: str
) -> None:
    timing = only(job(host(lambda visitor: visitor.say(*said))))
    assert timing.error == error
    assert not timing.finished
    assert not timing.cancelled


def test_a_server_that_never_answers_times_out_and_one_that_streams_is_cut_off(
    host: Callable[..., Host],
) -> None:
    def serve(visitor: Visitor) -> None:
        if visitor.number == 1:
            visitor.say(CHUNKED, chunk(event()))
        visitor.ask()

    result = replayed(job(host(serve), 0.0, 0.3, drain_s=0.5))
    assert [(timing.error, timing.cancelled) for timing in result.timings] == [
        ("timed out", False),
        ("still running when the window closed", True),
    ]
    assert [len(timing.token_ns) for timing in result.timings] == [0, 1]


# -- https ----------------------------------------------------------------------------------------


def test_https_is_spoken_and_its_certificate_is_checked(
    host: Callable[..., Host], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, certificate = trustme.CA(), tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(certificate))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    there = host(answering(WHOLE), tls)
    refused = only(job(there, scheme="https"))
    assert refused.error is not None
    assert refused.error.startswith("no connection: ")
    assert "certificate" in refused.error
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    result = replayed(job(there, 0.0, 0.3, scheme="https"))
    assert [(timing.finished, timing.error) for timing in result.timings] == [(True, None)] * 2
    assert len(there.visitors) == 1
