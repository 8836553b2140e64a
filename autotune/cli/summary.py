"""The last screen: what was found, what it is worth, what is proven, and what to do next."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from autotune.cli.console import capacity_text, settings_text
from autotune.domain.outcome import Confirmation, Measured, Result, Trial
from autotune.domain.run import Run
from autotune.report.gain import HELD_OUT, SEARCH_ONLY, gain, pair
from autotune.report.windows import by_number, fixed_window, rate_rps, tightest
from autotune.report.words import attempts, closeness, counted, plural
from autotune.units import show_duration


def summary(run: Run, result: Result, folder: Path, files: tuple[str, ...], console: Console) -> None:
    """Print the result for a person; readable without colour and at 80 columns."""

    def say(text: str = "", style: str = "") -> None:
        console.print(Text(text, style=style))

    say()
    say(f"{result.reason}.", "bold yellow" if result.winner is None else "bold green")
    default, best = by_number(result.trials, 0), by_number(result.trials, result.winner)
    if default is not None and isinstance(default.outcome, Measured):
        say(f"defaults  {_search(run, default, default.outcome)}")
    if best is not None and best.number != 0 and isinstance(best.outcome, Measured):
        say(f"tuned     {_search(run, best, best.outcome)}", "green")
        if run.load.at is not None:
            say(f"latency   {_latency(result, best)}", "green")
        elif (found := gain(run, result)) is not None:
            say(f"gain      {found}", "green")
        say(f"changed   {settings_text(run.space.changed(best.point))}")
    for confirmation in result.confirmations:
        say(f"held out  {_confirmation(run, confirmation)}")
    if limits := _limits(run, result):
        say(limits, "dim")
    say(f"{plural(len(result.trials), 'trial')} in {show_duration(result.seconds)}")
    for name in files:
        console.print(Text(f"  {folder / name}"), soft_wrap=True)  # a path in two pieces is none


def _search(run: Run, trial: Trial, outcome: Measured) -> str:
    """What the search found of a trial; at a fixed rate there is no bracket, but a distance to the limit."""
    window = fixed_window(trial)
    if run.load.at is None or window is None:
        return f"{capacity_text(outcome.capacity)} in the search"
    held = "holds" if window.passed else "fails"
    rate = f"{window.speed:.3g}× recorded ({rate_rps(run, window):.2f} req/s)"
    return f"{held} at {rate}: {closeness(tightest(window))}"


def _latency(result: Result, best: Trial) -> str:
    """Why a trial wins at a fixed rate, where all that hold carry the same."""
    shown = pair(result)
    tuned, default = (
        "no window" if window is None else closeness(tightest(window))
        for window in (shown.tuned, shown.default)
    )
    where = HELD_OUT if shown.held_out else f"({SEARCH_ONLY})"
    return (
        f"trial {best.number} passes with the lowest percentile of its tightest objective: {tuned};"
        f" defaults: {default} {where}"
    )


def _confirmation(run: Run, confirmation: Confirmation) -> str:
    who, holds, fails = f"trial {confirmation.trial}", "holds", "fails"
    if confirmation.default:
        who, holds, fails = "defaults", "hold", "fail"
    if not confirmation.windows:
        return f"{who}: not confirmed, {confirmation.note}"
    last = confirmation.windows[-1]
    parts = []
    for judgement in last.verdict.judgements:
        more = f", {judgement.needed:,} more requests would decide" if judgement.needed else ""
        parts.append(f"{judgement.count.slo.key} {counted(judgement.count)}: {judgement.state.value}{more}")
    if confirmation.note:
        parts.append(confirmation.note)
    held = holds if last.passed else fails
    rate = f"{last.speed:.3g}× recorded ({rate_rps(run, last):.2f} req/s)"
    return f"{who} {held} at {rate}, {attempts(len(confirmation.windows))}; {'; '.join(parts)}"


def _limits(run: Run, result: Result) -> str | None:
    """What a run of this length can prove, said whenever something was measured."""
    largest = max(
        (
            count.requests
            for trial in result.trials
            if isinstance(trial.outcome, Measured)
            for window in trial.outcome.windows
            for count in window.measurement.counts
        ),
        default=0,
    )
    if not largest:
        return None
    return (
        f"Capacities are brackets of single windows of at most {plural(largest, 'request')}, by the point"
        f" rule; PASS and FAIL are one-sided {run.confidence:.0%} bounds with a design effect of"
        f" {run.design_effect:g}."
    )
