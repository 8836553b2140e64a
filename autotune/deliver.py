"""What a finished run hands over: a configuration that deploys, its command, the result, and the report."""

from __future__ import annotations

from pathlib import Path

import msgspec

from autotune.domain.outcome import Confirmation, Measured, Result, Trial
from autotune.domain.run import Run
from autotune.engine.contract import Engine
from autotune.evaluate import plan_of
from autotune.report.html import write_html

TUNED = "tuned.yaml"
COMMAND = "serve.sh"
RESULT = "result.json"
REPORT = "report.html"


def deliver(run: Run, engine: Engine, folder: Path, result: Result) -> tuple[str, ...]:
    """Write the files into the run folder; the paths written, relative to it.

    Without a winner there is no configuration: nothing that missed the SLA is presented as meeting it.
    """
    files = []
    if result.winner is not None:
        trial = result.trials[result.winner]
        plan = plan_of(run, engine, trial.point, port=run.ports[0])
        _write(folder / TUNED, engine.config_file(plan, notes(run, engine, result, trial)))
        command = engine.deploy_command(plan, run.engine)
        # Beside its configuration, wherever the folder is moved to.
        serve = f'exec env {command} --config "$(dirname "$0")/{TUNED}" "$@"'
        _write(folder / COMMAND, f"#!/bin/sh\n{serve}\n", mode=0o755)
        files += [TUNED, COMMAND]
    else:
        for stale in (TUNED, COMMAND):
            (folder / stale).unlink(missing_ok=True)
    _write(folder / RESULT, msgspec.json.format(result_json(run, result)).decode() + "\n")
    write_html(run, result, folder)
    return (*files, REPORT, RESULT)


def notes(run: Run, engine: Engine, result: Result, trial: Trial) -> tuple[str, ...]:
    """The evidence that a configuration carries with it: what was found, on what, and what ends it."""
    lines = [
        f"Tuned by autotune {run.tool_version}, run {run.id}, trial {trial.number} ({trial.origin}).",
        f"SLA {run.sla}; model {run.model.name}.",
        f"Engine {run.engine.name} {run.engine.version} on {run.hardware}.",
        f"Traffic {Path(run.workload_path).name}, sha256 {run.workload_sha256[:16]}.",
    ]
    if isinstance(trial.outcome, Measured) and trial.outcome.capacity.low_speed is not None:
        low, high = trial.outcome.capacity.low_rps, trial.outcome.capacity.high_rps
        ceiling = f"failed at {high:.2f}" if high else "no failure found"
        speed = f"{trial.outcome.capacity.low_speed:.3g} × recorded"
        lines.append(f"Search: held at {low:.2f} requests/s ({speed}), {ceiling}.")
    lines += [_confirmed(one) for one in result.confirmations if one.trial == trial.number]
    lines += [
        f"Precision: {engine.precision(trial.point)}.",
        "Measure again after a change of engine version, model, GPU or traffic.",
    ]
    return tuple(lines)


def _confirmed(confirmation: Confirmation) -> str:
    if not confirmation.windows:
        return f"Not confirmed on held-out traffic: {confirmation.note}."
    last = confirmation.windows[-1]
    counts = ", ".join(f"{one.slo.key} {one.bad} bad of {one.n}" for one in last.measurement.counts)
    verdict = last.verdict
    held = "held" if last.passed else "did not hold"
    return (
        f"Held-out traffic, fresh launch: {held} at {last.measurement.rate_rps:.2f} requests/s ({counts}); "
        f"{verdict.state.value} at {verdict.confidence:.0%} with design effect {verdict.design_effect:g}."
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
            "confirmations": result.confirmations,
            "trials": trials,
        }
    )


def _write(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.chmod(mode)
    part.replace(path)
