"""Recordings on their way in and out: files opened with a bar, and written whole."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from autotune.domain.workload import Request
from autotune.errors import InputError
from autotune.formats import native
from autotune.formats.disk import Advanced
from autotune.formats.reading import LATEST_S
from autotune.formats.workloads import Opened, open_recording
from autotune.report.words import plural
from autotune.whole import whole

STDOUT = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a recording is written: a new file, or standard output."""

    path: Path | None

    @classmethod
    def parse(cls, out: str, *, force: bool) -> Target:
        """Raises `InputError` for a file that is there already, and for a place where none can be."""
        if out == STDOUT:
            return cls(path=None)
        path = Path(out)
        try:
            there, file, folder = path.exists(), path.is_file(), path.parent.is_dir()
        except OSError as error:
            raise InputError(f"--out {out!r}: {error.strerror}", hint="choose another name") from error
        if not out or (there and not file):
            raise InputError(f"--out {out!r} is not a file", hint="name a file, or - for standard output")
        if there and not force:
            raise InputError(f"{path} is there already", hint="choose another name, or add --force")
        if not folder:
            raise InputError(f"{path}: there is no folder {path.parent}", hint="make the folder first")
        return cls(path=path)


@contextmanager
def opened(*paths: Path, skip_bad: int, tell: bool = True) -> Iterator[tuple[Opened, ...]]:
    """Recordings to be read within the block, with a bar on a terminal; then the rows left out are told."""
    with _advancing(paths) as advanced:
        found = tuple(
            open_recording(path, skip_bad=skip_bad, advanced=one)
            for path, one in zip(paths, advanced, strict=True)
        )
        yield found
    for line in (line for one in found if tell for line in one.source.skipped):
        say(f"left out: {line}")


@contextmanager
def _advancing(paths: Sequence[Path]) -> Iterator[list[Advanced | None]]:
    """For each file what hears of the bytes read; None where nobody would see it."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield [None] * len(paths)
        return
    read = [0] * len(paths)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
    ) as bar:
        total = sum(path.stat().st_size for path in paths if path.is_file())
        task = bar.add_task("reading", total=total)

        def hears(place: int, done: int, _: int | None) -> None:
            read[place] = done
            bar.update(task, completed=sum(read))

        yield [partial(hears, place) for place in range(len(paths))]


def write(
    target: Target,
    requests: Iterable[Request],
    sources: Sequence[Opened],
    *,
    timed: bool | None = None,
    block_tokens: int | None = None,
    text: bool = False,
) -> None:
    """Write what was made of the sources; raises `InputError` when nothing is left or can be written.

    A file with the text of prompts is for its owner only, and so is one made of such.
    """
    kept, every = keeps_text(requests)
    if kept is None:
        raise InputError("no request is left to write", hint="autotune workload inspect says what there is")
    header = native.Header(
        block_tokens=block_tokens or sources[0].recording.block_tokens,
        timed=sources[0].recording.timed if timed is None else timed,
        counted=all(one.recording.counted for one in sources),
        text=text or kept,
    )
    every = _within_time(every)
    if target.path is None:
        native.write(header, every, sys.stdout.buffer)
        return
    mode = 0o600 if header.text else 0o644
    for one in sources:
        mode &= one.source.path.stat().st_mode | 0o600
    try:
        with whole(target.path, mode=mode) as part, part.open("wb") as file:
            written = native.write(header, every, file)
    except OSError as error:
        raise InputError(
            f"cannot write {target.path}: {error.strerror}", hint="choose another place with --out"
        ) from error
    say(f"{target.path}: {plural(written, 'request')}")


def _within_time(requests: Iterable[Request]) -> Iterator[Request]:
    for request in requests:
        if not request.offset_s <= LATEST_S:
            raise InputError(
                f"a request would arrive after {request.offset_s:.3g} s: no recording lasts so long",
                hint="choose a higher --speed or --rate",
            )
        yield request


def keeps_text(requests: Iterable[Request]) -> tuple[bool | None, Iterator[Request]]:
    """Whether the first request has its body, None without any, and all of them; no format mixes."""
    stream = iter(requests)
    first = next(stream, None)
    return (None, stream) if first is None else (first.body is not None, chain((first,), stream))


def say(text: str) -> None:
    """A word to the person at the terminal."""
    print(text, file=sys.stderr)
