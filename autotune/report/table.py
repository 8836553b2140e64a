"""The settings that changed, and every trial as a row and as a point of the history."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from autotune.domain.outcome import Faulted, Infeasible, Measured, Quality, Stopped, Trial
from autotune.domain.run import Run
from autotune.report.windows import windows_of
from autotune.report.words import bracket, value_text
from autotune.units import show_duration


class Kind(Enum):
    """How a trial ended, as the table and the history mark it."""

    MEASURED = "measured"
    NEVER_HELD = "held at no rate tried"
    INFEASIBLE = "infeasible"
    STOPPED = "stopped by the budget"
    FAULTED = "nothing learned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A flag that the tuned configuration changes."""

    name: str
    default: str
    tuned: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """One line of the trials table; what a trial has not got is an empty string."""

    number: int
    winner: bool
    origin: str
    changed: tuple[tuple[str, str], ...]
    kind: Kind
    rates: str
    speeds: str
    cause: str
    evidence: str
    quality: str
    start: str
    windows: int
    seconds: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPoint:
    """One trial over the course of the run; `best_rps` is the most that held up to and with it."""

    number: int
    winner: bool
    kind: Kind
    low_rps: float | None
    high_rps: float | None
    best_rps: float | None
    text: str


def settings(run: Run, tuned: Trial | None) -> tuple[Setting, ...]:
    """What the tuned configuration changes, in the order of the search space."""
    if tuned is None:
        return ()
    parameters = {parameter.name: parameter for parameter in run.space.parameters}
    return tuple(
        Setting(
            name=name,
            default=value_text(parameters[name].default),
            tuned=value_text(value),
            why=parameters[name].why,
        )
        for name, value in run.space.changed(tuned.point).items()
    )


def quality_of(trial: Trial | None) -> Quality | None:
    """What the gate said of a trial, if it was asked."""
    match None if trial is None else trial.outcome:
        case Measured(quality=quality) | Infeasible(quality=quality):
            return quality
        case _:
            return None


def _kind(trial: Trial) -> Kind:
    match trial.outcome:
        case Measured(capacity=capacity):
            return Kind.NEVER_HELD if capacity.low_rps is None else Kind.MEASURED
        case Infeasible():
            return Kind.INFEASIBLE
        case Stopped():
            return Kind.STOPPED
        case Faulted():
            return Kind.FAULTED


def trial_row(run: Run, trial: Trial, winner: int | None) -> TrialRow:
    """A trial as one line of the table."""
    rate, speed, cause, evidence, start = "", "", "", "", ""
    match trial.outcome:
        case Measured(capacity=capacity, facts=facts):
            rate = bracket(capacity.low_rps, capacity.high_rps)
            speed = bracket(capacity.low_speed, capacity.high_speed)
            start = show_duration(facts.start_s)
        case Infeasible(cause=why, evidence=line):
            cause, evidence = why.value, line
        case Stopped(reason=reason) | Faulted(reason=reason):
            evidence = reason
    quality = quality_of(trial)
    return TrialRow(
        number=trial.number,
        winner=trial.number == winner,
        origin=trial.origin,
        changed=tuple((name, value_text(value)) for name, value in run.space.changed(trial.point).items()),
        kind=_kind(trial),
        rates=rate,
        speeds=speed,
        cause=cause,
        evidence=evidence,
        quality="" if quality is None else f"{quality.perplexity:.2f} ({quality.increase * 100:+.2f} %)",
        start=start,
        windows=len(windows_of(trial)),
        seconds=show_duration(trial.seconds),
    )


def low_rps(trial: Trial) -> float | None:
    """The highest rate at which a trial held the SLA."""
    return trial.outcome.capacity.low_rps if isinstance(trial.outcome, Measured) else None


def history(run: Run, trials: tuple[Trial, ...], winner: int | None) -> tuple[HistoryPoint, ...]:
    """The trials in the order in which they ran; nothing at a fixed speed, where all that hold are level."""
    if run.load.at is not None:
        return ()
    points: list[HistoryPoint] = []
    best: float | None = None
    for trial in trials:
        low, high = low_rps(trial), None
        if isinstance(trial.outcome, Measured):
            high = trial.outcome.capacity.high_rps
        if low is not None:
            best = max(low, best or 0.0)
        row = trial_row(run, trial, winner)
        changed = ", ".join(f"{name}={value}" for name, value in row.changed) or "the engine's defaults"
        said = f"{row.rates} req/s" if row.rates else ": ".join(filter(None, (row.cause, row.evidence)))
        points.append(
            HistoryPoint(
                number=trial.number,
                winner=row.winner,
                kind=row.kind,
                low_rps=low,
                high_rps=high,
                best_rps=best,
                text=f"trial {trial.number}: {said} ({changed})",
            )
        )
    return tuple(points)
