"""Recorded traffic: what the formats read, and every way in which a file can be wrong."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.domain.workload import Request, Workload
from autotune.errors import InputError
from autotune.formats import azure, native
from autotune.formats.workloads import read_workload

SHIPPED = Path(__file__).parents[2] / "workloads"
HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROWS = "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
# 50.9951690 − 46.6805900 s
SECOND_S = 4.314579


def written(folder: Path, content: str | bytes, name: str = "traffic.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(folder: Path, content: str | bytes, name: str = "traffic.csv") -> Workload:
    return read_workload(written(folder, content, name))


def refused(folder: Path, content: str | bytes) -> InputError:
    with pytest.raises(InputError) as caught:
        read(folder, content)
    assert caught.value.hint
    return caught.value


# -- Azure ----------------------------------------------------------------------------------------


def test_an_azure_trace_is_read_with_its_seven_digits(tmp_path: Path) -> None:
    workload = read(tmp_path, HEAD + ROWS)
    first, second = workload.requests
    assert first == Request(offset_s=0.0, prompt_tokens=374, output_tokens=44)
    assert (second.prompt_tokens, second.output_tokens) == (396, 109)
    assert second.offset_s == pytest.approx(SECOND_S, abs=1e-6)
    assert workload.name == "traffic"
    assert workload.source == str(tmp_path / "traffic.csv")
    assert workload.sha256 == hashlib.sha256((HEAD + ROWS).encode()).hexdigest()


@pytest.mark.parametrize(
    "content",
    [
        (HEAD + ROWS).replace("\n", "\r\n").encode(),
        b"\xef\xbb\xbf" + (HEAD + ROWS).encode(),
        (HEAD + "\n" + ROWS + "\n\n").encode(),
        (HEAD + ROWS).strip().encode(),
        (HEAD + ROWS).replace(",", " , ").encode(),
        (HEAD + ROWS).replace("374", '"374"').encode(),
    ],
)
def test_line_ends_marks_blanks_and_quotes_do_not_matter(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path, content).requests == read(tmp_path, HEAD + ROWS, "plain.csv").requests


def test_columns_are_found_by_name_and_others_are_left_alone(tmp_path: Path) -> None:
    content = (
        "Kind,GeneratedTokens,TIMESTAMP,ContextTokens\n"
        "chat,44,2023-11-16 18:15:46,374\ncode,109,2023-11-16 18:15:50.5,396\n"
    )
    assert read(tmp_path, content).requests == (
        Request(offset_s=0.0, prompt_tokens=374, output_tokens=44),
        Request(offset_s=4.5, prompt_tokens=396, output_tokens=109),
    )


def test_the_shipped_traces_are_read_whole() -> None:
    workload = read_workload(SHIPPED / "azure-conv-20min.csv")
    lines = (SHIPPED / "azure-conv-20min.csv").read_text().split()  # a stamp holds one blank
    assert len(workload.requests) == (len(lines) - 1) / 2
    assert workload.requests[0] == Request(offset_s=0.0, prompt_tokens=374, output_tokens=44)
    assert 19 * 60 < workload.duration_s <= 20 * 60
    assert len(read_workload(SHIPPED / "azure-conv-cpu.csv").requests) >= 30


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("2023-11-16 18:15:46.68,374\n", ":2: 2 cells where the header has 3"),
        ("2023-11-16 18:15:46.68,374,44,1\n", ":2: 4 cells where the header has 3"),
        ("yesterday,374,44\n", ":2: TIMESTAMP is 'yesterday'"),
        ("2023-11-16 18:15:46.abc,374,44\n", ":2: TIMESTAMP is '2023-11-16 18:15:46.abc'"),
        ("2023-02-30 18:15:46,374,44\n", ":2: TIMESTAMP is '2023-02-30 18:15:46'"),
        ("2023-11-16 18:15:46.68,many,44\n", ":2: ContextTokens is 'many', not a whole number"),
        ("2023-11-16 18:15:46.68,374,4.5\n", ":2: GeneratedTokens is '4.5', not a whole number"),
        ("2023-11-16 18:15:46.68,374,\n", ":2: GeneratedTokens is '', not a whole number"),
        ("2023-11-16 18:15:46.68,374,0\n", ":2: 374 prompt and 0 output tokens"),
        ("2023-11-16 18:15:46.68,-1,44\n", ":2: -1 prompt and 44 output tokens"),
        (ROWS + "2023-11-16 18:15:50.5,1,1\n", ":4: this request is 0.495 s earlier than the one before it"),
        ("2023-11-16 18:15:46.68,37\r4,44\n", ":2: new-line character seen in unquoted field"),
        ("2023-11-16 18:15:46.68," + "3" * 200_000 + ",44\n", ":2: field larger than field limit"),
        (ROWS.splitlines()[0], " holds 1 requests over no time: there is no rate to replay"),
        (ROWS.splitlines()[0] + "\n" + ROWS.splitlines()[0], " holds 2 requests over no time"),
        ("", " holds 0 requests over no time"),
    ],
)
def test_a_bad_row_is_refused_with_its_place(tmp_path: Path, rows: str, message: str) -> None:
    assert refused(tmp_path, HEAD + rows).message.startswith(f"{tmp_path / 'traffic.csv'}{message}")


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    error = refused(tmp_path, "TIMESTAMP,ContextTokens\n")
    assert error.message.endswith(":1: no column GeneratedTokens, only TIMESTAMP, ContextTokens")


def test_requests_at_the_same_time_are_in_order(tmp_path: Path) -> None:
    rows = "".join(f"2023-11-16 18:15:4{second},1,1\n" for second in (6, 6, 7))
    assert [one.offset_s for one in read(tmp_path, HEAD + rows).requests] == [0, 0, 1]


# -- our own --------------------------------------------------------------------------------------


def test_our_own_format_is_read_and_other_keys_ignored(tmp_path: Path) -> None:
    content = (
        '{"offset_s": 0.0, "prompt_tokens": 374, "output_tokens": 44, "user": "a"}\n'
        '{"prompt_tokens": 396, "offset_s": 4, "output_tokens": 109}\n'
    )
    assert read(tmp_path, content).requests == (
        Request(offset_s=0.0, prompt_tokens=374, output_tokens=44),
        Request(offset_s=4.0, prompt_tokens=396, output_tokens=109),
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", ":2: Input data was truncated"),
        ("[]", ":2: Expected `object`, got `array`"),
        ('{"offset_s": 1, "prompt_tokens": 1}', ":2: Object missing required field `output_tokens`"),
        (
            '{"offset_s": "1", "prompt_tokens": 1, "output_tokens": 1}',
            ":2: Expected `float`, got `str` - at `$.offset_s`",
        ),
        (
            '{"offset_s": 1, "prompt_tokens": 1.5, "output_tokens": 1}',
            ":2: Expected `int`, got `float` - at `$.prompt_tokens`",
        ),
        ('{"offset_s": 1, "prompt_tokens": 0, "output_tokens": 1}', ":2: 0 prompt and 1 output tokens"),
        ('{"offset_s": -1, "prompt_tokens": 1, "output_tokens": 1}', ":2: this request is 1.000 s earlier"),
        ('{"offset_s": NaN, "prompt_tokens": 1, "output_tokens": 1}', ":2: JSON is malformed"),
        ('{"offset_s": 1e999, "prompt_tokens": 1, "output_tokens": 1}', ":2: Number out of range"),
    ],
)
def test_a_bad_line_is_refused_with_its_place(tmp_path: Path, line: str, message: str) -> None:
    first = '{"offset_s": 0, "prompt_tokens": 1, "output_tokens": 1}\n'
    assert refused(tmp_path, first + line).message.startswith(f"{tmp_path / 'traffic.csv'}{message}")


# -- which format ---------------------------------------------------------------------------------


def test_the_first_line_decides_and_not_the_name(tmp_path: Path) -> None:
    assert len(read(tmp_path, HEAD + ROWS, "trace.jsonl").requests) == 2
    lines = [f'{{"offset_s": {offset}, "prompt_tokens": 1, "output_tokens": 1}}' for offset in (0, 1)]
    assert len(read(tmp_path, "\n".join(lines), "trace.csv").requests) == 2


@pytest.mark.parametrize(
    ("head", "is_azure", "is_native"),
    [
        ("TIMESTAMP,ContextTokens,GeneratedTokens", True, False),
        ("TIMESTAMP,GeneratedTokens", True, False),
        ("time,ContextTokens,GeneratedTokens", False, False),
        ('{"offset_s": 1}', False, True),
        ('  {"prompt_tokens": 1, "offset_s": 1}', False, True),
        ('["offset_s"]', False, False),
        ("", False, False),
    ],
)
def test_a_format_knows_its_own_first_line(head: str, is_azure: bool, is_native: bool) -> None:
    assert azure.sniff(head) is is_azure
    assert native.sniff(head) is is_native


def test_what_no_format_knows_is_shown(tmp_path: Path) -> None:
    error = refused(tmp_path, "\n\nhello,world\n")
    assert error.message == (
        f"{tmp_path / 'traffic.csv'}:3: no known workload format begins like this: 'hello,world'"
    )
    assert error.hint is not None
    assert "azure" in error.hint
    assert "native" in error.hint


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path, message in [
        (tmp_path / "none.csv", f"no workload at {tmp_path / 'none.csv'}"),
        (tmp_path, f"the workload {tmp_path} is a folder"),
    ]:
        with pytest.raises(InputError) as caught:
            read_workload(path)
        assert caught.value.message == message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", " is empty"),
        (b"\n \n\r\n", " is empty"),
        (b"\x89PNG\r\n\x1a\n\0\0", ":1: byte 1 is not UTF-8 text"),
        (b"PK\0\0", ":1: not a line of text"),
        (HEAD.encode() + b"2023-11-16 18:15:46,3\xff4,44\n", ":2: byte 22 is not UTF-8 text"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    assert message in refused(tmp_path, content).message


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    head=st.sampled_from([b"", HEAD.encode(), b'{"offset_s": 0, "prompt_tokens": 1, "output_tokens": 1}\n']),
    body=st.binary(max_size=80) | st.text('0123456789-:. ,\r\n"{}', max_size=80).map(str.encode),
)
def test_any_bytes_are_a_workload_or_an_input_error(tmp_path: Path, head: bytes, body: bytes) -> None:
    try:
        workload = read(tmp_path, head + body)
    except InputError as error:
        message = error.message
    else:
        assert workload.rate_rps > 0
        return
    assert str(tmp_path / "traffic.csv") in message


def test_a_device_is_no_workload() -> None:
    with pytest.raises(InputError, match="the workload /dev/zero is not a regular file"):
        read_workload(Path("/dev/zero"))


def test_a_line_without_end_is_refused_before_all_of_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.formats.reading.LONGEST_LINE", 100)
    path = tmp_path / "endless"
    path.write_bytes(b"x" * 1000)
    with pytest.raises(InputError, match=f"{path}:1: not a line of text"):
        read_workload(path)
