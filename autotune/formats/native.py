"""Our own format: JSONL, one request a line; what `autotune record` and `workload convert` write.

The specification of both versions is docs/reference/workloads.md.
"""

from __future__ import annotations

import heapq
import itertools
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, BinaryIO, Literal

import msgspec

from autotune.domain.workload import Request
from autotune.errors import InputError
from autotune.formats.bodies import one_line, recorded
from autotune.formats.cells import brief, decoded
from autotune.formats.outline import outline
from autotune.formats.reading import MOST_BLOCK_TOKENS, Recording, Source, request

VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line of a file of version 2.

    `text` says that bodies were kept; `order` is "end" where rows stand in the order of their answers' ends,
    as a recorder appends them; `recorded_at` is the wall clock at offset 0, ISO 8601.
    """

    block_tokens: int | None = None
    timed: bool = True
    counted: bool = True
    text: bool = False
    order: Literal["arrival", "end"] = "arrival"
    recorded_at: str | None = None


class _Header(msgspec.Struct):
    autotune_workload: int
    block_tokens: Annotated[int, msgspec.Meta(ge=1, le=MOST_BLOCK_TOKENS)] | None = None
    timed: bool = True
    counted: bool = True
    text: bool = False
    order: Literal["arrival", "end"] = "arrival"
    recorded_at: str | None = None


class _Row(msgspec.Struct):
    offset_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    session: str | None = None
    think_s: float | None = None
    body: msgspec.Raw = msgspec.Raw()


class _Seen(msgspec.Struct):
    offset_s: float = math.inf
    counted: bool = True
    failed: str | None = None


_HEADER = msgspec.json.Decoder(_Header)
_ROW = msgspec.json.Decoder(_Row)
_SEEN = msgspec.json.Decoder(_Seen)
_HINT = "each line holds offset_s, prompt_tokens and output_tokens"


def sniff(head: str) -> bool:
    """True when the first line is an object with our first key, of the header or of a row."""
    return outline(head).ours


def read(source: Source) -> Recording:
    """The recording; raises `InputError` with file:line for what cannot be replayed."""
    number, first = next(source.lines())
    if "autotune_workload" not in outline(first).keys:
        return Recording(requests=source.rows(_Reader(block_tokens=None)))
    where = f"{source.path}:{number}"
    header = decoded(where, _HEADER, first, hint="the first line is the header of the file")
    if header.autotune_workload not in (1, VERSION):
        raise InputError(
            f"{where}: version {brief(header.autotune_workload)} of our format is not known here",
            hint=f"this autotune reads versions 1 and {VERSION}",
        )
    parse = _Reader(block_tokens=header.block_tokens)
    if header.order == "arrival":
        requests, counted = source.rows(parse, header=True, cut_end=True), True
    else:
        earliest, counted = _look(source)
        rows = source.rows(parse, header=True, ordered=False, cut_end=True)
        requests = _by_arrival(rows, parse, earliest)
    return Recording(
        requests=requests,
        block_tokens=header.block_tokens,
        timed=header.timed,
        counted=header.counted and counted,
    )


def write(header: Header, requests: Iterable[Request], stream: BinaryIO) -> int:
    """Write version 2, a line at a time; returns how many requests were written."""
    encode = msgspec.json.Encoder().encode
    stream.write(
        encode(
            {
                "autotune_workload": VERSION,
                "block_tokens": header.block_tokens,
                "timed": header.timed,
                "counted": header.counted,
                "text": header.text,
                "order": header.order,
                "recorded_at": header.recorded_at,
            }
        )
        + b"\n"
    )
    written = 0
    for one in requests:
        row: dict[str, object] = {
            "offset_s": one.offset_s,
            "prompt_tokens": one.prompt_tokens,
            "output_tokens": one.output_tokens,
        }
        if one.blocks:
            row["blocks"] = one.blocks
        if one.session is not None:
            row["session"] = one.session
        if one.think_s is not None:
            row["think_s"] = one.think_s
        if one.body is not None:
            row["body"] = msgspec.Raw(one_line(one.body).encode())
        stream.write(encode(row) + b"\n")
        written += 1
    return written


@dataclass(slots=True, kw_only=True)
class _Reader:
    """A row of either version as a request; `lines` counts the rows."""

    block_tokens: int | None
    lines: int = 0

    def __call__(self, where: str, line: str) -> Request | None:
        self.lines += 1
        if '"failed"' in line and decoded(where, _SEEN, line, hint=_HINT).failed is not None:
            return None
        row = decoded(where, _ROW, line, hint=_HINT)
        if row.blocks and self.block_tokens is None:
            raise InputError(
                f"{where}: block ids of no known size",
                hint='the header, {"autotune_workload": 2, "block_tokens": 16}, says how long a block is',
            )
        return request(
            where,
            offset_s=row.offset_s,
            prompt_tokens=row.prompt_tokens,
            output_tokens=row.output_tokens,
            blocks=row.blocks,  # of a recorder, whose blocks may cover more than the server counted
            session=row.session,
            think_s=row.think_s,
            body=recorded(where, row.body),
        )


def _look(source: Source) -> tuple[array[float], bool]:
    """The earliest arrival from each line on, the header left out, and whether all rows are counted.

    A row without a stamp, because it is bad, has an infinite one; so has the end.
    """
    earliest, counted = array("d"), True
    for _, line in itertools.islice(source.peek(), 1, None):
        try:
            row = _SEEN.decode(line)
        except (msgspec.MsgspecError, RecursionError, ValueError):
            row = _Seen()  # named with its place when the rows are read
        earliest.append(row.offset_s)
        counted = counted and (row.counted or row.failed is not None)
    for place in range(len(earliest) - 2, -1, -1):
        earliest[place] = min(earliest[place], earliest[place + 1])
    earliest.append(math.inf)
    return earliest, counted


def _by_arrival(rows: Iterable[Request], parse: _Reader, earliest: Sequence[float]) -> Iterator[Request]:
    """Rows in the order of their ends as requests in order of arrival, counted from the first.

    What is earlier than all that come is given out at once, so that only requests are held that were under
    way at the same time, and 8 bytes a line.
    """
    waiting: list[tuple[float, int, Request]] = []
    origin_s: float | None = None
    for one in itertools.chain(rows, (None,)):
        if one is not None:
            place = parse.lines - 1
            if place >= len(earliest) - 1 or one.offset_s < earliest[place]:
                continue  # written since the look
            heapq.heappush(waiting, (one.offset_s, place, one))
        later_s = math.inf if one is None else earliest[place + 1]
        while waiting and waiting[0][0] <= later_s:
            first_s, _, first = heapq.heappop(waiting)
            origin_s = first_s if origin_s is None else origin_s
            yield replace(first, offset_s=first_s - origin_s) if origin_s else first
