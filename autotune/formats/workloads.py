"""Open a workload, whatever its format: its beginning decides, not its name."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from autotune.domain.workload import Workload
from autotune.errors import InputError
from autotune.extensions import load_all
from autotune.formats.cells import shown
from autotune.formats.disk import Advanced
from autotune.formats.reading import Recording, Source


class Format(Protocol):
    """A module in the entry point group `autotune.formats`."""

    def sniff(self, head: str) -> bool:
        """True when a file whose text begins with `head` (64 KiB, or all of it) is of this format."""
        ...

    def read(self, source: Source) -> Recording:
        """The recording, its requests read as they are asked for; raises `InputError` with file:line."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A recording that is about to be read: the name of its format, the file, and what is in it."""

    format: str
    source: Source
    recording: Recording


def open_recording(path: Path, *, skip_bad: int = 0, advanced: Advanced | None = None) -> Opened:
    """The recording in `path`, up to `skip_bad` bad rows left out (`Opened.source.skipped` says which).

    `advanced` hears of the bytes read. Raises `InputError` when the file is missing, empty or of no known
    format; the requests raise it for bad rows.
    """
    try:
        if not path.exists():
            raise InputError(f"no workload at {path}", hint="check --workload")
        if path.is_dir():
            raise InputError(f"the workload {path} is a folder", hint="name a file")
        if not path.is_file():
            raise InputError(
                f"the workload {path} is not a regular file", hint="a workload is a CSV, JSONL or JSON file"
            )
    except OSError as error:
        raise InputError(
            f"cannot read the workload {path}: {error.strerror}", hint="check --workload"
        ) from error
    source = Source(path=path, skip_bad=skip_bad, advanced=advanced)
    head = source.head()
    if not head:
        raise InputError(f"the workload {path} is empty", hint="it must hold at least two requests")
    formats = load_all("autotune.formats")
    for name, module in formats.items():
        one = cast("Format", module)
        if one.sniff(head):
            return Opened(format=name, source=source, recording=one.read(source))
    first = next(number for number, _ in source.lines())
    raise InputError(
        f"{path}:{first}: no known workload format begins like this: {shown(head.splitlines()[0])}",
        hint=f"known formats: {', '.join(sorted(formats))}; see docs/reference/workloads.md",
    )


def read_workload(path: Path, *, skip_bad: int = 0) -> Workload:
    """The workload in `path`, all of it; raises `InputError` as `open_recording` and `gather` do."""
    return gather(open_recording(path, skip_bad=skip_bad))


def gather(opened: Opened) -> Workload:
    """An opened recording as a workload; afterwards `opened.source` knows all that was left out.

    Raises `InputError` for bad rows, fewer than two requests or, where they have times, none between them.
    """
    recording, path = opened.recording, opened.source.path
    requests = tuple(recording.requests)
    if len(requests) < 2 or (recording.timed and requests[-1].offset_s <= requests[0].offset_s):
        raise InputError(
            f"{path} holds {len(requests)} requests over no time: there is no rate to replay",
            hint="a workload needs at least two requests with different times",
        )
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Workload(
        name=path.stem,
        source=str(path),
        sha256=digest,
        requests=requests,
        block_tokens=recording.block_tokens,
        timed=recording.timed,
        counted=recording.counted,
    )
