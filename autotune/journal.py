"""The run folder: `run.yaml`, an append-only `journal.jsonl`, and `trials/NNNN/`.

The folder is the only truth. Every line is fsync'd before work goes on, so that SIGKILL at any moment loses
at most the line being written; a torn last line is cut off when the journal is opened again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from autotune.domain.client import OwnError
from autotune.domain.outcome import (
    Confirmation,
    Faulted,
    Infeasible,
    Measured,
    Outcome,
    Quality,
    Result,
    Stopped,
    Trial,
)
from autotune.domain.run import Run
from autotune.domain.space import Value
from autotune.errors import InputError, JournalError, SetupError

JOURNAL = "journal.jsonl"
RUN = "run.yaml"
_OUTCOMES: dict[str, type[Outcome]] = {
    kind.__name__: kind for kind in (Measured, Infeasible, Stopped, Faulted)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A trial that was begun: its point, for a resume that must launch the same one."""

    number: int
    point: Mapping[str, Value]
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """An engine process that was started, as `engine.process.Owned` knows it."""

    session: int
    began: float
    boot: str


@dataclass(slots=True)
class History:
    """What the journal says so far."""

    trials: list[Trial] = field(default_factory=list)
    qualities: dict[str, Quality] = field(default_factory=dict)
    confirmations: list[Confirmation] = field(default_factory=list)
    begun: Started | None = None
    launched: list[Launched] = field(default_factory=list)
    spent_s: float = 0.0
    ended: str | None = None
    client: OwnError | None = None


class Journal:
    """The open journal of one run; holds a lock so that two tuners never share a folder."""

    def __init__(self, folder: Path) -> None:
        """Open for appending; raises `JournalError` when another process has it."""
        self.folder = folder
        self.path = folder / JOURNAL
        self._file = self.path.open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise JournalError(
                f"{folder} is in use by another autotune", hint="wait for it, or stop it with Ctrl-C"
            ) from None
        self._cut_torn_line()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _cut_torn_line(self) -> None:
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.truncate(self.path, whole)

    def write(self, event: str, **words: object) -> None:
        """Append one line and wait until it is on disk. `OSError` when the disk is full."""
        line = {"at": now(), "event": event, **words}
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def trial(self, trial: Trial) -> None:
        """One finished trial, one line; the outcome's kind stands beside its fields."""
        self.write("trial", trial=trial, kind=type(trial.outcome).__name__)

    def history(self) -> History:
        """Read everything back; raises `JournalError` with file:line for a damaged line."""
        history = History()
        for number, line in enumerate(self.path.read_bytes().splitlines(), 1):
            try:
                _apply(history, msgspec.json.decode(line))
            except (msgspec.DecodeError, msgspec.ValidationError, KeyError, TypeError) as error:
                raise JournalError(
                    f"{self.path}:{number}: damaged line: {error}",
                    hint="restore the file, or remove this line and what follows it",
                ) from error
        return history


def _apply(history: History, line: dict[str, Any]) -> None:
    match line["event"]:
        case "begun":
            history.begun = msgspec.convert(line["trial"], Started)
        case "launched":
            history.launched.append(msgspec.convert(line["process"], Launched))
        case "stopped":
            history.launched = [one for one in history.launched if one.session != line["session"]]
        case "quality":
            quality = msgspec.convert(line["quality"], Quality)
            history.qualities[quality.precision] = quality
        case "trial":
            history.trials.append(read_trial(line["trial"], line["kind"]))
            history.begun = None
            history.spent_s += history.trials[-1].seconds
        case "confirmation":
            history.confirmations.append(msgspec.convert(line["confirmation"], Confirmation))
            history.spent_s += line["seconds"]
        case "client":
            history.client = msgspec.convert(line["own"], OwnError)
        case "ended":
            history.ended = line["reason"]
        case _:  # a newer version may add lines; what they say is not needed here
            pass


def read_trial(raw: dict[str, Any], kind: str) -> Trial:
    """A `Trial` from its JSON form and the name of its outcome's class."""
    outcome: Outcome = msgspec.convert(raw["outcome"], _OUTCOMES[kind])
    plain = {item.name: raw[item.name] for item in fields(Trial) if item.name != "outcome"}
    return Trial(**plain, outcome=outcome)


def now() -> str:
    """Wall-clock time with its zone, for dating lines; it measures nothing."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def create(folder: Path, run: Run) -> None:
    """Make the run folder and write `run.yaml` with its digest.

    Raises `InputError` when the folder holds something, `SetupError` when it cannot be written.
    """
    check_folder(folder)
    try:
        (folder / "trials").mkdir(parents=True)
        body = msgspec.yaml.encode(run)
        digest = hashlib.sha256(body).hexdigest()
        (folder / RUN).write_bytes(f"# sha256 of what follows: {digest}\n".encode() + body)
        (folder / JOURNAL).touch()
    except OSError as error:
        raise SetupError(
            f"cannot write the run folder {folder}: {error.strerror}", hint="choose --out"
        ) from error


def check_folder(folder: Path) -> None:
    """Raise `InputError` for a folder that holds something or a file in its place."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder} is a file", hint="name a folder that does not exist yet")
    if folder.is_dir() and any(folder.iterdir()):
        resume = f"autotune resume {folder}" if (folder / RUN).exists() else "choose another folder"
        raise InputError(f"--out {folder} is not empty", hint=resume)
    parent = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not os.access(parent, os.W_OK | os.X_OK):
        raise SetupError(
            f"cannot write the run folder {folder}: no permission in {parent}", hint="choose --out"
        )


def load(folder: Path) -> Run:
    """The run of a folder; raises `JournalError` when it is none, or was edited."""
    path = folder / RUN
    try:
        head, _, body = path.read_bytes().partition(b"\n")
    except OSError as error:
        raise JournalError(
            f"{folder} is not a run folder: {path} {error.strerror or error}",
            hint="give the folder that `autotune run` named",
        ) from error
    if hashlib.sha256(body).hexdigest().encode() not in head:
        raise JournalError(f"{path} was edited after the run began", hint="start a new run instead")
    with contextlib.suppress(msgspec.ValidationError, msgspec.DecodeError):
        return msgspec.yaml.decode(body, type=Run)
    raise JournalError(f"{path} was written by another version of autotune", hint="use the version it names")


def result(history: History, *, winner: int | None, reason: str, seconds: float) -> Result:
    """The run's result from its history."""
    return Result(
        trials=tuple(history.trials),
        winner=winner,
        confirmations=tuple(history.confirmations),
        reason=reason,
        seconds=seconds,
        client=history.client,
    )
