"""Everything the report says, decided before anything is drawn. No IO: a `Run` and a `Result` come in."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from autotune.domain.outcome import Result
from autotune.domain.run import Run
from autotune.report.facts import Fact, environment, figures, method
from autotune.report.headline import Headline, headline, tally
from autotune.report.marks import LatencyCurves, LoadCurve, latency_curves, load_curve
from autotune.report.proof import Proof, proof
from autotune.report.table import HistoryPoint, Setting, TrialRow, history, low_rps, settings, trial_row
from autotune.report.windows import best_other, by_number, highest_held
from autotune.report.words import promise


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The page, from top to bottom. `deploy` is None unless there is something to deploy."""

    title: str
    subtitle: str
    headline: Headline
    winner: int | None
    figures: tuple[Fact, ...]
    proof: Proof
    settings: tuple[Setting, ...]
    deploy: str | None
    load: LoadCurve
    latency: LatencyCurves
    tally: str
    trials: tuple[TrialRow, ...]
    history: tuple[HistoryPoint, ...]
    default_rps: float | None
    environment: tuple[Fact, ...]
    exclusions: tuple[str, ...]
    method: tuple[Fact, ...]


def view(run: Run, result: Result) -> View:
    """What the page says about a run that ended with `result`.

    Beside the defaults the charts show the tuned settings or, when there are none, the best of the rest.
    """
    trials = result.trials
    default, best = by_number(trials, 0), by_number(trials, result.winner)
    tuned = best if best is not None and best.number != 0 else None
    shown = (("Default", default), ("Tuned", tuned) if tuned else ("Best other", best_other(result)))
    search = None if best is None else highest_held(best)
    proven = proof(run, result, search)
    return View(
        title=f"{run.model.name} on {run.hardware}",
        subtitle=f"{promise(run.sla)} · {run.engine.name} {run.engine.version} · {run.created_at[:10]}",
        headline=headline(run, result),
        winner=result.winner,
        figures=figures(run, result, tuned, default, proven),
        proof=proven,
        settings=settings(run, tuned),
        deploy=None if tuned is None else f"vllm serve {shlex.quote(run.model.path)} --config tuned.yaml",
        load=load_curve(run.sla.slos[0], shown, result.confirmations),
        latency=latency_curves(run.sla, shown),
        tally=tally(trials),
        trials=tuple(trial_row(run, trial, result.winner) for trial in trials),
        history=history(run, trials, result.winner),
        default_rps=None if default is None else low_rps(default),
        environment=environment(run, result),
        exclusions=tuple(map(str, run.exclusions)),
        method=method(run),
    )
