"""Which trial wins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autotune.domain.outcome import Measured, Trial, Window
from autotune.domain.space import SearchSpace, world_size

TIE = 0.02
"""Capacities this close are one: the noise of repeated windows (docs/adr/0001)."""


def choose(trials: Sequence[Trial], space: SearchSpace, *, fixed_rate: bool) -> Trial | None:
    """The trial with the highest capacity; in fixed-rate mode the one deepest inside its limits.

    Ties within 2 % go to fewer GPUs, fewer changed settings, the lower percentile, the earlier trial.
    None when no trial held the SLA.
    """
    held = [trial for trial in trials if score(trial, fixed_rate=fixed_rate) is not None]
    if not held:
        return None
    best = max(_score(trial, fixed_rate) for trial in held)
    tied = [trial for trial in held if _score(trial, fixed_rate) >= best * (1 - TIE)]
    return min(
        tied,
        key=lambda trial: (
            world_size(trial.point),
            len(space.changed(trial.point)),
            -_depth(trial),
            trial.number,
        ),
    )


def score(trial: Trial, *, fixed_rate: bool) -> float | None:
    """Capacity in requests/s, or limit / value of the tightest objective; None when the SLA was not held."""
    if not isinstance(trial.outcome, Measured) or trial.outcome.capacity.low_rps is None:
        return None
    return _depth(trial) if fixed_rate else trial.outcome.capacity.low_rps


def _score(trial: Trial, fixed_rate: bool) -> float:
    return score(trial, fixed_rate=fixed_rate) or 0.0


def _depth(trial: Trial) -> float:
    if not isinstance(trial.outcome, Measured):
        return 0.0
    low = trial.outcome.capacity.low_speed
    return depth(window for window in trial.outcome.windows if window.speed == low)


def depth(windows: Iterable[Window]) -> float:
    """Limit / value of the tightest objective in these windows; 0 when they hold no value."""
    ratios = [
        count.slo.limit_s / max(count.value_s, 1e-9)
        for window in windows
        for count in window.measurement.counts
        if count.value_s is not None
    ]
    return min(ratios, default=0.0)
