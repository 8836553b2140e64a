"""The recorder between real sockets: bytes and breaks pass as they are, and the file says what came."""

from __future__ import annotations

import gzip
import json
import signal
import socket
import ssl
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trustme
from recording import (
    STREAM_END,
    STREAM_HEAD,
    Answer,
    Running,
    Upstream,
    answer,
    chat,
    delta,
    event,
    framed,
    read_message,
    recording,
    request,
    until,
)

from autotune.errors import InputError, SetupError
from autotune.record import Job, Listen, Recorder
from autotune.record import Upstream as Place

Pair = Callable[..., tuple[Upstream, Running]]
STREAM = STREAM_HEAD + delta("Hel") + delta("lo", "stop") + STREAM_END


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """An upstream and a recorder in front of it."""
    with ExitStack() as cleanup:

        def start(say: bytes | Answer, **changes: Any) -> tuple[Upstream, Running]:
            script = say if callable(say) else (lambda wire, _: wire.sendall(say))
            upstream = Upstream(script)
            cleanup.callback(upstream.close)
            running = cleanup.enter_context(recording(upstream.port, tmp_path / "out.jsonl", **changes))
            return upstream, running

        yield start


CHUNKED = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: tests\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"".join(b"%x;ext=1\r\n%b\r\n" % (1, bytes([byte])) for byte in chat("Hello"))
    + b"0\r\n\r\n"
)
EXCHANGES = {
    "a chat": (request(), answer()),
    "a stream": (request(body=chat("Hello", stream=True)), STREAM),
    "a request in chunks": (CHUNKED, answer()),
    "a packed answer": (
        request(),
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n" + framed(gzip.compress(b'{"choices": []}')),
    ),
    "bytes that are no text": (
        request("/v1/files?x=1", bytes(range(256)) * 9),
        b"HTTP/1.1 201 \r\n" + framed(b"\xff\0"),
    ),
    "no body": (
        b"GET /v1/models HTTP/1.1\r\nHost: tests\r\n\r\n",
        b"HTTP/1.1 404 Not Found\r\n" + framed(b"{}"),
    ),
    "a refusal": (request(), b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\n" + framed(b"slow down")),
}


@pytest.mark.parametrize("name", EXCHANGES)
def test_bytes_pass_unchanged_but_for_the_host(pair: Pair, name: str) -> None:
    sent, said = EXCHANGES[name]
    upstream, running = pair(said)
    assert running.ask(sent) == said
    head, _, body = sent.partition(b"\r\n\r\n")
    got_head, _, got_body = upstream.requests[0].partition(b"\r\n\r\n")
    assert got_body == body
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"host:")]
    assert got_head.split(b"\r\n") == [lines[0], b"Host: 127.0.0.1:%d" % upstream.port, *lines[1:]]


def test_an_answer_without_a_length_ends_with_its_connection(pair: Pair) -> None:
    said = b"HTTP/1.0 200 OK\r\n\r\n" + answer().partition(b"\r\n\r\n")[2]

    def say(wire: socket.socket, _: bytes) -> None:
        wire.sendall(said)
        wire.shutdown(socket.SHUT_RDWR)

    _, running = pair(say)
    with running.connect() as wire:
        wire.sendall(request())
        got = b""
        while data := wire.recv(65536):
            got += data
    assert got == said
    (row,) = running.written(1)
    assert (row["prompt_tokens"], row["output_tokens"], row.get("failed")) == (40, 5, None)


def test_a_connection_serves_one_request_after_another(pair: Pair) -> None:
    upstream, running = pair(answer())
    with running.connect() as wire:
        for number in range(3):
            wire.sendall(request(body=chat(f"Hello {number}")))
            assert read_message(wire) == answer()
    assert len(upstream.requests) == 3
    offsets = [row["offset_s"] for row in running.written(3)]
    assert offsets == sorted(offsets)


def test_requests_sent_ahead_wait_for_their_turn(pair: Pair) -> None:
    turn = threading.Event()

    def say(wire: socket.socket, _: bytes) -> None:
        assert turn.wait(20)
        wire.sendall(answer())

    upstream, running = pair(say)
    with running.connect() as wire:
        wire.sendall(request() + request() + request())
        until(lambda: upstream.requests)
        turn.set()
        got = b""
        while len(got) < 3 * len(answer()):
            got += wire.recv(65536)
    assert got == answer() * 3
    assert [one.count(b"POST") for one in upstream.requests] == [1, 1, 1]


