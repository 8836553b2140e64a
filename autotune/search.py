"""Which point next: enqueued ones first, then Optuna's TPE over everything measured so far.

The study is never kept: it is rebuilt from the journal's trials for every question, so that a resumed run
asks exactly what an uninterrupted one would have asked. Source of the sampler: Bergstra et al., "Algorithms
for Hyper-Parameter Optimization", NeurIPS 2011, as `optuna.samplers.TPESampler`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import TrialState

from autotune.domain.outcome import Infeasible, Measured, Outcome, Trial
from autotune.domain.run import Run
from autotune.domain.slo import Sla
from autotune.domain.space import Point, SearchSpace, Value

STARTUP_TRIALS = 5
"""Optuna's own 10 would burn a third of a 30-trial budget (docs/adr/0001)."""
ATTEMPTS = 60
QUALITY = "quality"
VARIANT = "variant"
RUNS = "runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A point to launch and its origin: 'default', 'preset NAME', 'variant NAME', 'tpe' or 'neighbour'."""

    point: Point
    origin: str


def enqueued(space: SearchSpace) -> tuple[Ask, ...]:
    """What is tried before the sampler has a say: the defaults, the presets, each model variant alone.

    A variant on its own tells the quality gate early what it is worth, before others build on it.
    """
    default = space.default_point()
    asks = [Ask(point=default, origin="default")]
    for preset in space.presets:
        point = {**default, **preset.settings}
        if space.broken_rule(point) is None and point not in [ask.point for ask in asks]:
            asks.append(Ask(point=point, origin=f"preset {preset.name}"))
    for parameter in space.parameters:
        if parameter.name == VARIANT:
            asks += [
                Ask(point={**default, VARIANT: level}, origin=f"variant {level}")
                for level in parameter.levels
                if level != parameter.default
            ]
    return tuple(asks)


def ask(run: Run, trials: Sequence[Trial], *, refused: Callable[[Point], str | None]) -> Ask | None:
    """The next point that was not tried yet; None when the space is exhausted.

    `refused` gives a reason for a point that needs no launch: a broken rule, a precision that lost the
    quality gate. Such a proposal is told to the sampler as infeasible, and it is asked again.
    """
    seen = [dict(trial.point) for trial in trials]
    for candidate in enqueued(run.space):
        if dict(candidate.point) not in seen and refused(candidate.point) is None:
            return candidate
    study = rebuild(run, trials)
    space = distributions(run.space)
    if not space:
        return None
    for _ in range(ATTEMPTS):
        trial = study.ask(fixed_distributions=space)
        point = decode(run.space, trial.params)
        if refused(point) is not None:
            for key, value in constraints(run.sla, None, refused=True).items():
                trial.set_constraint(key, value)
            study.tell(trial, values=floor(run, trials))
        elif point in seen:
            study.tell(trial, state=TrialState.FAIL)
        else:
            return Ask(point=point, origin="tpe")
    return _untried(run, seen, refused)


def _untried(run: Run, seen: list[dict[str, Value]], refused: Callable[[Point], str | None]) -> Ask | None:
    """A neighbour of a point that was tried, the latest first: the sampler keeps repeating itself."""
    for base in reversed(seen):
        for parameter in run.space.parameters:
            for level in parameter.levels:
                point = {**base, parameter.name: level}
                if point not in seen and refused(point) is None:
                    return Ask(point=point, origin="neighbour")
    return None


def distributions(space: SearchSpace) -> dict[str, BaseDistribution]:
    """Ordered levels as an index, so that neighbours are neighbours; others as categories."""
    return {
        parameter.name: IntDistribution(0, len(parameter.levels) - 1)
        if parameter.ordered
        else CategoricalDistribution([str(level) for level in parameter.levels])
        for parameter in space.parameters
        if len(parameter.levels) > 1
    }


