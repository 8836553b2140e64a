"""Recordings with text: what is sent, what it weighs, and what stands for answers nobody recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import format_samples as samples
import pytest

from autotune.domain.workload import Request, Workload
from autotune.errors import InputError
from autotune.formats.workloads import gather, open_recording, read_workload


def read(folder: Path, text: str) -> Workload:
    path = folder / "prompts"
    path.write_text(text, encoding="utf-8")
    return read_workload(path)


def body(request: Request) -> Any:
    assert request.body is not None
    return json.loads(request.body)


def counts(workload: Workload) -> list[tuple[int, int]]:
    return [(one.prompt_tokens, one.output_tokens) for one in workload.requests]


def said(*turns: tuple[str, str]) -> dict[str, object]:
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


# -- ShareGPT -------------------------------------------------------------------------------------


def test_each_answered_turn_of_sharegpt_is_a_request_with_all_before_it(tmp_path: Path) -> None:
    workload = read(tmp_path, samples.SHAREGPT.text)
    assert not workload.timed
    assert not workload.counted
    first, second, other = workload.requests
    assert body(first) == said(("system", "Be kind."), ("user", "Who are you?"))
    assert body(second) == said(
        ("system", "Be kind."), ("user", "Who are you?"), ("assistant", "A model."), ("user", "Bye")
    )
    assert body(other) == said(("user", "äöü"))  # an answer to nothing is no request, nor is the last turn
    assert [one.session for one in workload.requests] == ["one", "one", "two"]
    # bytes 8 + 12 and 8; with 8 and 3 more, and 9; 6 and none: a token for four, one at least
    assert counts(workload) == [(2 + 3, 2), (2 + 3 + 2 + 1, 3), (2, 1)]


def test_sharegpt_may_have_a_conversation_a_line(tmp_path: Path) -> None:
    lines = "".join(json.dumps(one) + "\n" for one in json.loads(samples.SHAREGPT.text))
    assert read(tmp_path, lines).requests == read(tmp_path, samples.SHAREGPT.text).requests


# -- MT-Bench -------------------------------------------------------------------------------------


def test_an_unrecorded_answer_is_as_many_words_as_it_is_long(tmp_path: Path) -> None:
    workload = read(tmp_path, samples.MTBENCH.text)
    first, second, other = workload.requests
    assert [one.session for one in workload.requests] == ["81", "81", "82"]
    assert counts(workload) == [(5, 256), (5 + 256 + 3, 256), (1, 256)]
    assert body(first) == said(("user", "Write a story now"))
    assert body(second) == said(
        ("user", "Write a story now"), ("assistant", " and" * 256), ("user", "Rewrite it")
    )
    assert body(other) == said(("user", "Add"))


# -- vLLM's custom prompts ------------------------------------------------------------------------


def test_custom_prompts_are_completions(tmp_path: Path) -> None:
    workload = read(tmp_path, samples.VLLM_CUSTOM.text)
    assert counts(workload) == [(8, 10), (7, 1520), (1, 256)]
    assert body(workload.requests[0]) == {"prompt": "What is the capital of India?"}
    assert {one.session for one in workload.requests} == {None}
    assert not workload.timed


# -- guidellm -------------------------------------------------------------------------------------


def test_guidellm_rows_have_counts_and_stamps(tmp_path: Path) -> None:
    workload = read(tmp_path, samples.GUIDELLM.text)
    assert workload.timed
    assert workload.counted
    assert [one.offset_s for one in workload.requests] == [0, 1, 2.5]
    assert counts(workload) == [(4, 20), (5, 30), (6, 40)]
    assert body(workload.requests[1]) == said(("system", "Be brief."), ("user", "Describe a sea"))


def test_guidellm_turns_are_a_session(tmp_path: Path) -> None:
    text = samples.row(prompt_1="four", prompt_0="eight by", output_tokens_count_0=3) + "\n"
    workload = read(tmp_path, text)
    first, second = workload.requests
    assert first.session == second.session == "row 1"
    assert body(second) == said(("user", "eight by"), ("assistant", " and" * 3), ("user", "four"))
    assert counts(workload) == [(2, 3), (2 + 3 + 1, 256)]
    assert not workload.timed
    assert not workload.counted


# -- aiperf ---------------------------------------------------------------------------------------


def test_aiperf_rows_of_every_kind(tmp_path: Path) -> None:
    workload = read(tmp_path, samples.AIPERF.text)
    assert workload.timed
    assert [one.offset_s for one in workload.requests] == [0, 0.25, 0.25, 1.0]
    assert [one.think_s for one in workload.requests] == [None, None, 2.0, None]
    assert [one.session for one in workload.requests] == ["s", None, "s", None]
    assert counts(workload) == [(3, 4), (2, 50), (8, 6), (2, 9)]
    assert [body(one) for one in workload.requests] == [
        said(("user", "Hello there")),
        {"prompt": "Hello", "max_tokens": 50},
        said(("user", "Hello there"), ("assistant", " and" * 4), ("user", "More")),
        {**said(("user", "Weather?")), "tools": [{"type": "function"}], "temperature": 0.5},
    ]


def test_aiperf_rows_of_one_session_are_complete_in_themselves(tmp_path: Path) -> None:
    rows = (samples.row(session_id="s", text=text) for text in ("one", "two"))
    first, second = read(tmp_path, "\n".join(rows)).requests
    assert (first.session, body(second)) == ("s", said(("user", "two")))


def test_aiperf_conversations_follow_their_stamps(tmp_path: Path) -> None:
    lead = {"role": "system", "text": "Be kind."}
    rows = (
        samples.row(
            session_id="a", turns=[lead, {"text": "one", "timestamp": 0}, {"text": "x", "timestamp": 900}]
        ),
        samples.row(session_id="b", turns=[{"text": "two", "timestamp": 500}, {"text": "y", "delay": 100}]),
    )
    requests = read(tmp_path, "\n".join(rows)).requests
    assert [(one.session, one.offset_s, one.think_s) for one in requests] == [
        ("a", 0.0, None),
        ("b", 0.5, None),
        ("b", 0.5, 0.1),
        ("a", 0.9, None),
    ]
    assert body(requests[3]) == said(
        ("system", "Be kind."), ("user", "one"), ("assistant", " and" * 256), ("user", "x")
    )


def test_aiperf_deltas_gather_their_history(tmp_path: Path) -> None:
    def turn(text: str) -> str:
        message = {"role": "user", "content": text}
        return samples.row(session_id="s", message_mode="delta", messages=[message], output_length=2)

    requests = read(tmp_path, turn("one") + "\n" + turn("two")).requests
    assert body(requests[1]) == said(("user", "one"), ("assistant", " and and"), ("user", "two"))


# -- logs of OpenAI-style requests ----------------------------------------------------------------


def test_a_log_keeps_bodies_as_they_stand_and_counts_what_failed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(samples.OPENAI_LOG.text)
    opened = open_recording(path)
    workload = gather(opened)
    assert opened.source.failed == 1
    assert workload.counted
    assert counts(workload) == [(12, 8), (3, 5), (4, 6)]
    # 03:04:05.1234567, 04:04:06.5 an hour east of it, and 1767323047.5, which is 03:04:07.5
    expected = [0, 1.3765433, 2.3765433]
    assert [one.offset_s for one in workload.requests] == pytest.approx(expected, abs=1e-6)
    assert [one.session for one in workload.requests] == [None, "s", None]
    assert workload.requests[0].body == '{"model": "m", "messages": [{"role": "user", "content": "Hello"}]}'


def test_a_batch_file_has_no_times_and_no_counts(tmp_path: Path) -> None:
    def line(name: str, **limit: int) -> str:
        content = [{"type": "text", "text": "Hello!!!"}, {"type": "image_url", "image_url": {"url": "data:"}}]
        message = {"role": "user", "content": content}
        return samples.row(
            custom_id=name, method="POST", url="/v1/chat/completions", body={"messages": [message], **limit}
        )

    workload = read(tmp_path, line("a", max_completion_tokens=7, max_tokens=9) + "\n" + line("b"))
    assert not workload.timed
    assert not workload.counted
    assert counts(workload) == [(2, 7), (2, 256)]


def test_token_ids_count_one_each(tmp_path: Path) -> None:
    rows = (samples.row(body={"prompt": [5, 6, 7], "max_tokens": 1}) for _ in range(2))
    assert counts(read(tmp_path, "\n".join(rows))) == [(3, 1), (3, 1)]


def test_a_bad_first_row_of_a_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, '{"body": {"prompt": "a"}, "usage": 5}\n')
    assert caught.value.message.startswith(f"{tmp_path / 'prompts'}:1: ")


def test_a_bad_first_row_can_be_left_out(tmp_path: Path) -> None:
    for name, bad in [
        ("aiperf", '{"timestamp": 400, "text_input": 5}'),
        ("openai_log", '{"timestamp": 1767323045, "body": {"prompt": "a"}, "usage": 5}'),
        (
            "guidellm",
            samples.row(prompt=5, prompt_tokens_count=4, output_tokens_count=1, relative_timestamp=0),
        ),
    ]:
        path = tmp_path / name
        path.write_text(bad + "\n" + samples.SAMPLES[name].text)
        opened = open_recording(path, skip_bad=1)
        assert (opened.format, opened.recording.timed) == (name, True)
        assert gather(opened).requests == read(tmp_path, samples.SAMPLES[name].text).requests


def test_a_stamp_among_prompts_without_is_no_time(tmp_path: Path) -> None:
    rows = (samples.row(text="a"), samples.row(text="b", timestamp=500), samples.row(text="c", timestamp=0))
    workload = read(tmp_path, "\n".join(rows))
    assert not workload.timed
    assert [one.offset_s for one in workload.requests] == [0, 0, 0]
