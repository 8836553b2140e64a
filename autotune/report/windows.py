"""Which trials and windows the report shows."""

from __future__ import annotations

from autotune.domain.measurement import Count
from autotune.domain.outcome import Confirmation, Measured, Result, Stopped, Trial, Window
from autotune.domain.run import Run
from autotune.domain.slo import Slo
from autotune.score.bracket import Bracket, bracket


def windows_of(trial: Trial) -> tuple[Window, ...]:
    """The windows that a trial was loaded with, if it got so far."""
    return trial.outcome.windows if isinstance(trial.outcome, Measured | Stopped) else ()


def rate_rps(run: Run, window: Window) -> float:
    """The request rate of a window that can be compared: its speed times the recorded rate of its slice.

    What it was really offered is `Measurement.rate_rps`, which also holds how busy its part of the slice is.
    """
    return window.speed * (run.held_rate_rps if window.phase == "confirm" else run.search_rate_rps)


def lowest(windows: tuple[Window, ...]) -> Window | None:
    """The slowest window."""
    return min(windows, key=lambda window: window.speed, default=None)


def highest_held(trial: Trial) -> Window | None:
    """The fastest window that passed inside the trial's bracket."""
    return _at(trial, _bracket(trial).low, passed=True)


def first_failed(trial: Trial) -> Window | None:
    """The slowest window that failed."""
    return _at(trial, _bracket(trial).high, passed=False)


def _bracket(trial: Trial) -> Bracket:
    return bracket((window.speed, window.passed) for window in windows_of(trial))


def _at(trial: Trial, speed: float | None, *, passed: bool) -> Window | None:
    return next((one for one in windows_of(trial) if (one.speed, one.passed) == (speed, passed)), None)


def fixed_window(trial: Trial) -> Window | None:
    """The window that speaks for a trial at a fixed rate: the one that held, else the first."""
    return highest_held(trial) or next(iter(windows_of(trial)), None)


def by_number(trials: tuple[Trial, ...], number: int | None) -> Trial | None:
    """The trial of that number."""
    return next((trial for trial in trials if trial.number == number), None)


def count_of(window: Window, slo: Slo | None) -> Count | None:
    """What a window counted for one objective."""
    return next((count for count in window.measurement.counts if count.slo == slo), None)


def tightest(window: Window) -> Count | None:
    """The objective whose percentile takes most of its limit; None when none of them has a value."""
    seen = [count for count in window.measurement.counts if count.value_s is not None]
    return max(seen, key=lambda count: (count.value_s or 0.0) / count.slo.limit_s, default=None)


def confirmation_of(result: Result, number: int | None) -> Confirmation | None:
    """The confirmation of a trial, when it was launched and loaded."""
    return next((one for one in result.confirmations if one.trial == number and one.windows), None)


def challenger(result: Result) -> Confirmation | None:
    """The confirmation of the best of the rest when it was not taken all the same."""
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
