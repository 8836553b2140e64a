"""Which trials and windows the report shows."""

from __future__ import annotations

from autotune.domain.measurement import Count
from autotune.domain.outcome import Confirmation, Measured, Result, Stopped, Trial, Window
from autotune.domain.slo import Slo


def windows_of(trial: Trial) -> tuple[Window, ...]:
    """The windows that a trial was loaded with, if it got so far."""
    return trial.outcome.windows if isinstance(trial.outcome, Measured | Stopped) else ()


def lowest_rate_rps(windows: tuple[Window, ...]) -> float | None:
    """The lowest rate that was offered."""
    return min((window.measurement.rate_rps for window in windows), default=None)


def highest_held(trial: Trial) -> Window | None:
    """The fastest window that passed inside the trial's bracket.

    A pass above a fail is noise: the fail stands, as it does in the climb.
    """
    failed = first_failed(trial)
    held = [
        window
        for window in windows_of(trial)
        if window.passed and (failed is None or window.speed < failed.speed)
    ]
    return max(held, key=lambda window: window.speed, default=None)


def first_failed(trial: Trial) -> Window | None:
    """The slowest window that failed."""
    failed = [window for window in windows_of(trial) if not window.passed]
    return min(failed, key=lambda window: window.speed, default=None)


def by_number(trials: tuple[Trial, ...], number: int | None) -> Trial | None:
    """The trial of that number."""
    return next((trial for trial in trials if trial.number == number), None)


def count_of(window: Window, slo: Slo | None) -> Count | None:
    """What a window counted for one objective."""
    return next((count for count in window.measurement.counts if count.slo == slo), None)


def confirmation_of(result: Result, number: int | None) -> Confirmation | None:
    """The confirmation of a trial, when it was launched and loaded."""
    return next((one for one in result.confirmations if one.trial == number and one.windows), None)


def challenger(result: Result) -> Confirmation | None:
    """The confirmation of the best of the rest when the defaults are kept all the same."""
    return next((one for one in result.confirmations if not one.default and one.windows), None)


def best_other(result: Result) -> Trial | None:
    """The challenger, or else the trial that carried most among those that changed something."""
    lost = challenger(result)
    if lost is not None:
        return by_number(result.trials, lost.trial)
    held = [
        (trial.outcome.capacity.low_speed, -trial.number, trial)
        for trial in result.trials
        if trial.number != 0
        and isinstance(trial.outcome, Measured)
        and trial.outcome.capacity.low_speed is not None
    ]
    return max(held, key=lambda one: one[:2])[2] if held else None
