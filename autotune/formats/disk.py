"""A file's raw lines, unpacked where it begins like gzip or Zstandard data; its name does not matter."""

from __future__ import annotations

import contextlib
import gzip
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from autotune.errors import InputError

LONGEST_LINE = 10_000_000
"""Bytes; more in one line is no request."""

_CHUNK = 1 << 20
_KINDS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}

Advanced = Callable[[int, int | None], None]
"""Hears how many bytes of the file on disk were read, and how many there are."""


class Line(NamedTuple):
    """One line without its line feed; `ended` is False for a last line that has none.

    `raw` is None for a line of more than `LONGEST_LINE` bytes.
    """

    number: int
    raw: bytes | None
    ended: bool


def raw_lines(path: Path, *, advanced: Advanced | None = None) -> Iterator[Line]:
    """Numbered lines, a byte order mark removed.

    Raises `InputError` with file:line for what cannot be read or unpacked.
    """
    place = [1]
    rest, overlong = b"", False
    for chunk in _chunks(path, lambda: place[0], advanced):
        *ended, rest = (rest + chunk).split(b"\n")
        for raw in ended:
            if overlong:  # the end of a line that was given out already
                overlong = False
            else:
                yield Line(place[0], raw if len(raw) <= LONGEST_LINE else None, ended=True)
            place[0] += 1
        if len(rest) > LONGEST_LINE or overlong:
            if not overlong:
                yield Line(place[0], None, ended=True)
            rest, overlong = b"", True
    if rest:
        yield Line(place[0], rest, ended=False)


def contents(path: Path, *, at_most: int, advanced: Advanced | None = None) -> bytearray:
    """All bytes, unpacked, a byte order mark removed; raises `InputError` for more than `at_most`."""
    held = bytearray()
    for chunk in _chunks(path, lambda: 1 + held.count(b"\n"), advanced):
        held.extend(chunk)
        if len(held) > at_most:
            raise InputError(
                f"{path}:1: more than {at_most // 2**20} MiB of JSON in one piece",
                hint="split the file, or convert it to one request a line",
            )
    return held


def beginning(path: Path, *, at_most: int) -> bytes:
    """The first bytes, unpacked, a byte order mark removed; as many as there are before any damage."""
    held = b""
    try:
        for chunk in _chunks(path, lambda: 1, None):
            held += chunk
            if len(held) >= at_most:
                break
    except InputError:
        if not held:
            raise
    return held[:at_most]


def _chunks(path: Path, line: Callable[[], int], advanced: Advanced | None) -> Iterator[bytes]:
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("rb"))
            kind, read = _unpacking(file, stack)
        except OSError as error:
            raise InputError(
                f"cannot read the workload {path}: {error.strerror}", hint="check --workload"
            ) from error
        size = os.fstat(file.fileno()).st_size
        first = True
        while True:
            try:
                chunk = read(_CHUNK)
            # pyarrow's errors are OSError and ValueError
            except (OSError, EOFError, ValueError, zlib.error) as error:
                raise _broken(f"{path}:{line()}", kind, error) from error
            if advanced is not None:
                advanced(file.tell(), size)
            if not chunk:
                return
            yield chunk.removeprefix(b"\xef\xbb\xbf") if first else chunk
            first = False


def _unpacking(file: BinaryIO, stack: contextlib.ExitStack) -> tuple[str | None, Callable[[int], bytes]]:
    """The kind of packing, None for none, and what reads the unpacked bytes."""
    head = file.read(4)
    file.seek(0)
    kind = next((name for magic, name in _KINDS.items() if head.startswith(magic)), None)
    if kind == "gzip":
        return kind, stack.enter_context(gzip.GzipFile(fileobj=file)).read1
    if kind == "zstd":
        import pyarrow as pa  # noqa: PLC0415  costs 0.3 s, which only such a file is worth

        return kind, stack.enter_context(pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")).read
    return None, file.read


def _broken(where: str, kind: str | None, error: Exception) -> InputError:
    if kind is None:
        why = error.strerror if isinstance(error, OSError) else error
        return InputError(f"{where}: cannot be read: {why}", hint="check the disk")
    if isinstance(error, EOFError) or "runcated" in str(error):
        return InputError(
            f"{where}: the {kind} data ends in the middle",
            hint="copy the file again, or unpack what is there and read that",
        )
    said = str(error).splitlines()[0][:80] if str(error) else type(error).__name__
    return InputError(
        f"{where}: the {kind} data is damaged: {said}", hint="copy the file again, or read it unpacked"
    )
