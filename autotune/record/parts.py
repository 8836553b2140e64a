"""The files of a recording: each line written at once, in parts that each begin with the header."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from autotune.errors import InputError, SetupError

SYNC_S = 1.0


def create(path: Path) -> int:
    """A new file that only its owner can read, open for writing.

    Raises `InputError` when there is one already, `SetupError` when the folder does not take it.
    """
    try:
        return _create(path)
    except FileExistsError as error:
        raise InputError(
            f"--out {path} exists already", hint="a recording is never written over; name another file"
        ) from error
    except OSError as error:
        missing = error.errno in {errno.ENOENT, errno.ENOTDIR}
        raise SetupError(
            f"cannot write --out {path}: {error.strerror}",
            hint="make the folder first" if missing else "name a file in a folder that you may write to",
        ) from error


def _create(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    os.fchmod(fd, 0o600)  # whatever the umask says
    return fd


class Parts:
    """FILE, FILE.1, FILE.2 … as size and time ask for; `clock` counts seconds.

    A new part begins before the line that would make the last one larger than `rotate_bytes`, or that comes
    `rotate_s` or more after its beginning. `trouble` says what the disk said last.
    """

    def __init__(
        self,
        path: Path,
        fd: int,
        header: bytes,
        *,
        rotate_bytes: int | None,
        rotate_s: float | None,
        clock: Callable[[], float],
    ) -> None:
        self._path, self._fd, self._header = path, fd, header
        self._rotate_bytes, self._rotate_s, self._clock = rotate_bytes, rotate_s, clock
        self._began = self._synced = clock()
        self._size = 0
        self._rows = 0
        self._dirty = False
        self._number = 0
        self.count = 1
        self.trouble: str | None = None

    def write(self, line: bytes) -> bool:
        """Write one line, or nothing of it; False when the disk does not take it."""
        if self._rows and self._over(len(line)):
            self._next()
        data = line if self._size else self._header + line
        try:
            written = os.pwrite(self._fd, data, self._size)
            while written < len(data):  # the disk is all but full: what it says of the rest is why
                written += os.pwrite(self._fd, data[written:], self._size + written)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._fd, self._size)  # half a line is none
            return self._trouble(error.strerror)
        self._size += len(data)
        self._rows += 1
        self._dirty = True
        return True

    def begin(self) -> bool:
        """Write the header of a recording that may stay without requests."""
        written = self.write(b"")
        self._rows = 0
        return written

    def sync(self, *, now: bool = False) -> None:
        """Have the disk keep what was written, once a second."""
        if self._dirty and (now or self._clock() - self._synced >= SYNC_S):
            try:
                os.fsync(self._fd)
            except OSError as error:
                self._trouble(error.strerror)
            self._synced, self._dirty = self._clock(), False

    def _trouble(self, said: str | None) -> bool:
        self.trouble = f"{said or 'error'}: {self._path}"
        return False

    def _over(self, more: int) -> bool:
        large = self._rotate_bytes is not None and self._size + more > self._rotate_bytes
        return large or (self._rotate_s is not None and self._clock() - self._began >= self._rotate_s)

    def _next(self) -> None:
        """Go on in a new part; where none can be made, in the one that is open."""
        fd = None
        while fd is None:
            self._number += 1
            try:
                fd = _create(self._path.with_name(f"{self._path.name}.{self._number}"))
            except FileExistsError:
                continue
            except OSError as error:
                self._number -= 1
                self.trouble = f"{error.strerror}: {self._path}.{self._number + 1}"
                return
        self.sync(now=True)
        os.close(self._fd)
        self._fd, self._size, self._rows, self._began = fd, 0, 0, self._clock()
        self.count += 1
