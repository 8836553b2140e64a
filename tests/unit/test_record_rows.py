"""What a row holds, for each API, streamed and whole, ended well and badly."""

from __future__ import annotations

import gzip
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.record.answered import read_answer
from autotune.record.asked import read_request
from autotune.record.exchange import Exchange, Frames, Standing, frame
from autotune.record.rows import Row, Rows

CHAT, COMPLETION, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"


def rows(*, keep_text: bool = False) -> Rows:
    return Rows(key=b"k" * 32, origin_ns=1_000_000_000, keep_text=keep_text, tokenizer=None)


def told(path: str, **changes: Any) -> Exchange:
    given: dict[str, Any] = {
        "arrived_ns": 3_500_000_000,
        "ended_ns": 4_000_000_000,
        "status": 200,
        "complete": True,
    }
    return Exchange(path=path, **(given | changes))


def row(path: str, request: object, answer: object, **changes: Any) -> Row:
    found = rows().row(told(path, **changes), raw(request), raw(answer))
    assert found is not None
    return found


def raw(value: object) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def stream(*events: object) -> bytes:
    return b"".join(b"data: " + raw(one) + b"\n\n" for one in events) + b"data: [DONE]\n\n"


def delta(text: str | None, finish_reason: str | None = None, **more: object) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text, **more}, "finish_reason": finish_reason}]}


ASKED = {"model": "m", "messages": [{"role": "user", "content": "twelve bytes"}]}
SAID = {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}
USAGE = {"usage": {"prompt_tokens": 33, "completion_tokens": 7}}


def test_a_whole_chat() -> None:
    found = row(
        CHAT, ASKED | {"max_tokens": 9, "temperature": 0.5, "stop": ["a", "b"], "user": "u"}, SAID | USAGE
    )
    assert found.offset_s == 2.5
    assert (found.prompt_tokens, found.output_tokens, found.counted) == (33, 7, True)
    assert (found.model, found.path, found.failed) == ("m", CHAT, None)
    assert found.params == {"max_tokens": 9, "temperature": 0.5, "stop": 2}
    assert len(found.blocks) == 2  # 33 // 16
    assert len(found.session or "") == 8
    assert found.body is None


@pytest.mark.parametrize(
    ("answer", "output_tokens", "counted"),
    [
        (
            stream(delta("", role="assistant"), delta("Hel"), delta("lo", "stop"), {"choices": [], **USAGE}),
            7,
            True,
        ),
        (stream(delta("", role="assistant"), delta("Hel"), delta("lo"), delta(None, "stop")), 2, False),
        (stream(delta(None, reasoning_content="hm"), delta("lo"), delta(None, "stop")), 2, False),
        (SAID, 1, False),  # "Hi" is half of four bytes
    ],
)
def test_output_tokens_are_counted_by_usage_and_else_by_events_or_bytes(
    answer: object, output_tokens: int, counted: bool
) -> None:
    found = row(CHAT, ASKED | {"stream": True}, answer)
    assert (found.output_tokens, found.counted, found.failed) == (output_tokens, counted, None)


def test_token_ids_count_without_usage() -> None:
    choice = {"index": 0, "text": "abc", "token_ids": [1, 2, 3], "finish_reason": None}
    end = {"index": 0, "text": "d", "token_ids": [4], "finish_reason": "length"}
    found = row(
        COMPLETION,
        {"prompt": list(range(40)), "stream": True},
        stream({"choices": [choice]}, {"choices": [end]}),
    )
    assert (found.prompt_tokens, found.output_tokens, found.counted) == (40, 4, True)
    assert len(found.blocks) == 2
    assert found.session is None


def test_prompt_ids_in_the_answer_are_the_prompt() -> None:
    ids = list(range(50))
    choice = {"index": 0, "text": "a", "token_ids": [1], "prompt_token_ids": ids, "finish_reason": "length"}
    by_answer = row(COMPLETION, {"prompt": "words"}, {"choices": [choice]})
    by_prompt = row(COMPLETION, {"prompt": ids}, {"choices": [choice]})
    assert by_answer.prompt_tokens == 50
    assert by_answer.blocks == by_prompt.blocks
    assert len(by_answer.blocks) == 3


