"""What the two latency charts show: which windows, in whose colour."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from autotune.domain.measurement import State
from autotune.domain.outcome import Confirmation, Trial, Window
from autotune.domain.run import Run
from autotune.domain.slo import Metric, Slo
from autotune.report.windows import count_of, first_failed, highest_held, rate_rps, windows_of
from autotune.report.words import three

Shown = Iterable[tuple[str, Trial | None]]
"""The trials to compare with their names, the default first."""


class Role(Enum):
    """Whose colour a mark wears; the page gives each one a shade for light and for dark."""

    DEFAULT = "default"
    TUNED = "tuned"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """One window: its rate, what it was really offered, and the percentile that came of it.

    `tail_s` is None when the percentile falls on a request without an answer.
    """

    phase: str
    confirmation: bool
    rate_rps: float
    rate: str
    offered: str
    speed: str
    tail_s: float | None
    passed: bool
    bad: str
    state: State
    throughput: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadLine:
    """The windows of one trial, by rate."""

    name: str
    role: Role
    points: tuple[LoadPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCurve:
    """Request rate against the percentile that `slo` bounds."""

    slo: Slo
    name: str
    lines: tuple[LoadLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyCurve:
    """A window whose latencies are drawn; `n` values were judged, `timings` is its file."""

    name: str
    role: Role
    held: bool
    rate_rps: float
    n: int
    timings: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyCurves:
    """Distributions of one metric; `slo` is None when the SLA sets it no limit."""

    metric: Metric
    slo: Slo | None
    curves: tuple[LatencyCurve, ...]


def load_curve(run: Run, shown: Shown, confirmations: tuple[Confirmation, ...]) -> LoadCurve:
    """All windows of the trials shown, those of their confirmations included."""
    slo, lines = run.sla.slos[0], []
    for role, (name, trial) in zip(Role, shown, strict=True):
        if trial is None:
            continue
        windows = [*windows_of(trial)]
        windows += [window for one in confirmations if one.trial == trial.number for window in one.windows]
        points = [_load_point(run, window, slo) for window in windows]
        if points:
            ordered = tuple(sorted(points, key=lambda point: point.rate_rps))
            lines.append(LoadLine(name=f"{name} (trial {trial.number})", role=role, points=ordered))
    return LoadCurve(slo=slo, name=f"{slo.metric.name} p{slo.percentile:g}", lines=tuple(lines))


def _load_point(run: Run, window: Window, slo: Slo) -> LoadPoint:
    measurement = window.measurement
    early = ", stopped early" if measurement.curtailed else ""
    count, rate = count_of(window, slo), rate_rps(run, window)
    return LoadPoint(
        phase=window.phase,
        confirmation=window.phase == "confirm",
        rate_rps=rate,
        rate=three(rate),
        offered=three(measurement.rate_rps),
        speed=three(window.speed),
        tail_s=None if count is None else count.value_s,
        passed=window.passed,
        bad="none judged" if count is None else f"{count.bad:,} of {count.n:,}{early}",
        state=window.verdict.state,
        throughput=three(measurement.output_tokens_per_s),
    )


def latency_curves(run: Run, shown: Shown) -> LatencyCurves:
    """The window in which each trial held its highest rate, and the one in which the default first failed.

    The metric is the first of the SLA that a request has one value of from its due time: TTFT or E2EL.
    """
    slo = next((one for one in run.sla.slos if one.metric in {Metric.TTFT, Metric.E2EL}), None)
    curves = []
    for role, (name, trial) in zip(Role, shown, strict=True):
        if trial is None:
            continue
        windows = [highest_held(trial)]
        if role is Role.DEFAULT:
            windows.append(first_failed(trial))
        curves += [_curve(run, name, role, window, slo) for window in windows if window is not None]
    metric = Metric.TTFT if slo is None else slo.metric
    return LatencyCurves(metric=metric, slo=slo, curves=tuple(curves))


def _curve(run: Run, name: str, role: Role, window: Window, slo: Slo | None) -> LatencyCurve:
    count = count_of(window, slo)
    return LatencyCurve(
        name=name,
        role=role,
        held=window.passed,
        rate_rps=rate_rps(run, window),
        n=window.measurement.sent if count is None else count.n,
        timings=window.timings,
    )