def encode(space: SearchSpace, point: Point) -> dict[str, int | str]:
    """A point as Optuna's parameters."""
    return {
        parameter.name: parameter.levels.index(point[parameter.name])
        if parameter.ordered
        else str(point[parameter.name])
        for parameter in space.parameters
        if len(parameter.levels) > 1
    }


def decode(space: SearchSpace, params: Mapping[str, object]) -> dict[str, Value]:
    """Optuna's parameters as a point; a parameter with one level keeps it."""
    point = {}
    for parameter in space.parameters:
        chosen = params.get(parameter.name)
        if chosen is None:
            point[parameter.name] = parameter.levels[0]
        elif parameter.ordered and isinstance(chosen, int):
            point[parameter.name] = parameter.levels[chosen]
        else:
            point[parameter.name] = next(level for level in parameter.levels if str(level) == chosen)
    return point


def constraints(sla: Sla, outcome: Outcome | None, *, refused: bool = False) -> dict[str, float]:
    """One entry for each SLO, one for quality and one for running at all: same keys, same order, always.

    Positive means violated (Optuna). A capacity was found: 0 or below. It was not: the relative excess of
    bad values in the slowest window.
    """
    keys = [slo.key for slo in sla.slos]
    match outcome:
        case Measured(capacity=capacity, windows=windows, quality=quality):
            excess = dict.fromkeys(keys, -1.0)
            if capacity.low_speed is None and windows:
                slowest = min(windows, key=lambda window: window.speed)
                for count in slowest.measurement.counts:
                    share = count.bad / count.n if count.n else 1.0
                    excess[count.slo.key] = share / count.slo.allowed_share - 1
                if max(excess.values()) <= 0:
                    excess[keys[0]] = 1.0
            over = quality.increase - quality.limit if quality else -1.0
            return {**excess, QUALITY: over, RUNS: -1.0}
        case Infeasible(quality=quality):
            over = 1.0 if quality is not None and not quality.passed else -1.0
            return {**dict.fromkeys(keys, 0.0), QUALITY: over, RUNS: 1.0}
        case _:
            bad = 1.0 if refused else 0.0
            return {**dict.fromkeys(keys, 0.0), QUALITY: bad, RUNS: bad}


def value(run: Run, outcome: Measured) -> float | None:
    """What the search maximises: log capacity; in fixed-rate mode the log margin of the worst SLO.

    None when the SLA held at no speed: such a trial stands at the floor.
    """
    if run.load.at is None:
        low = outcome.capacity.low_rps
        return None if low is None else math.log(low)
    if not outcome.windows or not outcome.windows[-1].passed:
        return None
    counts = outcome.windows[-1].measurement.counts
    return min(
        math.log(one.slo.limit_s / max(one.value_s, 1e-9)) for one in counts if one.value_s is not None
    )


def floor(run: Run, trials: Sequence[Trial]) -> float:
    """Below every value seen: where points stand that cannot be used."""
    values = [
        seen
        for trial in trials
        if isinstance(trial.outcome, Measured) and (seen := value(run, trial.outcome)) is not None
    ]
    return min(values, default=0.0) - math.log(2)


def rebuild(run: Run, trials: Sequence[Trial]) -> optuna.Study:
    """The study that these trials amount to; `Faulted` and `Stopped` taught nothing and are left out."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    seed = (run.seed + len(trials)) % 2**32  # what NumPy takes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(n_startup_trials=STARTUP_TRIALS, seed=seed)
        study = optuna.create_study(direction="maximize", sampler=sampler)
    lowest = floor(run, trials)
    for trial in trials:
        if not isinstance(trial.outcome, Measured | Infeasible):
            continue
        seen = value(run, trial.outcome) if isinstance(trial.outcome, Measured) else None
        study.add_trial(
            optuna.trial.create_trial(
                params=encode(run.space, trial.point),
                distributions=distributions(run.space),
                value=lowest if seen is None else seen,
                constraints=constraints(run.sla, trial.outcome),
            )
        )
    return study
