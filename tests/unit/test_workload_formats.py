"""Opening a workload: which format it is, and every way in which a file can be wrong."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import format_samples as samples
import pyarrow as pa
import pytest

from autotune.domain.workload import Workload
from autotune.errors import InputError
from autotune.formats.outline import outline
from autotune.formats.reading import Source
from autotune.formats.workloads import gather, open_recording, read_workload

HEAD = samples.AZURE_HEAD
ROWS = "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
AZURE = (HEAD + ROWS).encode()
NATIVE = '{"offset_s": 0, "prompt_tokens": 1, "output_tokens": 1}\n'


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
    assert "\n" not in caught.value.message
    return caught.value


# -- which format, which file ---------------------------------------------------------------------


def test_a_workload_knows_its_file(tmp_path: Path) -> None:
    for content in (AZURE, gzip.compress(AZURE)):
        workload = read(tmp_path, content)
        assert workload.name == "traffic"
        assert workload.source == str(tmp_path / "traffic.csv")
        assert workload.sha256 == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("name", sorted(samples.SAMPLES))
def test_the_beginning_decides_and_not_the_name(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, "\n \r\n" + samples.SAMPLES[name].text, "trace.parquet")
    opened = open_recording(path)
    assert opened.format == name.rstrip(" 12")
    assert opened.source.path == path
    assert len(gather(opened).requests) >= 3


def test_what_no_format_knows_is_shown(tmp_path: Path) -> None:
    error = refused(tmp_path, "\n\nhello,world\n")
    assert error.message == (
        f"{tmp_path / 'traffic.csv'}:3: no known workload format begins like this: 'hello,world'"
    )
    assert error.hint is not None
    assert "azure" in error.hint
    assert "weka" in error.hint
    long = refused(tmp_path, "x" * 5000)
    assert len(long.message) < len(str(tmp_path)) + 150


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path, message in [
        (tmp_path / "none.csv", f"no workload at {tmp_path / 'none.csv'}"),
        (tmp_path, f"the workload {tmp_path} is a folder"),
        (Path("/dev/zero"), "the workload /dev/zero is not a regular file"),
        (tmp_path / ("n" * 300), f"cannot read the workload {tmp_path / ('n' * 300)}: File name too long"),
    ]:
        with pytest.raises(InputError) as caught:
            read_workload(path)
        assert caught.value.message == message


def test_too_few_requests_are_no_workload(tmp_path: Path) -> None:
    first = ROWS.splitlines()[0] + "\n"
    for rows, count in [("", 0), (first, 1), (first + first, 2)]:
        message = refused(tmp_path, HEAD + rows).message
        assert message.endswith(f" holds {count} requests over no time: there is no rate to replay")


def test_requests_at_the_same_time_are_in_order(tmp_path: Path) -> None:
    rows = "".join(f"2023-11-16 18:15:4{second},1,1\n" for second in (6, 6, 7))
    assert [one.offset_s for one in read(tmp_path, HEAD + rows).requests] == [0, 0, 1]


@pytest.mark.parametrize(
    ("text", "opens", "keys"),
    [
        ('{"a": {"b": [1, {"c": 2}]}, "d": "e:{"}', "{", {"a", "d"}),
        ('[ {"a": 1}, {"b": 2}]', "[{", {"a"}),
        ('{"a": 1}\n{"b": 2}', "{", {"a"}),
        ('{"a": "cut off in a str', "{", {"a"}),
        ('{"a": "x\\"y", "b', "{", {"a"}),
        ('["a"]', "", set()),
        ('"a"', "", set()),
        ("", "", set()),
        ('{"a": ' + "[" * 1000 + ', "b": 1', "{", {"a"}),
    ],
)
def test_an_outline_is_the_first_objects_own_keys(text: str, opens: str, keys: set[str]) -> None:
    assert outline(text).opens == opens
    assert set(outline(text).keys) == keys


# -- files that are no text -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", " is empty"),
        (b"\n \n\r\n", " is empty"),
        (b"\xef\xbb\xbf", " is empty"),
        (gzip.compress(b""), " is empty"),
        (b"\x89PNG\r\n\x1a\n\0\0", ":1: byte 1 is not UTF-8 text"),
        (b"PK\0\0", ":1: not a line of text"),
        (b"\n\n\xff", ":3: byte 1 is not UTF-8 text"),
        (HEAD.encode() + b"2023-11-16 18:15:46,3\xff4,44\n", ":2: byte 22 is not UTF-8 text"),
        (HEAD.encode() + ROWS.encode() + b"\0\n", ":4: not a line of text"),
        (AZURE.decode().encode("utf-16"), ":1: "),
        (b"PAR1\x15\x04\x15", ":1: no known workload format begins like this"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    assert refused(tmp_path, content).message.startswith(
        f"{'the workload ' * (message == ' is empty')}{tmp_path / 'traffic.csv'}{message}"
    )


def test_a_beginning_may_end_within_a_character(tmp_path: Path) -> None:
    # 64 KiB end in the middle of one of these for one of the three shifts
    for shift in ("", "a", "bc"):
        blank = "\n" * len(shift)
        text = samples.row(body={"prompt": shift + "€" * 30_000}, output_tokens=1).replace("\\u20ac", "€")
        assert len(read(tmp_path, f"{blank}{text}\n{text}\n").requests) == 2


def test_a_line_of_more_than_10_mb_is_refused_and_can_be_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.formats.disk.LONGEST_LINE", 100)
    monkeypatch.setattr("autotune.formats.disk._CHUNK", 32)
    long = HEAD + "x" * 1000 + "\n" + ROWS
    assert refused(tmp_path, long).message == f"{tmp_path / 'traffic.csv'}:2: a line of more than 10 MB"
    opened = open_recording(written(tmp_path, long), skip_bad=1)
    assert len(gather(opened).requests) == 2
    assert refused(tmp_path, HEAD + ROWS + "x" * 1000).message.endswith(":4: a line of more than 10 MB")


def test_json_in_one_piece_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.formats.reading.LARGEST_JSON", 100)
    error = refused(tmp_path, samples.WEKA.text)
    assert error.message.startswith(f"{tmp_path / 'traffic.csv'}:1: more than ")


# -- packed files ---------------------------------------------------------------------------------


def outcome(path: Path) -> int | str:
    """How many requests a file holds, or the message that refuses it."""
    try:
        return len(read_workload(path).requests)
    except InputError as error:
        return error.message


def packed(kind: str, content: bytes) -> bytes:
    if kind == "gzip":
        return gzip.compress(content, mtime=0)
    found = pa.compress(content, codec="zstd", asbytes=True)
    assert isinstance(found, bytes)
    return found


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_packed_data_cut_off_anywhere_is_one_error(tmp_path: Path, kind: str) -> None:
    whole = packed(kind, AZURE)
    for kept in range(4, len(whole) - 1):
        message = refused(tmp_path, whole[:kept]).message
        assert message.startswith(f"{tmp_path / 'traffic.csv'}:"), kept
        assert f"the {kind} data " in message


def test_the_line_where_packed_data_ends_is_named(tmp_path: Path) -> None:
    lines = "".join(f"2023-11-16 18:{n // 60:02}:{n % 60:02},{n * n % 977 + 1},44\n" for n in range(3000))
    whole = gzip.compress((HEAD + lines).encode())
    opened = open_recording(written(tmp_path, whole[: len(whole) // 2]), skip_bad=5)
    with pytest.raises(InputError) as caught:
        gather(opened)
    path, line, said = caught.value.message.split(":", 2)
    assert (path, said) == (str(tmp_path / "traffic.csv"), " the gzip data ends in the middle")
    assert 1000 < int(line) < 2000


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_damaged_data_is_one_error_or_still_good(tmp_path: Path, kind: str) -> None:
    whole = packed(kind, AZURE)
    for place in range(4, len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x55
        found = outcome(written(tmp_path, bytes(damaged)))
        assert found == 2 or str(tmp_path / "traffic.csv") in str(found)


def test_packed_data_may_come_in_several_pieces(tmp_path: Path) -> None:
    for kind in ("gzip", "zstd"):
        pieces = packed(kind, HEAD.encode()) + packed(kind, ROWS.encode())
        assert read(tmp_path, pieces).requests == read(tmp_path, AZURE).requests


# -- bad rows -------------------------------------------------------------------------------------


def test_mixed_formats_are_refused_where_the_second_begins(tmp_path: Path) -> None:
    assert refused(tmp_path, HEAD + ROWS + NATIVE).message.startswith(f"{tmp_path / 'traffic.csv'}:4: ")
    assert refused(tmp_path, NATIVE + HEAD + ROWS).message.startswith(f"{tmp_path / 'traffic.csv'}:2: ")
    assert refused(tmp_path, samples.MOONCAKE.text + samples.BAILIAN.text).message.startswith(
        f"{tmp_path / 'traffic.csv'}:4: "
    )


def test_as_many_bad_rows_as_asked_for_are_left_out_and_named(tmp_path: Path) -> None:
    first, second = ROWS.splitlines(keepends=True)
    path = written(tmp_path, HEAD + "bad\n" + first + b"\xff".decode("latin-1") + "\n" + second)
    opened = open_recording(path, skip_bad=2)
    assert gather(opened).requests == read(tmp_path, AZURE, "whole").requests
    assert opened.source.skipped == [
        f"{path}:2: 1 cells where the header has 3",
        f"{path}:4: 1 cells where the header has 3",
    ]
    with pytest.raises(InputError) as caught:
        read_workload(path, skip_bad=1)
    assert caught.value.message == f"{path}:4: 1 cells where the header has 3"
    assert caught.value.hint is not None
    assert caught.value.hint.endswith("; 1 bad rows before it were left out, as asked")


def test_lines_that_are_no_text_are_bad_rows_too(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD.encode() + b"\xff\n" + ROWS.encode() + b"\0")  # lines 1 to 5
    opened = open_recording(path, skip_bad=2)
    assert len(gather(opened).requests) == 2
    assert opened.source.skipped == [f"{path}:2: byte 1 is not UTF-8 text", f"{path}:5: not a line of text"]


def test_a_row_left_out_is_nothing_to_come_after(tmp_path: Path) -> None:
    # the second row lies far ahead; without it the third is in order
    rows = "2023-11-16 18:15:46,1,1\n2024-11-16 18:15:46,0,1\n2023-11-16 18:15:47,1,1\n"
    opened = open_recording(written(tmp_path, HEAD + rows), skip_bad=1)
    assert [one.offset_s for one in gather(opened).requests] == [0, 1]


# -- streaming ------------------------------------------------------------------------------------


def test_a_long_file_is_read_as_its_requests_are_asked_for(tmp_path: Path) -> None:
    rows = "".join(f'{{"offset_s": {n}, "prompt_tokens": 1, "output_tokens": 1}}\n' for n in range(60_000))
    path = written(tmp_path, rows)
    heard: list[int] = []
    opened = open_recording(path, advanced=lambda done, _: heard.append(done))
    assert next(opened.recording.requests).offset_s == 0
    assert max(heard) <= 1 << 20 < path.stat().st_size
    assert sum(1 for _ in opened.recording.requests) == 59_999
    assert heard[-1] == path.stat().st_size


def test_a_source_can_be_read_again(tmp_path: Path) -> None:
    source = Source(path=written(tmp_path, b"\xef\xbb\xbfone\r\n\n two\nlast"))
    assert list(source.lines()) == [(1, "one"), (3, " two"), (4, "last")]
    assert list(source.lines()) == list(source.peek())
    assert source.head() == "one\r\n\n two\nlast"
