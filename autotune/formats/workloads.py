"""Read a workload, whatever its format: the first line decides, not the name."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, cast

from autotune.domain.workload import Workload
from autotune.errors import InputError
from autotune.extensions import load_all
from autotune.formats.reading import text_lines


class Format(Protocol):
    """A module in the entry point group `autotune.formats`."""

    def sniff(self, head: str) -> bool:
        """True when a file that begins with this line is of this format."""
        ...

    def read(self, path: Path) -> Workload:
        """The whole file; raises `InputError` with file:line."""
        ...


def read_workload(path: Path) -> Workload:
    """The workload in `path`; raises `InputError` when it is missing, empty or of no known format."""
    if not path.exists():
        raise InputError(f"no workload at {path}", hint="check --workload")
    if path.is_dir():
        raise InputError(f"the workload {path} is a folder", hint="name a file")
    head = next(text_lines(path), None)
    if head is None:
        raise InputError(f"the workload {path} is empty", hint="it must hold at least two requests")
    formats = load_all("autotune.formats")
    for module in formats.values():
        one = cast("Format", module)
        if one.sniff(head[1]):
            return one.read(path)
    raise InputError(
        f"{path}:{head[0]}: no known workload format begins like this: {head[1][:60]!r}",
        hint=f"known formats: {', '.join(sorted(formats))}; see docs/reference/workloads.md",
    )
