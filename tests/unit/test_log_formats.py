"""Logs of gateways: what is a request, what is not, and which ones waited for one another."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from autotune.errors import InputError
from autotune.formats import langfuse, litellm
from autotune.formats.reading import Recording, Source


def lite(second: float, **changes: object) -> dict[str, object]:
    stamp = f"2026-03-01T10:00:{second:06.3f}Z"
    row: dict[str, object] = {"request_id": f"r{second}", "call_type": "acompletion", "startTime": stamp}
    return row | {"endTime": stamp, "prompt_tokens": 30, "completion_tokens": 4, "messages": {}} | changes


def fuse(second: float, **changes: object) -> dict[str, object]:
    stamp = f"2026-03-01 10:00:{second:09.6f}"
    row: dict[str, object] = {"id": f"o{second}", "trace_id": "t", "type": "GENERATION", "start_time": stamp}
    usage = {"input": 20, "input_cached_tokens": 10, "output": 3, "output_reasoning_tokens": 1, "total": 34}
    return row | {"end_time": stamp, "level": "DEFAULT", "session_id": "", "usage_details": usage} | changes


def written(path: Path, rows: list[dict[str, object]], *, array: bool) -> Source:
    path.write_text(json.dumps(rows, indent=1) if array else "".join(json.dumps(row) + "\n" for row in rows))
    return Source(path=path)


@pytest.fixture(params=[False, True], ids=["lines", "array"])
def array(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def lengths(recording: Recording) -> list[tuple[float, int, int]]:
    return [(round(one.offset_s, 6), one.prompt_tokens, one.output_tokens) for one in recording.requests]


def test_litellm_calls_are_sorted_and_only_what_an_engine_generated_counts(
    tmp_path: Path, array: bool
) -> None:
    rows = [
        lite(9.5, prompt_tokens=50),
        lite(7.25),
        lite(8, status="failure"),
        lite(8.1, call_type="aembedding", completion_tokens=0),
        lite(8.2, cache_hit="True"),
        lite(8.5, status="success", cache_hit="False"),
    ]
    source = written(tmp_path / "log", rows, array=array)
    assert litellm.sniff(source.head())
    assert lengths(litellm.read(source)) == [(0.0, 30, 4), (1.25, 30, 4), (2.25, 50, 4)]
    assert source.failed == 1


def test_litellm_messages_are_kept_where_they_were_stored(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    rows = [lite(1, messages=messages), lite(2), lite(3, messages=[])]
    bodies = [one.body for one in litellm.read(written(tmp_path / "log", rows, array=False)).requests]
    assert json.loads(bodies[0] or "") == {"messages": messages}
    assert bodies[1:] == [None, None]


def test_langfuse_generations_are_the_requests_and_all_kinds_of_tokens_count(
    tmp_path: Path, array: bool
) -> None:
    rows = [
        fuse(2),
        fuse(1, type="SPAN", usage_details={}),
        fuse(1.5, level="ERROR"),
        fuse(1.75, usage_details={"input": 7, "output": 2}),
    ]
    source = written(tmp_path / "log", rows, array=array)
    assert langfuse.sniff(source.head())
    assert lengths(langfuse.read(source)) == [(0.0, 7, 2), (0.25, 30, 4)]
    assert source.failed == 1


def test_calls_of_a_session_follow_unless_they_ran_beside_another(tmp_path: Path) -> None:
    def call(start: float, end: float | None, session: str) -> dict[str, object]:
        stamp = None if end is None else f"2026-03-01 10:00:{end:09.6f}"
        return fuse(start, end_time=stamp, session_id=session)

    rows = [
        call(1, 3, "a"),
        call(4, 6, "a"),
        call(5, 7, "a"),
        call(9, 10, "a"),
        call(2, None, "b"),
        call(8, 9, "b"),
    ]
    found = list(langfuse.read(written(tmp_path / "log", rows, array=False)).requests)
    assert [(one.offset_s, one.session, one.think_s) for one in found] == [
        (0.0, "a", None),
        (1.0, "b", None),
        (3.0, "a", 1.0),
        (4.0, None, None),  # began before the one at 3 had ended
        (7.0, None, None),  # nobody knows when the one at 1 ended
        (8.0, "a", 2.0),
    ]


@pytest.mark.parametrize(
    ("module", "row", "message"),
    [
        (litellm, lite(2, startTime="soon"), "startTime is 'soon'"),
        (litellm, lite(2, completion_tokens=0), "30 prompt and 0 output tokens"),
        (litellm, lite(2, prompt_tokens="many"), "Expected `int`"),
        (litellm, lite(1), "the request_id 'r1' is there twice"),
        (langfuse, fuse(2, start_time="soon"), "start_time is 'soon'"),
        (langfuse, fuse(2, usage_details={"total": 9}), "count no input or no output"),
        (langfuse, fuse(2, usage_details=None), "count no input or no output"),
        (langfuse, fuse(1), "the id 'o1' is there twice"),
    ],
)
def test_a_bad_row_is_named(
    tmp_path: Path, array: bool, module: ModuleType, row: dict[str, object], message: str
) -> None:
    good = (lite if module is litellm else fuse)(1)
    source = written(tmp_path / "log", [good, row], array=array)
    with pytest.raises(InputError) as caught:
        list(module.read(source).requests)
    assert message in caught.value.message
    assert caught.value.message.startswith(f"{tmp_path}/log:")


def test_other_logs_are_not_mistaken(tmp_path: Path) -> None:
    for head in ('{"timestamp": 1, "body": {}}', '{"offset_s": 1}', '[{"id": 1}]', "a,b"):
        assert not litellm.sniff(head)
        assert not langfuse.sniff(head)
