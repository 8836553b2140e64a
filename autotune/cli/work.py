"""`run`, `resume` and `report`: wire the edges together and print what comes out."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec
from rich.console import Console
from rich.markup import escape

from autotune import search
from autotune.cli.console import Talk, plain, settings_text
from autotune.cli.settle import Settled
from autotune.cli.summary import summary
from autotune.deliver import deliver
from autotune.domain.event import Event, RunEnded, TrialEnded
from autotune.domain.outcome import Cause, Infeasible, Measured, Result
from autotune.domain.run import Run
from autotune.domain.workload import Workload
from autotune.engine import vllm
from autotune.engine.process import Owned, sweep
from autotune.engine.vllm import START_S
from autotune.errors import ExitCode, JournalError, SetupError
from autotune.evaluate import Bench, confirm, evaluate, own_error, plan_of
from autotune.formats.workloads import read_workload
from autotune.gate import quality_text
from autotune.journal import Journal, Launched, create, load, result
from autotune.score.choose import verdict
from autotune.tune import Tuner
from autotune.units import show_duration


def start(settled: Settled, *, as_json: bool) -> int:
    """A new run."""
    create(settled.folder, settled.run)
    return _work(settled.run, settled.workload, settled.folder, as_json=as_json)


def go_on(folder: Path, *, as_json: bool) -> int:
    """An interrupted run; engines that its dead tuner left behind are ended first."""
    run = load(folder)
    return _work(run, _same_workload(run), folder, as_json=as_json)


def _same_workload(run: Run) -> Workload:
    workload = read_workload(Path(run.workload_path))
    if workload.sha256 != run.workload_sha256:
        raise JournalError(
            f"{run.workload_path} is not what the run began with",
            hint="restore the file, or start a new run",
        )
    return workload


def _talk() -> Console:
    """Standard error: wrapped on a terminal, one line a statement where a program or a log reads it."""
    return Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())


def _work(run: Run, workload: Workload, folder: Path, *, as_json: bool) -> int:
    console = _talk()
    with Journal(folder) as journal:
        _end_leftovers(journal)
        if journal.history().ended is not None:
            console.print(
                f"{folder}: this run has ended; its files are written again", soft_wrap=True, markup=False
            )
        bench = _bench(run, workload, folder, journal)
        tuner = Tuner(
            run=run,
            journal=journal,
            evaluate=partial(evaluate, bench),
            confirm=partial(confirm, bench),
            precision=bench.engine.precision,
            unfit=partial(bench.engine.unfit, space=run.space, hardware=run.hardware, variants=run.variants),
            deliver=partial(deliver, run, vllm, folder),
            client=partial(own_error, bench),
            start_s=START_S[run.engine.device],
        )
        try:
            with closing(tuner.tune()) as events:  # the engine is gone before the next line says so
                if as_json:
                    ended = _print_events(events)
                else:
                    talk = Talk(run, console)
                    with talk.open():
                        ended = talk.listen(events)
        except KeyboardInterrupt:
            # A second Ctrl-C does not wait for the engine to go.
            engine = "its guard ends the engine" if journal.history().launched else "the engine is gone"
            console.print(f"\ninterrupted: {engine}, what was measured is kept; go on with")
            console.print(f"  autotune resume {shlex.quote(str(folder))}", soft_wrap=True, markup=False)
            return ExitCode.INTERRUPTED
        history = journal.history()
    if ended is None:
        return ExitCode.BUG
    final = result(history, winner=ended.winner, reason=ended.reason, seconds=ended.seconds)
    if not as_json:
        summary(run, final, folder, ended.files, console)
        if ended.winner is not None:
            sys.stdout.write((folder / "tuned.yaml").read_text(encoding="utf-8"))
    return exit_code(final)


def exit_code(final: Result) -> ExitCode:
    """0 for a winner, 4 when every trial was judged and none held the SLA, 5 when that cannot be said."""
    if final.winner is not None:
        return ExitCode.FOUND
    first = final.trials[0].outcome if final.trials else None
    if isinstance(first, Infeasible) and first.cause is Cause.BAD_FLAG:
        return ExitCode.INPUT
    outcomes = [trial.outcome for trial in final.trials]
    judged = [
        isinstance(outcome, Measured)
        or (isinstance(outcome, Infeasible) and outcome.cause not in {Cause.CRASH, Cause.HANG})
        for outcome in outcomes
    ]
    if not all(judged) or not judged:
        return ExitCode.FAULTS
    return ExitCode.INFEASIBLE


def _bench(run: Run, workload: Workload, folder: Path, journal: Journal) -> Bench:
    def owned(engine: Owned) -> None:
        journal.write(
            "launched", process=Launched(session=engine.session, began=engine.began, boot=engine.boot)
        )

    def disowned(engine: Owned) -> None:
        journal.write("stopped", session=engine.session)

    return Bench(
        run=run,
        engine=vllm,
        workload=workload,
        folder=folder,
        quality_text=quality_text(),
        owned=owned,
        disowned=disowned,
    )


def _end_leftovers(journal: Journal) -> None:
    """End what a killed tuner left behind; raises `SetupError` when something survives."""
    for process in journal.history().launched:
        if left := sweep(Owned(session=process.session, began=process.began, boot=process.boot)):
            raise SetupError(
                f"processes {left} of the interrupted run survive SIGKILL", hint="reboot, or ask root"
            )
        journal.write("stopped", session=process.session)


def _print_events(events: Iterable[Event]) -> RunEnded | None:
    ended = None
    for event in events:
        line = {"event": _snake(type(event).__name__), **msgspec.to_builtins(event)}
        if isinstance(event, TrialEnded):
            line["trial"]["kind"] = type(event.trial.outcome).__name__.lower()
        sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
        sys.stdout.flush()
        if isinstance(event, RunEnded):
            ended = event
    return ended


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def rewrite(folder: Path) -> int:
    """The files of a run again, from its journal alone."""
    run = load(folder)
    console = _talk()
    with Journal(folder) as journal:
        history = journal.history()
    if not history.trials:
        raise JournalError(f"{folder} holds no finished trial", hint=f"autotune resume {folder}")
    winner, reason = verdict(run, history.trials, history.confirmations)
    final = result(history, winner=winner, reason=history.ended or reason, seconds=history.spent_s)
    files = deliver(run, vllm, folder, final)
    summary(run, final, folder, files, console)
    return exit_code(final)


def dry(settled: Settled, *, as_json: bool) -> int:
    """The launch plans of the first trials, what was excluded and why, and what it will cost."""
    run = settled.run
    asks = search.enqueued(run.space)
    plans = [plan_of(run, vllm, ask.point, run.ports[0]) for ask in asks]
    start_s, window_s = START_S[run.engine.device], run.load.window_s
    trial_s = start_s + 3 * window_s
    if as_json:
        body = {"run": run, "plans": plans, "seconds_per_trial": trial_s}
        sys.stdout.write(msgspec.json.encode(body).decode() + "\n")
        return ExitCode.FOUND
    console = Console(highlight=False)
    console.print(f"engine    {run.engine.name} {run.engine.version} on {escape(str(run.hardware))}")
    console.print(f"model     {escape(run.model.name)}, {run.model.architecture}, {run.model.dtype}")
    console.print(
        f"traffic   {escape(Path(run.workload_path).name)}: {run.workload_requests:,} requests, "
        f"{run.workload_rate_rps:.3g} req/s recorded"
    )
    console.print(f"SLA       {run.sla}")
    console.print(f"space     {run.space.name}: {len(run.space.parameters)} parameters")
    for parameter in run.space.parameters:
        levels = " ".join(map(plain, parameter.levels))
        console.print(f"  {parameter.name}: {levels} (default {plain(parameter.default)})", soft_wrap=True)
    for exclusion in run.exclusions:
        console.print(f"  left out  {escape(str(exclusion))}", soft_wrap=True)
    for ask, plan in zip(asks, plans, strict=True):
        console.print(f"trial ({ask.origin}): {settings_text(run.space.changed(ask.point))}", soft_wrap=True)
        env = " ".join(f"{name}={shlex.quote(value)}" for name, value in plan.deploy_env.items())
        console.print(f"  {env} {shlex.join(plan.argv)}".replace("   ", "  "), soft_wrap=True, markup=False)
    console.print(
        f"expected  about {show_duration(trial_s)} a trial: a start of {show_duration(start_s)} "
        f"and some windows of at least {show_duration(window_s)}"
    )
    console.print("nothing was launched")
    return ExitCode.FOUND
