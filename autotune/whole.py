"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole(path: Path, *, mode: int = 0o644) -> Iterator[Path]:
    """A place beside `path` to write to; it takes the name when the block ends well, else it is removed."""
    part = path.with_name(f".{path.name}.part")
    try:
        yield part
        part.chmod(mode)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