def test_a_body_that_waits_for_100_continue_is_asked_for_by_the_upstream(pair: Pair) -> None:
    def say(wire: socket.socket, _: bytes) -> None:
        wire.sendall(answer())

    _, running = pair(say)
    head, _, body = request("/v1/chat/completions", None, "Expect: 100-continue").partition(b"\r\n\r\n")
    with running.connect() as wire:
        wire.sendall(head + b"\r\n\r\n")
        wire.sendall(body)
        assert read_message(wire) == answer()


def test_an_upgraded_connection_passes_both_ways(pair: Pair) -> None:
    def say(wire: socket.socket, _: bytes) -> None:
        wire.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\nwelcome")
        wire.sendall(wire.recv(100).upper())

    _, running = pair(say)
    with running.connect() as wire:
        wire.sendall(b"GET /v1/realtime HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n")
        got = b""
        while not got.endswith(b"welcome"):
            got += wire.recv(1000)
        wire.sendall(b"frame")
        assert wire.recv(1000) == b"FRAME"


@pytest.mark.parametrize("reset", [False, True])
def test_an_upstream_that_dies_in_a_stream_breaks_the_answer_the_same_way(pair: Pair, reset: bool) -> None:
    def say(wire: socket.socket, _: bytes) -> None:
        wire.sendall(STREAM_HEAD + delta("Hel"))
        begun.wait(20)
        if reset:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            wire.close()
        else:
            wire.shutdown(socket.SHUT_RDWR)

    begun = threading.Event()
    _, running = pair(say)
    with running.connect() as wire:
        wire.sendall(request(body=chat("Hello", stream=True)))
        got = b""
        while len(got) < len(STREAM_HEAD + delta("Hel")):
            got += wire.recv(65536)
        begun.set()
        if reset:
            with pytest.raises(ConnectionResetError):
                wire.recv(65536)
        else:
            assert wire.recv(65536) == b""
    assert got == STREAM_HEAD + delta("Hel")
    (row,) = running.written(1)
    assert (row["failed"], row["output_tokens"], row["counted"]) == ("connection lost", 1, False)


