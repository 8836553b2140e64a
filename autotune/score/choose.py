"""Which trial wins, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autotune.domain.outcome import Cause, Confirmation, Faulted, Infeasible, Measured, Trial, Window
from autotune.domain.run import Run
from autotune.domain.space import SearchSpace, world_size

TIE = 0.02
"""Capacities this close are one: the noise of repeated windows (docs/adr/0001)."""


def choose(trials: Sequence[Trial], space: SearchSpace, *, fixed_rate: bool) -> Trial | None:
    """The trial with the highest capacity; in fixed-rate mode the one deepest inside its limits.

    Ties within 2 % go to fewer GPUs, fewer changed settings, the lower percentile, the earlier trial.
    None when no trial held the SLA.
    """
    scored = [trial for trial in trials if score(trial, fixed_rate=fixed_rate) is not None]
    if not scored:
        return None
    best = max(_score(trial, fixed_rate) for trial in scored)
    tied = [trial for trial in scored if _score(trial, fixed_rate) >= best * (1 - TIE)]
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


def held(trial: Trial) -> bool:
    """True when a window of the trial's search held the SLA."""
    return isinstance(trial.outcome, Measured) and trial.outcome.capacity.low_speed is not None


def _nothing(run: Run, trials: Sequence[Trial]) -> str:
    """Why there is no winner."""
    if not any(isinstance(trial.outcome, Measured | Infeasible) for trial in trials):
        why = next((one.outcome.reason for one in reversed(trials) if isinstance(one.outcome, Faulted)), None)
        return f"nothing was judged: {why}" if why else "nothing was judged"
    first = trials[0].outcome
    if run.quality_limit is not None and isinstance(first, Infeasible) and first.cause is not Cause.BAD_FLAG:
        return (
            "no trial held the SLA; the default precision does not run here, so no other could be compared: "
            "--quality off tunes without the gate"
        )
    return "no trial held the SLA"


def verdict(
    run: Run, trials: Sequence[Trial], confirmations: Sequence[Confirmation]
) -> tuple[int | None, str]:
    """Which trial to deploy, and why: never worse than the defaults, as far as was measured.

    None when no trial held the SLA, or none that was measured again held it on held-out traffic.
    """
    fixed = run.load.at is not None  # then both hold the same speed, and the latency decides
    best = choose(trials, run.space, fixed_rate=fixed)
    if best is None:
        return None, _nothing(run, trials)
    confirmed = {
        one.trial: (one.speed, depth(one.windows[-1:]) if fixed else 0.0) if one.speed else None
        for one in confirmations
        if one.windows
    }
    mine, default = confirmed.get(best.number), confirmed.get(0)
    if best.number == 0:
        others = [one for one in trials[1:] if isinstance(one.outcome, Measured | Infeasible)]
        reason = "nothing beat them" if others else "no other configuration was judged"
        doubt = ", but they did not hold on held-out traffic" if 0 in confirmed and mine is None else ""
        return 0, f"keep the engine's defaults: {reason}{doubt}"
    if best.number in confirmed and mine is None:
        if held(trials[0]):
            also = ", nor did they" if 0 in confirmed and default is None else ""
            return (
                0,
                f"keep the engine's defaults: trial {best.number} did not hold on held-out traffic{also}",
            )
        return None, f"trial {best.number} is the best attainable, but did not hold on held-out traffic"
    if mine and default and mine <= default:
        return 0, f"keep the engine's defaults: trial {best.number} was no better on held-out traffic"
    what = "has the lowest latency" if fixed else "carries the most traffic"
    doubt = "" if best.number in confirmed else ", not confirmed on held-out traffic"
    return best.number, f"trial {best.number} {what}{doubt}"
