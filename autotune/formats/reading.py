"""What every format shares: a recording on disk, its rows in order, and requests that make sense."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from autotune.domain.workload import Request
from autotune.errors import InputError
from autotune.formats.cells import brief
from autotune.formats.disk import Advanced, beginning, contents, raw_lines
from autotune.formats.order import Arrivals

MOST_TOKENS = 100_000_000
"""More in one prompt or answer is a slip: a hundred times what the longest contexts hold."""

MOST_BLOCK_TOKENS = 1_000_000

LATEST_S = 1e11
"""Seconds; later is no stamp, whether it counts from 1970 or from the start."""

LARGEST_JSON = 1 << 30
"""Bytes of JSON that are read in one piece; files with one request a line have no limit."""

_HEAD = 1 << 16

T = TypeVar("T")

Parse = Callable[[str, str], Request | list[Request] | None]
"""From `FILE:LINE` and a row's text: requests whose `offset_s` is their stamp, None for one that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What a format found: requests in order of arrival, once through, counted from the first.

    The other fields are those of `Workload`.
    """

    requests: Iterator[Request]
    block_tokens: int | None = None
    timed: bool = True
    counted: bool = True


@dataclass(slots=True, kw_only=True)
class Source:
    """A recording on disk, which can be read from its beginning any number of times.

    Up to `skip_bad` bad rows are left out, and `skipped` says which, a line each; one more raises. `failed`
    counts requests that the recording itself calls failed: they are left out too. Both are complete once all
    rows were read.
    """

    path: Path
    skip_bad: int = 0
    advanced: Advanced | None = None
    skipped: list[str] = field(default_factory=list)
    failed: int = 0
    _bad: int = 0

    def head(self) -> str:
        """The beginning of the text, from its first line that is not blank; empty for an empty file.

        Raises `InputError` with file:line when that line is no text.
        """
        raw = beginning(self.path, at_most=_HEAD)
        if len(raw) == _HEAD:
            raw = raw[: len(raw) - _cut_character(raw)]
        for number, line in enumerate(raw.split(b"\n"), 1):
            first = self._text(number, line)
            if first and not first.isspace():
                text = raw.decode("utf-8", errors="replace")
                return "\n".join(text.split("\n")[number - 1 :])
        return ""

    def peek(self) -> Iterator[tuple[int, str]]:
        """The numbered lines that are text, for a look at what the file holds; `advanced` hears nothing."""
        for number, text, _ in self._lines(None):
            if isinstance(text, str):
                yield number, text

    def lines(self) -> Iterator[tuple[int, str]]:
        """Numbered lines of text, without their ends, blank ones left out.

        Raises `InputError` with file:line for bytes that are no UTF-8 text.
        """
        for number, text, _ in self._lines(self.advanced):
            if isinstance(text, InputError):
                raise text
            yield number, text

    def rows(
        self, parse: Parse, *, header: bool = False, ordered: bool = True, cut_end: bool = False
    ) -> Iterator[Request]:
        """The requests of the rows, one row a line, without those that failed.

        With `header` the first line is no row. `ordered` rows must not descend in time, and are counted from
        the first; else stamps stay as they are. With `cut_end` a last line without a line feed that cannot be
        read is left out with a note, not as a bad row.
        """
        arrivals = Arrivals()
        name = str(self.path)
        for number, text, ended in self._lines(self.advanced):
            if header:
                header = False
                continue
            where = f"{name}:{number}"
            try:
                if isinstance(text, InputError):
                    raise text
                found = parse(where, text)
                several = found if isinstance(found, list) else [] if found is None else [found]
                if ordered:
                    several = arrivals.counted(where, several)
            except InputError as error:
                if cut_end and not ended:
                    self.skipped.append(f"{where}: the last line is cut off and left out")
                else:
                    self.tolerate(error)
            else:
                self.failed += found is None
                yield from several

    def whole(self) -> bytearray:
        """All of the file, for JSON in one piece; raises `InputError` over `LARGEST_JSON` bytes."""
        return contents(self.path, at_most=LARGEST_JSON, advanced=self.advanced)

    def tolerate(self, error: InputError) -> None:
        """Leave a bad row out, or raise its error when `skip_bad` of them were left out already."""
        if self._bad >= self.skip_bad:
            if self.skip_bad:
                hint = f"{error.hint}; {self.skip_bad} bad rows before it were left out, as asked"
                raise InputError(error.message, hint=hint) from error
            raise error
        self._bad += 1
        self.skipped.append(error.message)

    def _lines(self, advanced: Advanced | None) -> Iterator[tuple[int, str | InputError, bool]]:
        for number, raw, ended in raw_lines(self.path, advanced=advanced):
            text: str | InputError
            if raw is None:
                text = InputError(
                    f"{self.path}:{number}: a line of more than 10 MB",
                    hint="a workload has one request a line",
                )
            else:
                try:
                    text = self._text(number, raw)
                except InputError as error:
                    text = error
            if isinstance(text, InputError) or (text and not text.isspace()):
                yield number, text, ended

    def _text(self, number: int, raw: bytes) -> str:
        if b"\0" in raw:
            raise InputError(
                f"{self.path}:{number}: not a line of text", hint="a workload is a CSV, JSONL or JSON file"
            )
        try:
            return raw.decode().rstrip("\r")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{self.path}:{number}: byte {error.start + 1} is not UTF-8 text",
                hint="a workload is a CSV, JSONL or JSON file, maybe packed with gzip or zstd",
            ) from error


def first_row(source: Source, decoder: msgspec.json.Decoder[T]) -> T | None:
    """The first row of this shape, to tell what the others hold; None when the first hundred are not."""
    for _, line in itertools.islice(source.peek(), 100):
        try:
            return decoder.decode(line)
        except (msgspec.MsgspecError, RecursionError, ValueError):
            continue  # named with its place when the rows are read
    return None


def request(
    where: str,
    *,
    offset_s: float,
    prompt_tokens: int,
    output_tokens: int,
    blocks: Sequence[int] = (),
    block_tokens: int | None = None,
    session: str | None = None,
    think_s: float | None = None,
    body: str | None = None,
) -> Request:
    """A row that makes sense on its own; raises `InputError` naming `where` (file:line)."""
    if not math.isfinite(offset_s) or abs(offset_s) > LATEST_S:
        raise InputError(
            f"{where}: the time {offset_s:g} s is no time",
            hint="times are seconds, from 1970 or from the start",
        )
    if offset_s < 0:
        raise InputError(f"{where}: the time {offset_s:g} s is negative", hint="count from the first request")
    if not (0 < prompt_tokens <= MOST_TOKENS and 0 < output_tokens <= MOST_TOKENS):
        raise InputError(
            f"{where}: {brief(prompt_tokens)} prompt and {brief(output_tokens)} output tokens",
            hint=f"both must be at least 1 and at most {MOST_TOKENS}; remove the row if the request failed",
        )
    if think_s is not None and not 0 <= think_s <= LATEST_S:
        raise InputError(f"{where}: a think time of {think_s:g} s", hint="remove or repair the row")
    if blocks:
        if block_tokens and len(blocks) > -(-prompt_tokens // block_tokens):
            raise InputError(
                f"{where}: {len(blocks)} blocks of {block_tokens} tokens in a prompt of {prompt_tokens}",
                hint="a prompt has one block id for each of its blocks",
            )
        if min(blocks) < -(2**63) or max(blocks) >= 2**64:
            raise InputError(
                f"{where}: a block id of more than 64 bits", hint="block ids are 64-bit integers"
            )
    return Request(
        offset_s=offset_s,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        blocks=tuple(blocks),
        session=session,
        think_s=think_s,
        body=body,
    )


def _cut_character(raw: bytes) -> int:
    """How many bytes of a character that goes on after the end of `raw` stand there."""
    for back in range(1, min(4, len(raw)) + 1):
        byte = raw[-back]
        if byte >= 0xC0:
            return back if back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4) else 0
        if byte < 0x80:
            break
    return 0
