"""The errors that leave `autotune`, each with a message, a hint and an exit code.

A finding (out of memory, SLA missed, quality lost) is a value, see `domain.outcome`; what stands
here is a failure that tells nothing about a configuration.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the command says to the shell; documented in docs/reference/exit-codes.md."""

    FOUND = 0
    BUG = 1
    INPUT = 2
    SETUP = 3
    INFEASIBLE = 4
    FAULTS = 5
    INTERRUPTED = 130


class AutotuneError(Exception):
    """A failure with one clear line and what to do about it."""

    exit_code = ExitCode.BUG

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(AutotuneError):
    """What the user wrote cannot be meant; the message holds the value and its place."""

    exit_code = ExitCode.INPUT


class SetupError(AutotuneError):
    """What this machine lacks: an engine, a GPU, a port, a writable folder."""

    exit_code = ExitCode.SETUP


class JournalError(AutotuneError):
    """The run folder does not fit this run, or is damaged."""

    exit_code = ExitCode.SETUP


class EngineError(AutotuneError):
    """The engine crashed or hung and the cause is unknown; becomes `Faulted`."""

    exit_code = ExitCode.FAULTS


class ReplayError(AutotuneError):
    """Our own client was late or cut off; becomes `Faulted`."""

    exit_code = ExitCode.FAULTS