def test_without_an_upstream_a_request_gets_502_until_there_is_one(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    with recording(port, tmp_path / "out.jsonl") as running:
        assert running.listening is not None
        assert running.listening.reachable is False
        said = running.ask(request())
        assert said.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
        assert json.loads(said.partition(b"\r\n\r\n")[2])["error"]["code"] == 502
        upstream = Upstream(lambda wire, _: wire.sendall(answer()), port)
        try:
            assert running.ask(request()) == answer()
        finally:
            upstream.close()
        assert [row.get("failed") for row in running.written(2)] == ["HTTP 502", None]


def test_a_client_that_leaves_takes_its_request_along(pair: Pair) -> None:
    upstream, running = pair(STREAM_HEAD + delta("Hel"))
    with running.connect() as wire:
        wire.sendall(request(body=chat("Hello", stream=True)))
        assert wire.recv(10)
        assert not upstream.gone.is_set()
    assert upstream.gone.wait(20)
    (row,) = running.written(1)
    assert row["failed"] == "client left"


def test_a_client_that_reads_slowly_gets_everything(pair: Pair) -> None:
    said = b"HTTP/1.1 200 OK\r\n" + framed(b"x" * 20_000_000)
    _, running = pair(said, queue_bytes=1_000_000)
    with running.connect() as wire:
        wire.sendall(request())
        got = bytearray()
        while len(got) < len(said):
            got += wire.recv(20_000)
    assert got == said
    assert running.stop().dropped == 1  # larger than what may be copied


def test_a_writer_that_hangs_delays_nothing_and_what_it_misses_is_counted(pair: Pair) -> None:
    _, running = pair(answer(), queue_bytes=1_000_000)
    writer = running.writer()
    writer.send_signal(signal.SIGSTOP)
    try:
        body = chat("word " * 20_000)  # 100 kB
        for _ in range(40):
            assert running.ask(request(body=body)) == answer()
        until(lambda: running.stands[-1].dropped >= 20)
    finally:
        writer.send_signal(signal.SIGCONT)
    last = running.stop()
    assert last.standing.recorded + last.dropped == 40
    assert last.standing.recorded >= 9  # what found room
    assert len(running.rows()) == last.standing.recorded


def test_a_writer_that_dies_is_told_and_delays_nothing(pair: Pair) -> None:
    _, running = pair(answer())
    running.ask(request())
    until(lambda: running.stands[-1].standing.recorded == 1)
    running.writer().kill()
    until(lambda: not running.stands[-1].writing)
    assert running.ask(request()) == answer()
    assert running.stop().dropped == 1


def test_the_file_is_private(pair: Pair) -> None:
    secret = "geheimwort"
    tools = [{"type": "function", "function": {"name": secret, "parameters": {}}}]
    body = chat(
        f"my {secret}",
        user=secret,
        metadata={"k": secret},
        tools=tools,
        stop=[secret],
        seed=7,
        max_tokens=secret,
    )
    said = answer(f"your {secret}")
    _, running = pair(said)
    assert (
        running.ask(request("/v1/chat/completions?key=" + secret, body, f"Authorization: Bearer {secret}"))
        == said
    )
    (row,) = running.written(1)
    raw = running.job.out.read_bytes()
    assert secret.encode() not in raw
    assert stat.S_IMODE(running.job.out.stat().st_mode) == 0o600
    assert row["params"] == {"stop": 1, "tools": 1, "seed": True}
    assert row["path"] == "/v1/chat/completions"
    assert json.loads(raw.splitlines()[0])["text"] is False


def test_bodies_are_kept_when_asked_for(pair: Pair) -> None:
    _, running = pair(answer(), keep_text=True)
    body = b'{"model": "m",\r\n "messages": [{"role": "user", "content": "a\\nb"}]}'
    running.ask(request(body=body))
    (row,) = running.written(1)
    assert row["body"] == json.loads(body)
    assert json.loads(running.job.out.read_bytes().splitlines()[0])["text"] is True
    assert stat.S_IMODE(running.job.out.stat().st_mode) == 0o600


def test_turns_of_a_chat_are_one_session(pair: Pair) -> None:
    said = iter([answer("One", 20, 2), answer("Two", 40, 3), answer("Other", 20, 4)])
    _, running = pair(lambda wire, _: wire.sendall(next(said)))
    running.ask(request(body=chat("Hello there, how are you today?")))
    running.written(1)
    running.ask(request(body=chat("Hello there, how are you today?", "One", "And now?")))
    running.ask(request(body=chat("Something else")))
    first, second, third = running.written(3)
    assert first["session"] == second["session"] != third["session"]
    assert "think_s" not in first
    assert 0 < second["think_s"] < second["offset_s"] - first["offset_s"]
    assert second["blocks"][:1] == first["blocks"]
    assert (len(first["blocks"]), len(second["blocks"])) == (1, 2)  # 20 // 16 and 40 // 16
    assert third["blocks"] != first["blocks"]


def test_counts_are_asked_for_when_wanted(pair: Pair) -> None:
    usage = event(choices=[], usage={"prompt_tokens": 33, "completion_tokens": 2})
    upstream, running = pair(
        STREAM_HEAD + delta("Hel") + delta("lo", "stop") + usage + STREAM_END, ask_usage=True
    )
    running.ask(request(body=chat("Hello", stream=True, stream_options={"x": 1})))
    running.ask(request(body=chat("Hello")))
    changed, plain = [json.loads(one.partition(b"\r\n\r\n")[2]) for one in upstream.requests]
    assert changed["stream_options"] == {"x": 1, "include_usage": True}
    assert plain == json.loads(chat("Hello"))
    row, _ = running.written(2)
    assert (row["prompt_tokens"], row["output_tokens"], row.get("counted", True)) == (33, 2, True)


def test_streams_without_counts_are_estimated_and_say_so(pair: Pair) -> None:
    _, running = pair(STREAM)
    running.ask(request(body=chat("Hello", stream=True)))
    (row,) = running.written(1)
    assert (row["output_tokens"], row["counted"]) == (2, False)
    assert running.stop().standing.estimated == 1


def test_parts_begin_with_the_header_and_lose_nothing(pair: Pair) -> None:
    _, running = pair(answer(), rotate_bytes=700)
    for number in range(12):
        running.ask(request(body=chat(f"Hello {number}")))
    last = running.stop()
    parts = sorted(running.job.out.parent.glob("out.jsonl*"))
    assert len(parts) == last.standing.files >= 3
    headers = {part.read_bytes().splitlines()[0] for part in parts}
    assert len(headers) == 1
    assert b"autotune_workload" in headers.pop()
    assert sum(len(part.read_bytes().splitlines()) - 1 for part in parts) == last.standing.recorded == 12
    for part in parts:
        assert part.stat().st_size <= 700
        assert stat.S_IMODE(part.stat().st_mode) == 0o600


REFUSED = {
    "no HTTP": (b"hello\r\n\r\n", 400),
    "two lengths": (b"POST /x HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    "another proxy's": (b"GET http://elsewhere/ HTTP/1.1\r\n\r\n", 400),
    "a chunk without size": (b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    "an endless head": (b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000, 431),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_clear_is_refused(pair: Pair, name: str) -> None:
    sent, status = REFUSED[name]
    _, running = pair(answer())
    with running.connect() as wire:
        wire.sendall(sent)
        assert read_message(wire).startswith(b"HTTP/1.1 %d " % status)
    assert running.ask(request()) == answer()


def test_stopping_lets_answers_end_and_takes_no_more(pair: Pair) -> None:
    end = threading.Event()

    def say(wire: socket.socket, _: bytes) -> None:
        wire.sendall(STREAM_HEAD + delta("Hel"))
        assert end.wait(20)
        wire.sendall(delta("lo", "stop") + STREAM_END)

    _, running = pair(say)
    with running.connect() as busy, running.connect() as idle:
        busy.sendall(request(body=chat("Hello", stream=True)))
        assert busy.recv(10) == STREAM[:10]
        running.recorder.stop()
        assert idle.recv(10) == b""
        with pytest.raises(ConnectionRefusedError):
            running.connect()
        end.set()
        assert STREAM[:10] + read_message(busy, b"")[-30:] == STREAM[:10] + STREAM[-30:]
        assert busy.recv(10) == b""
    assert running.join().standing.recorded == 1


def test_a_second_stop_ends_what_is_under_way(pair: Pair) -> None:
    upstream, running = pair(STREAM_HEAD, grace_s=1000.0)
    with running.connect() as wire:
        wire.sendall(request())
        until(lambda: upstream.requests)
        running.recorder.stop()
        running.recorder.stop()
        assert running.join().standing.failed == 1


def test_a_server_with_tls_is_reached_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, certificate = trustme.CA(), tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(certificate))
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    heads: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        for _ in range(2):  # the recorder looks whether somebody is there, then comes with a request
            plain, _ = listener.accept()
            try:
                with context.wrap_socket(plain, server_side=True) as wire:
                    heads.append(read_message(wire))
                    wire.sendall(answer())
            except OSError:
                continue

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        place = Place.parse(f"https://localhost:{port}/openai/v1")
        with recording(port, tmp_path / "out.jsonl", upstream=place) as running:
            assert running.ask(request()) == answer()
            assert running.written(1)[0]["output_tokens"] == 5
        thread.join(20)
    assert heads[0].startswith(b"POST /openai/v1/chat/completions HTTP/1.1\r\nHost: localhost:%d\r\n" % port)


def job(out: Path, **changes: Any) -> Job:
    given: dict[str, Any] = {
        "upstream": Place.parse("http://127.0.0.1:9"),
        "listen": Listen.parse("127.0.0.1:0"),
        "out": out,
    }
    return Job(**(given | changes))


def test_a_file_that_exists_is_not_written_over(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("precious")
    with pytest.raises(InputError, match="exists already"):
        list(Recorder(job(out)).events())
    assert out.read_text() == "precious"


def test_a_taken_port_is_said_before_a_file_is_made(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = Listen.parse(f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(SetupError, match="Address already in use"):
            list(Recorder(job(tmp_path / "out.jsonl", listen=listen)).events())
    assert list(tmp_path.iterdir()) == []


def test_a_recorder_is_not_its_own_upstream(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = job(
        tmp_path / "out.jsonl",
        upstream=Place.parse(f"http://localhost:{port}"),
        listen=Listen.parse(f"127.0.0.1:{port}"),
    )
    with pytest.raises(InputError, match="where the recorder itself would listen"):
        list(Recorder(own).events())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="No such file or directory"):
        list(Recorder(job(tmp_path / "none" / "out.jsonl")).events())


def test_a_writer_ends_with_its_relay(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "autotune.record.writer", str(theirs.fileno())], pass_fds=[theirs.fileno()]
        )
    assert process.wait(20) == 0
