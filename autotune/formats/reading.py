"""What every format shares: numbered lines of a text file, and rows that must make sense in order."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from pathlib import Path

from autotune.domain.workload import Request, Workload
from autotune.errors import InputError

LONGEST_LINE = 10_000_000


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines without their ends (LF or CRLF), a byte order mark removed, blank ones left out.

    Raises `InputError` with file:line for bytes that are no UTF-8 text.
    """
    if not path.is_file():
        raise InputError(
            f"the workload {path} is not a regular file", hint="a workload is a CSV or JSONL file"
        )
    try:
        with path.open("rb") as stream:
            # readline with a limit: a file without line ends must not be read into memory whole
            lines = iter(lambda: stream.readline(LONGEST_LINE + 1), b"")
            for number, raw in enumerate(lines, 1):
                if b"\0" in raw or len(raw) > LONGEST_LINE:
                    raise InputError(
                        f"{path}:{number}: not a line of text", hint="a workload is a CSV or JSONL file"
                    )
                try:
                    line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                except UnicodeDecodeError as error:
                    raise InputError(
                        f"{path}:{number}: byte {error.start + 1} is not UTF-8 text",
                        hint="a workload is a CSV or JSONL file",
                    ) from error
                if line.strip():
                    yield number, line
    except OSError as error:
        raise InputError(
            f"cannot read the workload {path}: {error.strerror}", hint="check --workload"
        ) from error


def request(
    where: str, *, offset_s: float, prompt_tokens: int, output_tokens: int, previous: Request | None
) -> Request:
    """A row that makes sense after the previous one; raises `InputError` naming `where` (file:line)."""
    if not math.isfinite(offset_s):
        raise InputError(f"{where}: the time {offset_s} is not a number", hint="remove or repair the row")
    if prompt_tokens < 1 or output_tokens < 1:
        raise InputError(
            f"{where}: {prompt_tokens} prompt and {output_tokens} output tokens",
            hint="both must be at least 1; remove the row if the request failed",
        )
    if previous is not None and offset_s < previous.offset_s:
        raise InputError(
            f"{where}: this request is {previous.offset_s - offset_s:.3f} s earlier than the one before it",
            hint="sort the rows by their time",
        )
    return Request(offset_s=offset_s, prompt_tokens=prompt_tokens, output_tokens=output_tokens)


def whole(where: str, column: str, text: str) -> int:
    """An integer cell; raises `InputError` naming place, column and value."""
    try:
        return int(text)
    except ValueError:
        raise InputError(
            f"{where}: {column} is {text!r}, not a whole number", hint="token counts are integers"
        ) from None


def workload(path: Path, requests: list[Request]) -> Workload:
    """Requests with their source; raises `InputError` for fewer than two or no time between them."""
    if len(requests) < 2 or requests[-1].offset_s <= requests[0].offset_s:
        raise InputError(
            f"{path} holds {len(requests)} requests over no time: there is no rate to replay",
            hint="a workload needs at least two requests with different times",
        )
    return Workload(
        name=path.stem,
        source=str(path),
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        requests=tuple(requests),
    )
