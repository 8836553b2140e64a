"""Where an answer begins and ends on the wire, however its bytes are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.replay.flight import Flight
from autotune.replay.framing import Dechunker, Head, NotHttp, read_head

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def chunk(payload: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(payload), payload)


# -- heads ----------------------------------------------------------------------------------------


def test_a_head_says_how_the_body_ends() -> None:
    assert read_head(CHUNKED + b"rest") == Head(
        size=len(CHUNKED), status=200, chunked=True, length=None, reusable=True
    )
    sized = b"HTTP/1.1 503 Service Unavailable\r\ncontent-LENGTH:  12 \r\nconnection: close\r\n\r\n"
    assert read_head(sized) == Head(size=len(sized), status=503, chunked=False, length=12, reusable=False)
    old = b"HTTP/1.0 200 OK\r\n\r\n"
    assert read_head(old) == Head(size=len(old), status=200, chunked=False, length=None, reusable=False)


def test_a_chunked_body_has_no_other_length() -> None:
    """RFC 9112, section 6.3: the transfer coding overrides a content length."""
    both = read_head(OK + b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n")
    assert both is not None
    assert (both.chunked, both.length) == (True, None)


def test_an_answer_that_may_not_have_a_body_has_none() -> None:
    head = read_head(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert head is not None
    assert head.length == 0


def test_an_incomplete_head_is_none_yet() -> None:
    assert read_head(b"") is None
    assert read_head(CHUNKED[:-1]) is None


def test_informational_heads_are_passed_over() -> None:
    before = b"HTTP/1.1 100 Continue\r\n\r\n"
    assert read_head(before) is None
    head = read_head(before + CHUNKED)
    assert head is not None
    assert (head.status, head.size) == (200, len(before + CHUNKED))


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        OK + b"content-length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000,
    ],
)
def test_what_is_not_http_is_refused(data: bytes) -> None:
    with pytest.raises(NotHttp):
        read_head(data)


# -- chunks ---------------------------------------------------------------------------------------


def test_a_trailer_and_an_extension_belong_to_the_coding() -> None:
    dechunker = Dechunker()
    assert dechunker.feed(b"3;name=value\r\nabc\r\n0\r\nExpires: never\r\n") == b"abc"
    open_yet = not dechunker.ended
    dechunker.feed(b"\r\nGET")
    assert (open_yet, dechunker.ended, dechunker.excess) == (True, True, 3)


@pytest.mark.parametrize("data", [b"\r\n", b"g\r\n", b"-1\r\n", b"1" * 70_000])
def test_a_chunk_without_a_size_is_refused(data: bytes) -> None:
    with pytest.raises(NotHttp):
        Dechunker().feed(data)


PAYLOADS = st.lists(
    st.one_of(
        st.binary(min_size=1, max_size=40),
        st.sampled_from([b"0\r\n\r\n", b"\r\n0\r\n\r\n", b"\r\n", b"\n\n", b"data: {}\n\n", b"5\r\nabc"]),
    ),
    max_size=8,
)


@given(payloads=PAYLOADS, cuts=st.lists(st.integers(0, 400), max_size=20))
def test_the_end_is_found_whatever_the_payload_holds_and_wherever_it_is_cut(
    payloads: list[bytes], cuts: list[int]
) -> None:
    coded = b"".join(map(chunk, payloads)) + b"0\r\n\r\n"
    data = CHUNKED + coded
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    pieces = [data[begin:end] for begin, end in pairwise(places)]
    flight = Flight(0, 0, b"")
    looked: list[bool] = []
    for at_ns, piece in enumerate(pieces, 1):
        flight.stamps.append(at_ns)
        flight.parts.append(piece)
        opened = flight.head is not None or flight.open()
        # what a connection looks at: nothing that ends otherwise can be the end
        may_end = piece.endswith(b"\r\n\r\n") or len(piece) < 5 or looked == []
        if opened and may_end:
            looked.append(flight.whole())
    assert looked[-1:] == [True]
    assert not any(looked[:-1])
    assert b"".join(part for _, part in flight.body()) == b"".join(payloads)
    assert flight.excess == 0


def test_each_piece_of_a_body_keeps_the_stamp_of_its_read() -> None:
    flight = Flight(0, 0, b"")
    assert flight.seen() is None
    reads = [CHUNKED[:30], CHUNKED[30:] + chunk(b"one")[:4], chunk(b"one")[4:] + chunk(b"two"), b"0\r\n\r\n"]
    for at_ns, read in enumerate(reads, 1):
        flight.stamps.append(at_ns)
        flight.parts.append(read)
        if flight.head is None:
            flight.open()
    assert flight.body() == [(2, b"o"), (3, b"netwo")]
    assert flight.seen() == (2, 4)


def test_a_body_that_has_not_been_looked_at_is_seen_all_the_same() -> None:
    flight = Flight(0, 0, b"")
    for at_ns, read in ((5, CHUNKED), (9, chunk(b"one")), (11, chunk(b"two"))):
        flight.stamps.append(at_ns)
        flight.parts.append(read)
        if flight.head is None:
            assert flight.open()
            assert flight.seen() is None
    assert flight.seen() == (9, 11)


def test_a_broken_coding_is_an_error_of_the_flight() -> None:
    flight = Flight(0, 0, b"")
    flight.stamps, flight.parts = [1], [CHUNKED + chunk(b"one")]
    assert flight.open()
    flight.stamps.append(2)
    flight.parts.append(b"what\r\n")
    assert flight.body() == [(1, b"one")]
    assert flight.error == "not HTTP: chunk size 'what' is no number"
