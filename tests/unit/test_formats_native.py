"""Our own format: what it holds, what a recorder leaves behind, and that nothing is lost in it."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import format_samples as samples
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.domain.workload import Request, Workload
from autotune.errors import InputError
from autotune.formats import native
from autotune.formats.workloads import gather, open_recording, read_workload

HEADER = '{"autotune_workload": 2, "block_tokens": 16, "order": "end"}\n'
ROW = '{"offset_s": 1.5, "prompt_tokens": 4, "output_tokens": 7}\n'
EARLIER = '{"offset_s": 0.5, "prompt_tokens": 5, "output_tokens": 8}\n'


def read(folder: Path, content: str | bytes) -> Workload:
    path = folder / "traffic.jsonl"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_workload(path)


def refused(folder: Path, content: str) -> str:
    with pytest.raises(InputError) as caught:
        read(folder, content)
    assert caught.value.hint
    return caught.value.message.removeprefix(f"{folder / 'traffic.jsonl'}:")


# -- version 1 ------------------------------------------------------------------------------------


def test_version_1_is_rows_alone_and_ignores_other_keys(tmp_path: Path) -> None:
    content = (
        '{"offset_s": 2.0, "prompt_tokens": 374, "output_tokens": 44, "user": "a"}\n'
        '{"prompt_tokens": 396, "offset_s": 6, "output_tokens": 109, "timestamp": 5}\n'
    )
    assert read(tmp_path, content).requests == (
        Request(offset_s=0.0, prompt_tokens=374, output_tokens=44),
        Request(offset_s=4.0, prompt_tokens=396, output_tokens=109),
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "2: Input data was truncated"),
        ("[]", "2: Expected `object`, got `array`"),
        ('{"offset_s": 1, "prompt_tokens": 1}', "2: Object missing required field `output_tokens`"),
        (
            '{"offset_s": "1", "prompt_tokens": 1, "output_tokens": 1}',
            "2: Expected `float`, got `str` - at `$.offset_s`",
        ),
        (
            '{"offset_s": 1, "prompt_tokens": 1.5, "output_tokens": 1}',
            "2: Expected `int`, got `float` - at `$.prompt_tokens`",
        ),
        ('{"offset_s": 1, "prompt_tokens": 0, "output_tokens": 1}', "2: 0 prompt and 1 output tokens"),
        ('{"offset_s": 0.25, "prompt_tokens": 1, "output_tokens": 1}', "2: this request is 0.250 s earlier"),
        ('{"offset_s": -1, "prompt_tokens": 1, "output_tokens": 1}', "2: the time -1 s is negative"),
        ('{"offset_s": NaN, "prompt_tokens": 1, "output_tokens": 1}', "2: JSON is malformed"),
        ('{"offset_s": 1e999, "prompt_tokens": 1, "output_tokens": 1}', "2: Number out of range"),
        ('{"offset_s": 1e308, "prompt_tokens": 1, "output_tokens": 1}', "2: the time 1e+308 s is no time"),
        ('{"offset_s": 1, "prompt_tokens": 1e3, "output_tokens": 1}', "2: Expected `int`, got `float`"),
        (
            '{"offset_s": 1, "prompt_tokens": 1, "output_tokens": 1, "x": ' + samples.NEST,
            "2: JSON nested too deeply",
        ),
        (
            '{"offset_s": 1, "prompt_tokens": 1, "output_tokens": 1, "blocks": [1]}',
            "2: block ids of no known size",
        ),
    ],
)
def test_a_bad_line_is_refused_with_its_place(tmp_path: Path, line: str, message: str) -> None:
    first = '{"offset_s": 0.5, "prompt_tokens": 1, "output_tokens": 1}\n'
    assert refused(tmp_path, first + line).startswith(message)


# -- version 2 ------------------------------------------------------------------------------------


def test_rows_in_the_order_of_their_ends_are_put_in_order_of_arrival(tmp_path: Path) -> None:
    path = tmp_path / "recorded"
    path.write_text(samples.NATIVE_2.text)
    opened = open_recording(path)
    workload = gather(opened)
    assert opened.format == "native"
    assert opened.source.failed == 1
    assert (workload.block_tokens, workload.timed, workload.counted) == (16, True, True)
    assert workload.requests == (
        Request(
            offset_s=0.0,
            prompt_tokens=20,
            output_tokens=300,
            blocks=(11,),
            body='{"prompt": "hello", "n": 1}',
        ),
        Request(offset_s=0.5, prompt_tokens=40, output_tokens=7, blocks=(11, 12), session="a"),
        Request(
            offset_s=3.0, prompt_tokens=55, output_tokens=9, blocks=(11, 12, -3), session="a", think_s=0.5
        ),
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30), st.sampled_from("gfb")), min_size=2))
def test_any_order_of_ends_gives_the_order_of_arrivals(
    tmp_path: Path, spans: list[tuple[int, int, str]]
) -> None:
    rows = {
        "g": '{{"offset_s": {0}, "prompt_tokens": {1}, "output_tokens": 1}}',
        "f": '{{"offset_s": {0}, "failed": "503"}}',
        "b": '{{"offset_s": {0}, "prompt_tokens": 0, "output_tokens": 1}}',
    }
    by_end = sorted(enumerate(spans), key=lambda one: one[1][0] + one[1][1])
    text = "".join(rows[kind].format(start, place + 1) + "\n" for place, (start, _, kind) in by_end)
    path = tmp_path / "recorded"
    path.write_text(HEADER + text)
    found = [
        (one.offset_s, one.prompt_tokens) for one in open_recording(path, skip_bad=99).recording.requests
    ]
    good = [(start, place + 1) for place, (start, _, kind) in by_end if kind == "g"]
    arrived = sorted(good, key=lambda one: one[0])
    assert found == [(start - arrived[0][0], tokens) for start, tokens in arrived]


def test_one_estimated_row_makes_the_counts_of_a_recording_estimates(tmp_path: Path) -> None:
    for row, counted in [
        ('{"offset_s": 2, "prompt_tokens": 1, "output_tokens": 1, "counted": false}\n', False),
        (
            '{"offset_s": 2, "prompt_tokens": 1, "output_tokens": 0, "counted": false, "failed": "503"}\n',
            True,
        ),
    ]:
        assert read(tmp_path, HEADER + ROW + EARLIER + row).counted is counted


def test_a_recording_that_grows_is_read_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "recorded"
    path.write_text(HEADER + ROW + EARLIER + ROW[:30])
    requests = open_recording(path).recording.requests
    found = [next(requests)]
    path.write_text(HEADER + ROW + EARLIER + EARLIER * 3)
    assert [one.offset_s for one in [*found, *requests]] == [0, 1]


def test_a_file_in_order_of_arrival_must_be_so(tmp_path: Path) -> None:
    header = '{"autotune_workload": 2}\n'
    assert refused(tmp_path, header + ROW + EARLIER).startswith("3: this request is 1.000 s earlier")


def test_a_last_line_cut_off_by_a_kill_is_left_out_with_a_note(tmp_path: Path) -> None:
    path = tmp_path / "recorded"
    for kept in range(1, len(ROW) - 2):
        path.write_text(HEADER + ROW + EARLIER + ROW[:kept])
        opened = open_recording(path)
        assert [one.offset_s for one in gather(opened).requests] == [0, 1]
        assert opened.source.skipped == [f"{path}:4: the last line is cut off and left out"]


def test_a_last_line_cut_off_in_a_character_is_left_out_too(tmp_path: Path) -> None:
    line = '{"offset_s": 3, "prompt_tokens": 1, "output_tokens": 1, "session": "ä"}'.encode()
    cut = line[: line.index("ä".encode()) + 1]
    assert len(read(tmp_path, (HEADER + ROW + EARLIER).encode() + cut).requests) == 2


def test_a_whole_last_line_without_a_line_end_counts(tmp_path: Path) -> None:
    assert len(read(tmp_path, HEADER + ROW + EARLIER.strip()).requests) == 2


def test_a_line_cut_off_in_the_middle_is_an_error(tmp_path: Path) -> None:
    assert refused(tmp_path, HEADER + ROW[:20] + "\n" + EARLIER).startswith("2: ")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ('{"autotune_workload": 3}', "1: version 3 of our format is not known here"),
        ('{"autotune_workload": "2"}', "1: Expected `int`, got `str`"),
        ('{"autotune_workload": 2, "block_tokens": 0}', "1: Expected `int` >= 1"),
        ('{"autotune_workload": 2, "order": "start"}', "1: Invalid enum value 'start'"),
        ('{"autotune_workload": 2', "1: Input data was truncated"),
    ],
)
def test_a_header_that_cannot_be_meant_is_refused(tmp_path: Path, header: str, message: str) -> None:
    assert refused(tmp_path, header + "\n" + ROW).startswith(message)


def test_prompts_without_times_need_none(tmp_path: Path) -> None:
    row = '{"offset_s": 0, "prompt_tokens": 4, "output_tokens": 7}\n'
    workload = read(tmp_path, '{"autotune_workload": 2, "timed": false, "counted": false}\n' + row * 2)
    assert (workload.timed, workload.counted, workload.duration_s) == (False, False, 0)
    assert refused(tmp_path, '{"autotune_workload": 2}\n' + row * 2).endswith("there is no rate to replay")


# -- nothing is lost ------------------------------------------------------------------------------

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)
_BODIES = st.builds(
    lambda rest, prompt, ascii_only: json.dumps({**rest, "prompt": prompt}, ensure_ascii=ascii_only),
    st.dictionaries(_TEXT, _JSON, max_size=3),
    _JSON,
    st.booleans(),
)
_REQUESTS = st.builds(
    Request,
    offset_s=st.floats(0, 1e10),
    prompt_tokens=st.integers(1, 100_000_000),
    output_tokens=st.integers(1, 100_000_000),
    blocks=st.lists(st.integers(-(2**63), 2**64 - 1), max_size=4).map(tuple),
    session=st.none() | _TEXT,
    think_s=st.none() | st.floats(0, 1e11),
    body=st.none() | _BODIES,
)


def in_order(requests: list[Request]) -> list[Request]:
    """The same requests in order of arrival, the first at 0."""
    first, *rest = sorted(requests, key=lambda one: one.offset_s)
    return [replace(first, offset_s=0.0), *rest]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.lists(_REQUESTS, min_size=2, max_size=6), st.integers(1, 4096), st.booleans(), st.booleans())
def test_what_is_written_is_read(
    tmp_path: Path, requests: list[Request], block_tokens: int, timed: bool, counted: bool
) -> None:
    requests = in_order(requests)
    stream = io.BytesIO()
    header = native.Header(block_tokens=block_tokens, timed=timed, counted=counted, text=True)
    assert native.write(header, requests, stream) == len(requests)
    path = tmp_path / "written"
    path.write_bytes(stream.getvalue())
    opened = open_recording(path)
    assert list(opened.recording.requests) == requests
    recording = opened.recording
    assert (recording.block_tokens, recording.timed, recording.counted) == (block_tokens, timed, counted)
    assert not opened.source.skipped
    assert stream.getvalue().count(b"\n") == len(requests) + 1


def test_a_body_of_several_lines_is_written_in_one(tmp_path: Path) -> None:
    pretty = '{\n  "prompt": "a\\nb",\r\n  "n": 1\n}'
    request = Request(offset_s=0.0, prompt_tokens=1, output_tokens=1, body=pretty)
    stream = io.BytesIO()
    native.write(native.Header(timed=False), [request, request], stream)
    found = read(tmp_path, stream.getvalue()).requests[0].body
    assert found == '{"prompt":"a\\nb","n":1}'
    line = '{"offset_s": 0, "prompt_tokens": 1, "output_tokens": 1, "body": {"prompt": "a", \r"n": 1}}\n'
    content = '{"autotune_workload": 2, "timed": false}\n' + line * 2
    assert read(tmp_path, content).requests[0].body == '{"prompt":"a","n":1}'


def test_the_header_says_all_that_the_specification_names() -> None:
    stream = io.BytesIO()
    native.write(native.Header(recorded_at="2026-01-02T03:04:05Z"), [], stream)
    assert json.loads(stream.getvalue()) == {
        "autotune_workload": 2,
        "block_tokens": None,
        "timed": True,
        "counted": True,
        "text": False,
        "order": "arrival",
        "recorded_at": "2026-01-02T03:04:05Z",
    }
