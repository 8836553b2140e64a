"""The wire: the body of a request, and what a stream of events says."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InputError
from autotune.openai import Answer, Manner, read_stream, recorded, synthetic


def event(*ids: int, finish: str | None = None) -> bytes:
    """An event as vLLM sends it with `return_token_ids`."""
    choice = {"index": 0, "text": "x" * len(ids), "token_ids": list(ids), "finish_reason": finish}
    return b"data: " + json.dumps({"id": "cmpl-1", "choices": [choice]}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
WHOLE = [event(11), event(12, 13), event(14, finish="length"), DONE]


def stream(*events: bytes) -> list[tuple[int, bytes]]:
    """Each event in a chunk of its own, at 1, 2, 3 … ns."""
    return list(enumerate(events, 1))


MANNER = Manner(model="autotune", cache_salt="climb-0")
ASKED = {
    "model": "autotune",
    "temperature": 0,
    "stream": True,
    "stream_options": {"include_usage": True},
    "cache_salt": "climb-0",
    "return_token_ids": True,
}
FORCED = {"max_tokens": 9, "min_tokens": 9, "ignore_eos": True}


def asked_again(body: object, manner: Manner = MANNER) -> tuple[str, dict[str, object]]:
    path, sent = recorded(json.dumps(body), 9, manner)
    return path, json.loads(sent)


def test_a_request_of_which_only_the_length_is_known_asks_for_an_exact_number_of_tokens() -> None:
    path, body = synthetic([5, 6, 7], 9, MANNER)
    assert path == "/v1/completions"
    assert json.loads(body) == {"prompt": [5, 6, 7], **ASKED, **FORCED}


def test_a_recorded_chat_keeps_its_words_tools_and_sampling() -> None:
    words = {
        "messages": [{"role": "user", "content": "Grüße"}],
        "tools": [{"type": "function"}],
        "top_p": 0.5,
    }
    theirs = {
        "model": "gpt",
        "temperature": 0.7,
        "stream": False,
        "max_completion_tokens": 500,
        "stop": ["."],
    }
    assert asked_again(words | theirs) == ("/v1/chat/completions", words | ASKED | FORCED)


def test_a_recorded_completion_goes_where_it_came_from() -> None:
    assert asked_again({"prompt": "Once", "n": 3}) == ("/v1/completions", {"prompt": "Once"} | ASKED | FORCED)


def test_a_recorded_response_is_forced_as_far_as_its_protocol_allows() -> None:
    path, body = asked_again({"input": "Hello", "max_output_tokens": 70, "instructions": "be brief"})
    assert path == "/v1/responses"
    assert body == {
        "input": "Hello",
        "instructions": "be brief",
        "model": "autotune",
        "temperature": 0,
        "stream": True,
        "store": False,
        "cache_salt": "climb-0",
        "ignore_eos": True,
        "max_output_tokens": 9,
    }


def test_a_natural_stop_keeps_the_recorded_limit_and_stops() -> None:
    manner = replace(MANNER, natural_stops=True)
    words = {"messages": [], "max_tokens": 500, "stop": ["."]}
    assert asked_again(words, manner) == ("/v1/chat/completions", words | ASKED)
    assert json.loads(synthetic([5], 9, manner)[1]) == {"prompt": [5], "max_tokens": 9, **ASKED}


def test_a_server_that_is_not_vllm_is_asked_in_plain_openai() -> None:
    manner = replace(MANNER, vllm_fields=False)
    plain = {key: ASKED[key] for key in ("model", "temperature", "stream", "stream_options")}
    assert asked_again({"prompt": "a", "min_tokens": 3, "ignore_eos": True}, manner) == (
        "/v1/completions",
        {"prompt": "a", "max_tokens": 9} | plain,
    )
    _, chat = asked_again({"messages": [], "max_completion_tokens": 500}, manner)
    assert chat == {"messages": [], "max_completion_tokens": 9} | plain


@pytest.mark.parametrize("text", ["", "[]", "5", '{"prompt": ', '{"words": 1}', '"messages"', "\ud800"])
def test_a_body_that_cannot_be_asked_again_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="a recorded body"):
        recorded(text, 9, MANNER)


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
    usage = b'data: {"choices": [], "usage": {"prompt_tokens": 8, "completion_tokens": 1}}\n\n'
    assert read_stream(stream(b": ping\n\n", event(1, finish="length"), usage, DONE), 1) == Answer(
        token_ns=(2,), error=None, prompt_tokens=8
    )


def sse(*messages: object) -> list[tuple[int, bytes]]:
    return stream(*(b"data: " + json.dumps(message).encode() + b"\n\n" for message in messages))


def delta(finish: str | None = None, **fields: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def test_a_role_and_an_empty_delta_are_no_token() -> None:
    events = sse(delta(role="assistant", content=""), delta(content="Hi"), delta(content=""), delta("stop"))
    assert read_stream(events, 1) == Answer(token_ns=(2,), error=None)


def test_reasoning_and_tool_calls_are_tokens() -> None:
    call = [{"index": 0, "function": {"arguments": "{"}}]
    events = sse(
        delta(reasoning_content="Hm"),
        delta(reasoning="so"),
        delta(tool_calls=call),
        delta("tool_calls", content=None),
    )
    assert read_stream(events, 3) == Answer(token_ns=(1, 2, 3), error=None)


def test_a_chat_with_token_ids_is_counted_by_them() -> None:
    first = {"choices": [{"delta": {"role": "assistant"}, "prompt_token_ids": [1, 2]}]}
    two = {"choices": [{"delta": {}, "token_ids": [7, 8]}]}  # words that a parser keeps back
    last = {"choices": [{"delta": {"content": "!"}, "token_ids": [9], "finish_reason": "length"}]}
    assert read_stream(sse(first, two, last), 3) == Answer(token_ns=(2, 2, 3), error=None)


def test_a_usage_that_counts_along_says_how_many_tokens_came() -> None:
    def counted(text: str, total: int, finish: str | None = None) -> dict[str, object]:
        usage = {"prompt_tokens": 12, "completion_tokens": total}
        return {"choices": [{"text": text, "finish_reason": finish}], "usage": usage}

    answer = read_stream(sse(counted("", 0), counted("a b c", 3), counted(" d", 4, "length")), 4)
    assert answer == Answer(token_ns=(2, 2, 2, 3), error=None, prompt_tokens=12)


def test_the_usage_at_the_end_has_the_last_word() -> None:
    def ended_with(tokens: int) -> Answer:
        usage = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": tokens}}
        return read_stream(
            sse(delta(content="a"), delta(content="b"), delta("stop", content="c"), usage), tokens
        )

    assert ended_with(3).token_ns == (1, 2, 3)
    assert ended_with(5).token_ns == (1, 1, 2, 3, 3)  # places 0, 0.5, 1, 1.5 and 2, halves to the even
    assert ended_with(2).token_ns == (1, 3)
    assert ended_with(1).token_ns == (1,)
    assert ended_with(5).error is None


def test_a_response_is_read_by_its_deltas_and_its_end() -> None:
    def typed(kind: str, **fields: object) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind} | fields)}\n\n".encode()

    usage = {"input_tokens": 4, "output_tokens": 3}
    events = [
        typed("response.created", response={"status": "in_progress", "error": None, "usage": None}),
        typed("response.reasoning_text.delta", delta="Hm"),
        typed("response.output_text.delta", delta="Hi"),
        typed("response.output_text.delta", delta=""),
        typed("response.function_call_arguments.delta", delta="{"),
        typed("response.output_text.done", text="Hi"),
    ]
    whole = [*events, typed("response.completed", response={"status": "completed", "usage": usage})]
    assert read_stream(stream(*whole), 3) == Answer(token_ns=(2, 3, 5), error=None, prompt_tokens=4)
    short = [*events, typed("response.incomplete", response={"usage": usage})]
    assert read_stream(stream(*short), 4).error == "short output: 3 of 4 tokens"
    failed = [*events, typed("response.failed", response={"error": {"message": "no more"}})]
    assert read_stream(stream(*failed), 3).error == 'engine error in stream: {"message":"no more"}'
    broken = [*events, typed("error", message="gone")]
    assert read_stream(stream(*broken), 3).error == 'engine error in stream: "gone"'
    assert read_stream(stream(*events), 3).error == "stream ended without a finish reason"


def test_a_natural_stop_has_no_length_to_miss() -> None:
    assert read_stream(stream(*WHOLE), None) == Answer(token_ns=(1, 2, 2, 3), error=None)
    assert read_stream(stream(*WHOLE[:2]), None).error == "stream ended without a finish reason"


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
    assert read_stream(stream(*WHOLE), 3).error == "long output: 4 of 3 tokens"


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