def test_several_prompts_in_one_request_have_no_blocks() -> None:
    found = row(
        COMPLETION,
        {"prompt": ["one", "two"], "n": 2},
        {"choices": [{"text": "x", "finish_reason": "stop"}]} | USAGE,
    )
    assert (found.prompt_tokens, found.blocks, found.params) == (33, (), {"n": 2})


def test_a_response_and_one_that_names_it() -> None:
    made = rows()
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes"}]}
    usage = {"usage": {"input_tokens": 20, "output_tokens": 2}, "status": "completed"}
    first = made.row(
        told(RESPONSES), raw({"input": "Are you?"}), raw({"id": "r1", "output": [message], **usage})
    )
    usage["usage"] = {"input_tokens": 40, "output_tokens": 3}
    done = {"type": "response.completed", "response": {"id": "r2", "output": [message], **usage}}
    later = told(RESPONSES, arrived_ns=4_250_000_000, ended_ns=5_000_000_000)
    asked = {"input": "And now?", "previous_response_id": "r1", "stream": True}
    second = made.row(later, raw(asked), stream({"type": "response.output_text.delta", "delta": "Yes"}, done))
    assert first is not None
    assert second is not None
    assert (second.prompt_tokens, second.output_tokens, second.counted) == (40, 3, True)
    assert second.session == first.session
    assert second.think_s == 0.25
    assert second.blocks[:1] == first.blocks


def test_tool_calls_that_come_back_go_on_with_the_session() -> None:
    made = rows()
    pieces = [
        {"index": 0, "id": "x", "function": {"name": "look", "arguments": '{"a"'}},
        {"index": 0, "function": {"arguments": ":1}"}},
    ]
    answer = stream(
        *(delta(None, tool_calls=[piece]) for piece in pieces),
        delta(None, "tool_calls"),
        {"choices": [], **USAGE},
    )
    first = made.row(told(CHAT), raw(ASKED | {"stream": True}), answer)
    call = {"id": "other", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}}
    replies = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "found"},
    ]
    asked = ASKED | {"messages": [*ASKED["messages"], *replies]}
    second = made.row(told(CHAT, arrived_ns=6_000_000_000), raw(asked), raw(SAID | USAGE))
    assert first is not None
    assert second is not None
    assert second.session == first.session
    assert second.think_s == 2.0


def test_a_second_reply_to_one_answer_is_a_session_of_its_own() -> None:
    made = rows()
    first = made.row(told(CHAT), raw(ASKED), raw(SAID | USAGE))
    messages = [*ASKED["messages"], {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "x"}]
    found = [
        made.row(told(CHAT, arrived_ns=at), raw({"messages": messages}), raw(SAID | USAGE))
        for at in (5 * 10**9, 6 * 10**9)
    ]
    assert first is not None
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].session == first.session
    assert found[1].session != first.session
    assert found[1].think_s is None


@pytest.mark.parametrize(
    ("changes", "answer", "failed"),
    [
        ({"status": 429}, b"slow down", "HTTP 429"),
        ({"status": None, "complete": False}, b"", "no answer"),
        ({"complete": False}, stream(delta("Hel")), "connection lost"),
        ({"left": True, "complete": False}, stream(delta("Hel")), "client left"),
        ({}, stream(delta("Hel"), {"error": {"message": "secret"}}), "error in the answer"),
        ({}, stream(delta("Hel")), "no finish reason"),
        ({}, {"choices": [{"message": {"content": ""}, "finish_reason": "stop"}]}, "no output"),
        ({"answer_encoding": "br"}, b"\x01", "unreadable answer"),
        ({"answer_encoding": "gzip"}, b"no gzip", "unreadable answer"),
        ({"answer_encoding": "br", "status": 500}, b"", "HTTP 500"),
    ],
)
def test_what_went_wrong_is_said_in_our_words(changes: dict[str, Any], answer: object, failed: str) -> None:
    found = row(CHAT, ASKED, answer, **changes)
    assert found.failed == failed
    assert found.blocks == ()


