"""Everything the report says, decided before anything is drawn. No IO: a `Run` and a `Result` come in."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.domain.outcome import Result
from autotune.domain.run import Run
from autotune.report.facts import Fact, environment, figures, method
from autotune.report.headline import Headline, headline, tally
from autotune.report.marks import LatencyCurves, LoadCurve, latency_curves, load_curve
from autotune.report.proof import Proof, proof
from autotune.report.table import HistoryPoint, Setting, TrialRow, history, low_rps, settings, trial_row
from autotune.report.windows import best_other, by_number, highest_held
from autotune.report.words import listed, promise


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
    deploy_note: str
    load: LoadCurve
    latency: LatencyCurves
    tally: str
    trials: tuple[TrialRow, ...]
    history: tuple[HistoryPoint, ...]
    default_rps: float | None
    environment: tuple[Fact, ...]
    exclusions: tuple[str, ...]
    method: tuple[Fact, ...]


def view(run: Run, result: Result, *, variables: tuple[str, ...] = ()) -> View:
    """What the page says about a run that ended with `result`.

    `variables` are the names of the environment variables that a deployment sets. Beside the defaults the
    charts show the tuned settings or, when there are none, the best of the rest.
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
        # Not `vllm serve MODEL --config`: a model on the command line beats the one in the file.
        deploy=None if tuned is None else "./serve.sh",
        deploy_note=_deploy_note(variables),
        load=load_curve(run, shown, result.confirmations),
        latency=latency_curves(run, shown),
        tally=tally(trials),
        trials=tuple(trial_row(run, trial, result.winner) for trial in trials),
        history=history(run, trials, result.winner),
        default_rps=None if default is None else low_rps(default),
        environment=environment(run, result),
        exclusions=tuple(map(str, run.exclusions)),
        method=method(run),
    )


def _deploy_note(variables: tuple[str, ...]) -> str:
    note = (
        "It lies beside this report and starts the engine with tuned.yaml, which names the model too; words"
        " behind it, such as --port 8000, are handed on."
    )
    if not variables:
        return note
    return f"{note} tuned.yaml alone is not enough: serve.sh also sets {listed(variables)}."
