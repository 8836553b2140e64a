"""Files as accidents and malice leave them: copies with bytes, values and lines changed."""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from autotune.domain.workload import Request, Workload
from autotune.errors import InputError
from autotune.formats import native
from autotune.formats.workloads import gather, open_recording, read_workload
from autotune.traffic.profile import profile

_VALUES = (
    b"NaN",
    b"Infinity",
    b"-1",
    b"0",
    b"-0.0",
    b"1e308",
    b"1e999",
    b"1.5",
    b"1" + b"0" * 400,
    b"9" * 5000,
    b"18446744073709551616",
    b"null",
    b"true",
    b"{}",
    b"[]",
    b'""',
    b'"\\ud800"',
    b'"0001-01-01 00:00:00.0000001+14:00"',
    b"9999-12-31 23:59:60.9999999",
    b"[" * 5000,
    b'{"a":' * 5000,
    b"\xff\xfe",
    b"\0",
    b"\xef\xbb\xbf",
    b"\xe2\x82",
    b"\r\n",
    b"\r",
    b",",
    b'"',
    b"\\",
    "٣".encode(),
)
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_STRING = re.compile(rb'"[^"\n]*"')

Change = Callable[[bytes, random.Random], bytes]


def flip(data: bytes, draw: random.Random) -> bytes:
    """One byte is another."""
    place = draw.randrange(len(data))
    return data[:place] + bytes([draw.randrange(256)]) + data[place + 1 :]


def cut(data: bytes, draw: random.Random) -> bytes:
    """The end is missing."""
    return data[: draw.randrange(len(data))]


def lose(data: bytes, draw: random.Random) -> bytes:
    """A piece is missing."""
    place = draw.randrange(len(data))
    return data[:place] + data[place + draw.randrange(1, 40) :]


def insert(data: bytes, draw: random.Random) -> bytes:
    """Something nasty stands anywhere."""
    place = draw.randrange(len(data))
    return data[:place] + draw.choice(_VALUES) + data[place:]


def number(data: bytes, draw: random.Random) -> bytes:
    """A number is something else."""
    return _replaced(_NUMBER, data, draw)


def text(data: bytes, draw: random.Random) -> bytes:
    """A string, maybe a key, is something else."""
    return _replaced(_STRING, data, draw)


def lines(data: bytes, draw: random.Random) -> bytes:
    """A line stands twice, elsewhere or nowhere."""
    rows = data.splitlines(keepends=True)
    row = rows[draw.randrange(len(rows))]
    if draw.random() < 0.5:
        rows.remove(row)
    rows.insert(draw.randrange(len(rows) + 1), row if draw.random() < 0.7 else b"")
    return b"".join(rows)


def pack(data: bytes, draw: random.Random) -> bytes:
    """It is packed."""
    if draw.random() < 0.5:
        return gzip.compress(data, compresslevel=1, mtime=0)
    found = pa.compress(data, codec="zstd", asbytes=True)
    assert isinstance(found, bytes)
    return found


_CHANGES: tuple[Change, ...] = (flip, cut, lose, insert, number, text, lines, number, text, lines, pack)


def mutated(data: bytes, draw: random.Random) -> bytes:
    """A copy with one to four changes."""
    for _ in range(draw.randint(1, 4)):
        if data:
            data = draw.choice(_CHANGES)(data, draw)
    return data


def excerpt(data: bytes, draw: random.Random, *, rows: int = 30) -> bytes:
    """The first line and some in a row of a file of many rows; now and then, and of other files, all."""
    every = data.splitlines(keepends=True)
    if len(every) <= rows or every[0].strip() in {b"[", b"{"} or draw.random() < 0.005:
        return data
    first = draw.randrange(len(every) - rows)
    return every[0] + b"".join(every[first + 1 : first + rows])


def accepted(path: Path, *, skip_bad: int) -> bool:
    """Whether the file is a workload, which can be inspected and converted.

    Raises `AssertionError` for a refusal that does not help.
    """
    opened = None
    try:
        opened = open_recording(path, skip_bad=skip_bad)
        workload = gather(opened)
    except InputError as error:
        message, hint = error.message, error.hint
    else:
        assert len(opened.source.skipped) <= skip_bad + 1  # and a last line that was cut off
        assert all(one.prompt_tokens > 0 and one.output_tokens > 0 for one in workload.requests)
        assert workload.duration_s >= 0
        assert not workload.timed or workload.rate_rps > 0
        in_numbers = profile(workload.requests, block_tokens=workload.block_tokens, timed=workload.timed)
        assert in_numbers.requests == len(workload.requests)
        assert _written_and_read(workload, path.with_name("ours")) == workload.requests
        return True
    assert str(path) in message, message
    assert "\n" not in message, message
    assert len(message) < len(str(path)) + 400, message
    assert hint
    return False


def _written_and_read(workload: Workload, path: Path) -> tuple[Request, ...]:
    """The requests after a turn through our own format."""
    header = native.Header(block_tokens=workload.block_tokens, timed=workload.timed, counted=workload.counted)
    with path.open("wb") as stream:
        native.write(header, workload.requests, stream)
    return read_workload(path).requests


def _replaced(pattern: re.Pattern[bytes], data: bytes, draw: random.Random) -> bytes:
    found = list(pattern.finditer(data[: 1 << 16]))
    if not found:
        return data
    match = draw.choice(found)
    return data[: match.start()] + draw.choice(_VALUES) + data[match.end() :]