def test_bodies_may_be_packed_and_in_chunks() -> None:
    packed = gzip.compress(raw(SAID | USAGE))
    in_chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(packed), packed)
    found = row(
        CHAT,
        gzip.compress(raw(ASKED)),
        in_chunks,
        request_encoding="gzip",
        answer_encoding="gzip",
        answer_chunked=True,
    )
    assert (found.prompt_tokens, found.failed) == (33, None)


@pytest.mark.parametrize("body", [b"", b"\xff", b"[]", b"{}", b'{"messages": 3}', b"[" * 100_000])
def test_what_is_no_request_has_no_row(body: bytes) -> None:
    assert rows().row(told(CHAT), body, raw(SAID)) is None


@pytest.mark.parametrize(
    ("changes", "failed"),
    [
        ({"status": 400}, "HTTP 400"),
        ({"status": 502, "complete": False}, "HTTP 502"),
        ({"status": None, "complete": False, "left": True}, "client left"),
    ],
)
def test_half_a_request_that_failed_came_all_the_same(changes: dict[str, Any], failed: str) -> None:
    found = rows().row(told(CHAT, **changes), b'{"messages": [{"con', b"")
    assert found is not None
    assert (found.offset_s, found.failed, found.session, found.params) == (2.5, failed, None, {})


def test_a_kept_body_is_one_line() -> None:
    body = b'{\r\n "messages": [{"content": "a"}]\n}'
    found = rows(keep_text=True).row(told(CHAT), body, raw(SAID | USAGE))
    assert found is not None
    line = msgspec.json.encode(found)
    assert b"\n" not in line
    assert json.loads(line)["body"] == json.loads(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=9,
)
NAMES = (
    *(
        "messages",
        "prompt",
        "input",
        "role",
        "content",
        "text",
        "type",
        "tools",
        "function",
        "name",
        "arguments",
    ),
    *(
        "tool_calls",
        "index",
        "choices",
        "delta",
        "message",
        "usage",
        "prompt_tokens",
        "completion_tokens",
        "id",
    ),
    *(
        "token_ids",
        "prompt_token_ids",
        "finish_reason",
        "error",
        "response",
        "output",
        "status",
        "max_tokens",
    ),
    *("stop", "stream_options", "previous_response_id", "instructions", "cache_salt", "model", "item"),
)
FIELDS = st.recursive(
    JSON,
    lambda inner: st.dictionaries(st.sampled_from(NAMES), inner, max_size=6) | st.lists(inner, max_size=3),
)


@given(st.sampled_from([CHAT, COMPLETION, RESPONSES]), FIELDS, st.lists(FIELDS, max_size=4), st.booleans())
def test_no_request_and_no_answer_upsets_the_writer(
    path: str, asked: Any, said: list[Any], streamed: bool
) -> None:
    made = rows(keep_text=True)
    answer = stream(*said) if streamed else raw(said[0] if said else None)
    for _ in range(2):
        found = made.row(told(path), raw(asked), answer)
        if found is not None:
            again = json.loads(msgspec.json.encode(found))
            assert again["prompt_tokens"] >= 1
            assert again["output_tokens"] >= (0 if found.failed else 1)
            assert len(found.blocks) <= found.prompt_tokens / 16


@given(st.binary(max_size=60))
def test_any_bytes_can_be_read(data: bytes) -> None:
    read_answer(CHAT, data)
    read_request(CHAT, data)


@given(st.lists(st.tuples(st.binary(max_size=30), st.binary(max_size=30)), max_size=5), st.integers(1, 40))
def test_exchanges_survive_the_socket_however_they_are_cut(
    bodies: list[tuple[bytes, bytes]], step: int
) -> None:
    sent = b"".join(
        frame(Exchange(path=CHAT, request_bytes=len(one), answer_bytes=len(other))) + one + other
        for one, other in bodies
    )
    frames, got = Frames(), []
    for at in range(0, len(sent), step):
        frames.feed(sent[at : at + step])
        got += [(one, other) for _, one, other in frames.exchanges()]
    assert got == bodies


def test_messages_survive_the_socket() -> None:
    frames = Frames()
    frames.feed(frame(Standing(recorded=1)) + frame(Standing(recorded=2))[:-1])
    assert [msgspec.msgpack.decode(one, type=Standing).recorded for one in frames.messages()] == [1]
