"""What a finished run hands over: a configuration that deploys, its command, the result, and the report."""

from __future__ import annotations

from pathlib import Path

import msgspec

from autotune.domain.outcome import Capacity, Confirmation, Measured, Result, Trial
from autotune.domain.run import Run
from autotune.engine.contract import Engine
from autotune.evaluate import plan_of
from autotune.report.gain import gain
from autotune.report.html import write_html
from autotune.report.windows import rate_rps
from autotune.report.words import attempts, counted
from autotune.whole import whole

TUNED = "tuned.yaml"
COMMAND = "serve.sh"
RESULT = "result.json"
REPORT = "report.html"


def deliver(run: Run, engine: Engine, folder: Path, result: Result) -> tuple[str, ...]:
    """Write the files into the run folder; the paths written, relative to it.

    Without a winner there is no configuration: nothing that missed the SLA is presented as meeting it.
    """
    files: list[str] = []
    variables: tuple[str, ...] = ()
    if result.winner is not None:
        trial = result.trials[result.winner]
        plan = plan_of(run, engine, trial.point, port=run.ports[0])
        _write(folder / TUNED, engine.config_file(plan, notes(run, engine, result, trial)))
        command = engine.deploy_command(plan, run.engine)
        # Beside its configuration, wherever the folder is moved to.
        serve = f'exec env {command} --config "$(dirname "$0")/{TUNED}" "$@"'
        _write(folder / COMMAND, f"#!/bin/sh\n{serve}\n", mode=0o755)
        files += [TUNED, COMMAND]
        variables = tuple(plan.deploy_env)
    else:
        for stale in (TUNED, COMMAND):
            (folder / stale).unlink(missing_ok=True)
    _write(folder / RESULT, msgspec.json.format(result_json(run, result)).decode() + "\n")
    write_html(run, result, folder, variables=variables)
    return (*files, REPORT, RESULT)


def notes(run: Run, engine: Engine, result: Result, trial: Trial) -> tuple[str, ...]:
    """The evidence that a configuration carries with it: what was found, on what, and what ends it."""
    lines = [
        f"Tuned by autotune {run.tool_version}, run {run.id}, trial {trial.number} ({trial.origin}).",
        f"SLA {run.sla}; model {run.model.name}.",
        f"Engine {run.engine.name} {run.engine.version} on {run.hardware}.",
        f"Traffic {Path(run.workload_path).name}, sha256 {run.workload_sha256[:16]}.",
    ]
    if isinstance(trial.outcome, Measured) and trial.outcome.capacity.low_rps is not None:
        lines.append(f"Search: held at {_bracket(run, trial.outcome.capacity)}.")
    if (found := gain(run, result)) is not None:
        lines.append(f"Gain: {found}.")
    lines += [_confirmed(run, one) for one in result.confirmations]
    if not any(one.trial == trial.number for one in result.confirmations):
        lines.append("Not confirmed on held-out traffic.")
    lines += [
        f"Precision: {engine.precision(trial.point)}.",
        "Measure again after a change of engine version, model, GPU or traffic.",
    ]
    # Each is one comment: a second line would be read as a setting.
    return tuple(" ".join(line.splitlines()) for line in lines)


def _bracket(run: Run, capacity: Capacity) -> str:
    """'8.40 requests/s (4.2 × recorded), failed at 9.20'; at a fixed speed nothing else was tried."""
    rate = f"{capacity.low_rps:.2f} requests/s ({capacity.low_speed:.3g} × recorded)"
    if run.load.at is not None:
        return rate
    return f"{rate}, " + (
        "no failure found" if capacity.high_rps is None else f"failed at {capacity.high_rps:.2f}"
    )


def _confirmed(run: Run, confirmation: Confirmation) -> str:
    who = "the defaults" if confirmation.default else f"trial {confirmation.trial}"
    note = "" if confirmation.note is None else f" ({confirmation.note})"
    if not confirmation.windows:
        return f"Held-out traffic: {who} not confirmed{note}."
    last = confirmation.windows[-1]
    rate = f"{rate_rps(run, last):.2f} requests/s ({last.speed:.3g} × recorded)"
    counts = ", ".join(f"{one.slo.key} {counted(one)}" for one in last.measurement.counts)
    verdict = last.verdict
    held = "held" if last.passed else "did not hold"
    return (
        f"Held-out traffic, fresh launch: {who} {held} at {rate}, {attempts(len(confirmation.windows))}: "
        f"{counts}; {verdict.state.value} at {verdict.confidence:.0%} with design effect "
        f"{verdict.design_effect:g}{note}."
    )


def result_json(run: Run, result: Result) -> bytes:
    """The result for machines; each trial's `kind` names its outcome."""
    trials = [
        {**msgspec.to_builtins(trial), "kind": type(trial.outcome).__name__.lower()}
        for trial in result.trials
    ]
    settings = None
    if result.winner is not None:
        settings = run.space.changed(result.trials[result.winner].point)
    return msgspec.json.encode(
        {
            "run": run.id,
            "sla": str(run.sla),
            "winner": result.winner,
            "settings": settings,
            "reason": result.reason,
            "seconds": result.seconds,
            "client": result.client,
            "confirmations": result.confirmations,
            "trials": trials,
        }
    )


def _write(path: Path, text: str, *, mode: int = 0o644) -> None:
    with whole(path, mode=mode) as part:
        part.write_text(text, encoding="utf-8")
