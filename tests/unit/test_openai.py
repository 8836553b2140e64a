"""The wire: the body of a request, and what a stream of events says."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.openai import Answer, completion_body, read_stream


def event(*ids: int, finish: str | None = None) -> bytes:
    """An event as vLLM sends it with `return_token_ids`."""
    choice = {"index": 0, "text": "x" * len(ids), "token_ids": list(ids), "finish_reason": finish}
    return b"data: " + json.dumps({"id": "cmpl-1", "choices": [choice]}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
WHOLE = [event(11), event(12, 13), event(14, finish="length"), DONE]


def stream(*events: bytes) -> list[tuple[int, bytes]]:
    """Each event in a chunk of its own, at 1, 2, 3 … ns."""
    return list(enumerate(events, 1))


def test_a_request_asks_for_an_exact_number_of_tokens() -> None:
    body = completion_body(model="autotune", prompt=[5, 6, 7], output_tokens=9, cache_salt="climb-0")
    assert json.loads(body) == {
        "model": "autotune",
        "prompt": [5, 6, 7],
        "max_tokens": 9,
        "min_tokens": 9,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "return_token_ids": True,
        "cache_salt": "climb-0",
    }


# -- what is read ---------------------------------------------------------------------------------


def test_each_token_is_stamped_with_the_chunk_that_brought_it() -> None:
    assert read_stream(stream(*WHOLE), 4) == Answer(token_ns=(1, 2, 2, 3), error=None)


def test_an_event_is_stamped_when_it_is_complete() -> None:
    whole = event(11, finish="length")
    assert read_stream([(1, whole[:20]), (5, whole[20:-1]), (9, whole[-1:])], 1).token_ns == (9,)


def test_an_engine_without_token_ids_sends_one_token_an_event() -> None:
    def plain(text: str, finish: str | None = None) -> bytes:
        choice = {"text": text, "finish_reason": finish}
        return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"

    answer = read_stream(stream(plain("a"), plain(""), plain(" b", "stop")), 2)
    assert answer == Answer(token_ns=(1, 3), error=None)


def test_a_token_without_text_counts_by_its_id() -> None:
    quiet = b'data: {"choices": [{"text": "", "token_ids": [7], "finish_reason": "length"}]}\n\n'
    assert read_stream([(4, quiet)], 1) == Answer(token_ns=(4,), error=None)


def test_a_finish_reason_may_come_in_an_event_without_tokens() -> None:
    assert read_stream(stream(event(1), event(finish="length")), 1) == Answer(token_ns=(1,), error=None)


def test_comments_and_usage_are_passed_over() -> None:
    usage = b'data: {"choices": [], "usage": {"completion_tokens": 1}}\n\n'
    assert read_stream(stream(b": ping\n\n", event(1, finish="length"), usage, DONE), 1) == Answer(
        token_ns=(2,), error=None
    )


def test_lines_may_end_with_carriage_returns() -> None:
    crlf = [one.replace(b"\n", b"\r\n") for one in WHOLE]
    assert read_stream(stream(*crlf), 4) == read_stream(stream(*WHOLE), 4)


# -- what is not a whole answer -------------------------------------------------------------------


@pytest.mark.parametrize("events", [[], [event(1)], [event(1), DONE], [event(1, finish="length")[:-1]]])
def test_without_a_finish_reason_nothing_is_complete(events: list[bytes]) -> None:
    assert read_stream(stream(*events), 1).error == "stream ended without a finish reason"


def test_done_after_an_error_is_no_success() -> None:
    """vLLM ends a stream so when its engine dies: an error object, `[DONE]`, and HTTP 200."""
    fatal = b'data: {"error": {"message": "EngineCore encountered an issue", "code": 500}}\n\n'
    answer = read_stream(stream(event(1), event(2), fatal, DONE), 9)
    assert answer.token_ns == (1, 2)
    assert answer.error is not None
    assert answer.error.startswith("engine error in stream: ")
    assert "EngineCore encountered an issue" in answer.error


def test_an_error_after_a_finish_reason_still_counts() -> None:
    fatal = b'data: {"error": {"message": "late"}}\n\n'
    assert read_stream(stream(event(1, finish="length"), fatal), 1).error is not None


def test_a_null_error_is_none() -> None:
    fine = b'data: {"error": null, "choices": [{"token_ids": [1], "finish_reason": "length"}]}\n\n'
    assert read_stream([(1, fine)], 1).error is None


def test_an_answer_of_another_length_is_no_answer() -> None:
    assert read_stream(stream(*WHOLE), 5).error == "short output: 4 of 5 tokens"


@pytest.mark.parametrize("payload", [b"{", b"[]", b"5", b'{"choices": [{"text": "\xff"}]}', b'"text"'])
def test_an_event_that_cannot_be_read_is_an_error_and_not_an_exception(payload: bytes) -> None:
    answer = read_stream(stream(b"data: " + payload + b"\n\n", event(1, finish="length")), 1)
    assert answer.token_ns == (2,)
    assert answer.error is not None
    assert answer.error.startswith("unreadable event: ")


@given(st.lists(st.binary(max_size=40), max_size=6), st.integers(0, 3))
def test_no_bytes_make_it_raise(chunks: list[bytes], tokens: int) -> None:
    answer = read_stream(stream(*(b"data: " + chunk + b"\n\n" for chunk in chunks), *chunks), tokens)
    assert answer.error is not None


# -- where the network cuts -----------------------------------------------------------------------


def chunked(data: bytes, cuts: list[int]) -> list[tuple[int, bytes]]:
    """`data` cut at these places, each chunk stamped with the place where it ends."""
    places = sorted({cut % len(data) for cut in cuts} | {0, len(data)})
    return [(end, data[begin:end]) for begin, end in pairwise(places)]


@given(
    cuts=st.lists(st.integers(0, 10_000), max_size=30),
    newline=st.sampled_from([b"\n", b"\r\n"]),
    error=st.booleans(),
)
def test_an_answer_does_not_depend_on_where_its_bytes_are_cut(
    cuts: list[int], newline: bytes, error: bool
) -> None:
    events = [*WHOLE[:2], b'data: {"error": {"code": 500}}\n\n', *WHOLE[2:]] if error else WHOLE
    sent = [one.replace(b"\n", newline) for one in events]
    data = b"".join(sent)
    chunks = chunked(data, cuts)
    whole, cut = read_stream([(0, data)], 4), read_stream(chunks, 4)
    assert cut.error == whole.error
    # each token carries the end of the first chunk that holds the whole of its event
    ends = [sum(map(len, sent[: index + 1])) for index in range(len(sent))]
    tokens = [ends[0], ends[1], ends[1], ends[3 if error else 2]]
    assert cut.token_ns == tuple(min(at for at, _ in chunks if at >= end) for end in tokens)
