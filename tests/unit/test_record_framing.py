"""Where heads and bodies end, and what the upstream gets to see of a head."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InputError
from autotune.record.framing import Chunked, Counted, Head, Malformed, UntilClosed, response_body, unchunked
from autotune.record.heads import Answer, addressed, path_of, read_request
from autotune.record.place import Listen, Upstream
from autotune.record.usage import with_usage

CHUNKS = b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n"


def head(*lines: bytes) -> Head:
    return Head.parse(b"\r\n".join(lines))


def test_a_body_of_known_length_ends_there() -> None:
    body = Counted(5)
    assert body.feed(b"xxabc", 2) == 5
    assert not body.done
    assert body.feed(b"deNEXT", 0) == 2
    assert body.done


@pytest.mark.parametrize("cut", range(len(CHUNKS) + 1))
def test_a_body_in_chunks_ends_behind_its_trailer_however_it_is_cut(cut: int) -> None:
    body = Chunked()
    first, second = CHUNKS[:cut], CHUNKS[cut:] + b"NEXT"
    assert body.feed(first, 0) == cut
    assert body.done == (cut == len(CHUNKS))
    assert body.feed(second, 0) == (0 if cut == len(CHUNKS) else len(second) - 4)
    assert body.done


def test_the_content_of_chunks_is_what_was_put_in() -> None:
    assert unchunked(CHUNKS) == b"abc0123456789"
    assert unchunked(CHUNKS[:12]) == b"abc"  # the second chunk's size has come, and none of it
    assert unchunked(CHUNKS[:17]) == b"abc01"
    assert unchunked(b"no chunks") == b""


@given(st.lists(st.binary(min_size=1, max_size=40)), st.integers(1, 7))
def test_chunks_survive_any_cut(parts: list[bytes], step: int) -> None:
    raw = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    body = Chunked()
    for at in range(0, len(raw), step):
        assert body.feed(raw[at : at + step], 0) == len(raw[at : at + step])
    assert body.done
    assert unchunked(raw) == b"".join(parts)


@pytest.mark.parametrize("size", [b"", b"xyz", b"-1", b"1_0", b"+1", b"0x1"])
def test_a_chunk_needs_a_size(size: bytes) -> None:
    with pytest.raises(Malformed):
        Chunked().feed(size + b"\r\nabc", 0)


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ((b"HTTP/1.1 200 OK", b"Content-Length: 3"), Counted),
        ((b"HTTP/1.1 200 OK", b"transfer-encoding: gzip, chunked"), Chunked),
        ((b"HTTP/1.1 200 OK", b"transfer-encoding: gzip"), UntilClosed),
        ((b"HTTP/1.1 200",), UntilClosed),
        ((b"HTTP/1.1 204 No Content",), Counted),
    ],
)
def test_how_an_answer_ends(lines: tuple[bytes, ...], kind: type) -> None:
    assert isinstance(response_body(head(*lines), b"POST"), kind)
    assert isinstance(response_body(head(*lines), b"HEAD"), Counted)


@pytest.mark.parametrize(
    "raw",
    [
        b"POST /x HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2",
        b"POST /x HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked",
        b"POST /x HTTP/1.1\r\nTransfer-Encoding: gzip, chunked",
        b"POST /x HTTP/1.1\r\nContent-Length: +1",
        b"POST /x HTTP/1.1\r\nA: 1\r\n folded",
        b"POST /x HTTP/1.1\r\nA: 1\nB: 2",
        b"POST /x HTTP/1.1\r\nA : 1",
        b"CONNECT host:443 HTTP/1.1",
        b"PRI * HTTP/2.0",
        b"GET /x",
        b"",
    ],
)
def test_what_two_programs_could_read_differently_is_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        read_request(raw)


def test_the_upstream_sees_its_own_name_and_the_rest_as_it_came() -> None:
    asked, body = read_request(
        b"POST /v1/completions?x=1 HTTP/1.1\r\nHOST: old\r\nConnection: close\r\nProxy-Authorization: x\r\n"
        b"x-Case:  Kept \r\nContent-Length: 9"
    )
    upstream = Upstream.parse("https://api.test/openai/v1/")
    assert addressed(asked, upstream) == (
        b"POST /openai/v1/completions?x=1 HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n"
        b"x-Case:  Kept \r\nContent-Length: 9\r\n\r\n"
    )
    assert addressed(asked, upstream, size=7).endswith(b"x-Case:  Kept \r\nContent-Length: 7\r\n\r\n")
    assert path_of(asked) == "/v1/completions"
    assert isinstance(body, Counted)


@pytest.mark.parametrize("step", [1, 2, 50, 1000])
def test_an_answer_is_followed_past_interim_ones(step: int) -> None:
    raw = b"HTTP/1.1 100 Continue\r\n\r\n"
    raw += b"HTTP/1.1 200 OK\r\nContent-Encoding: GZIP\r\nContent-Length: 4\r\n\r\nbody"
    answer, got = Answer(b"POST"), b""
    for at in range(0, len(raw), step):
        assert not answer.done
        got += answer.feed(raw[at : at + step])
    assert got == b"body"
    assert answer.done
    assert (answer.status, answer.encoding) == (200, "gzip")
    assert (answer.chunked, answer.ends_with_connection) == (False, False)


def test_an_answer_that_cannot_be_followed_lasts_until_the_connection_ends() -> None:
    answer = Answer(b"POST")
    answer.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
    assert not answer.done
    assert answer.ends_with_connection
    other = Answer(b"POST")
    other.feed(b"SSH-2.0-x\r\n\r\n")
    assert not other.done
    assert not other.ends_with_connection


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://127.0.0.1:8000", ("127.0.0.1", 8000, False, "", "127.0.0.1:8000")),
        ("http://localhost/v1", ("localhost", 80, False, "", "localhost")),
        ("https://api.test/openai/v1", ("api.test", 443, True, "/openai", "api.test")),
        ("http://[::1]:8000/", ("::1", 8000, False, "", "[::1]:8000")),
    ],
)
def test_an_upstream_is_a_url(url: str, found: tuple[object, ...]) -> None:
    place = Upstream.parse(url)
    assert (place.host, place.port, place.tls, place.prefix, place.authority) == found


@pytest.mark.parametrize(
    "url",
    [
        *("", "8000", "localhost:8000", "ftp://x", "http://", "http://x:0", "http://x:99999", "http://x:y"),
        *("http://[::1", "http://key@x", "http://x?key=1", "http://x#y", "http://x y", "http://ü"),
        f"http://{'x' * 64}.test",
        "http://x/\r\nHost: y",
    ],
)
def test_what_is_no_upstream_is_said_without_its_secrets(url: str) -> None:
    with pytest.raises(InputError) as error:
        Upstream.parse(url)
    assert "key" not in error.value.message


@pytest.mark.parametrize(
    ("text", "host", "port", "private"),
    [
        ("127.0.0.1:0", "127.0.0.1", 0, True),
        (":8001", "127.0.0.1", 8001, True),
        ("[::1]:1", "::1", 1, True),
        ("localhost:1", "localhost", 1, True),
        ("0.0.0.0:1", "0.0.0.0", 1, False),
        ("box:1", "box", 1, False),
    ],
)
def test_an_address_to_listen_on(text: str, host: str, port: int, private: bool) -> None:
    found = Listen.parse(text)
    assert (found.host, found.port, found.private) == (host, port, private)


@pytest.mark.parametrize("text", ["", "8001", "localhost", "x:y", "x:70000", "::1:1"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(InputError, match="is no address"):
        Listen.parse(text)


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        (b'{"stream": true, "x": 1.50}', b'{"stream":true,"x":1.50,"stream_options":{"include_usage":true}}'),
        (b'{"stream": false}', None),
        (b'{"stream": true, "stream_options": {"include_usage": false}}', None),
        (b'{"stream": true, "input": "x"}', None),
        (b"[1]", None),
        (b"\xff", None),
    ],
)
def test_only_streams_that_do_not_say_are_changed(body: bytes, changed: bytes | None) -> None:
    assert with_usage(body, chunked=False) == (body if changed is None else changed)
    in_chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    assert with_usage(in_chunks, chunked=True) == (body if changed is None else changed)
