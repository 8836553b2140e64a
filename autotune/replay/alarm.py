"""A clock that wakes a loop to some tens of microseconds, where uvloop's timers count whole milliseconds."""

from __future__ import annotations

import ctypes
import os

_CLOCK_MONOTONIC = 1  # the clock of time.perf_counter_ns
_ABSOLUTE = 1
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


class _Setting(ctypes.Structure):
    """`struct itimerspec`: an interval, not used here, and the instant."""

    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "at_s", "at_ns")]


class Alarm:
    """A timer of the kernel as a file descriptor that is readable from an instant on: timerfd_create(2)."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = self._libc.timerfd_create(_CLOCK_MONOTONIC, _FLAGS)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        self._setting = _Setting(0, 0, 0, 0)
        self._pointer = ctypes.byref(self._setting)

    def fileno(self) -> int:
        """What an event loop waits for."""
        return self._fd

    def set(self, at_ns: int) -> None:
        """Ring at this instant of `perf_counter_ns`, at once if it is past, instead of at any set before."""
        self._setting.at_s, self._setting.at_ns = divmod(max(at_ns, 1), 1_000_000_000)
        self._libc.timerfd_settime(self._fd, _ABSOLUTE, self._pointer, None)

    def hush(self) -> None:
        """Take back a ring that was seen."""
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._fd)
