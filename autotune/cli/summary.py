"""The last screen: what was found, what it is worth, what is proven, and what to do next."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from autotune.cli.console import capacity_text, settings_text
from autotune.domain.outcome import Confirmation, Measured, Result
from autotune.domain.run import Run
from autotune.report.words import Ratio
from autotune.units import show_duration


def summary(run: Run, result: Result, folder: Path, files: tuple[str, ...], console: Console) -> None:
    """Print the result for a person; readable without colour and at 80 columns."""

    def say(text: str = "", style: str = "") -> None:
        console.print(Text(text, style=style))

    say()
    say(f"{result.reason}.", "bold")
    default = result.trials[0]
    if isinstance(default.outcome, Measured):
        say(f"defaults  {capacity_text(default.outcome.capacity)}")
    if result.winner is not None:
        winner = result.trials[result.winner]
        if isinstance(winner.outcome, Measured) and winner.number != 0:
            say(f"tuned     {capacity_text(winner.outcome.capacity)}", "green")
            if isinstance(default.outcome, Measured) and (
                gain := Ratio.of(winner.outcome.capacity, default.outcome.capacity)
            ):
                say(f"gain      {gain} the traffic of the defaults", "green")
            say(f"changed   {settings_text(run.space.changed(winner.point))}")
    for confirmation in result.confirmations:
        say(f"held out  {_confirmation(confirmation)}")
    say(_limits(run, result), "dim")
    say(f"{len(result.trials)} trials in {show_duration(result.seconds)}")
    for name in files:
        console.print(Text(f"  {folder / name}"), soft_wrap=True)  # a path in two pieces is none


def _confirmation(confirmation: Confirmation) -> str:
    who = "defaults" if confirmation.default else f"trial {confirmation.trial}"
    if not confirmation.windows:
        return f"{who}: not confirmed, {confirmation.note}"
    last = confirmation.windows[-1]
    parts = []
    for judgement in last.verdict.judgements:
        count = judgement.count
        more = f", {judgement.needed:,} more requests would decide" if judgement.needed else ""
        parts.append(f"{count.slo.key} {count.bad} bad of {count.n}: {judgement.state.value}{more}")
    held = "holds" if last.passed else "fails"
    return f"{who} {held} at {last.measurement.rate_rps:.2f} req/s; {'; '.join(parts)}"


def _limits(run: Run, result: Result) -> str:
    """What a run of this length can prove, said every time."""
    largest = max(
        (
            count.n
            for trial in result.trials
            if isinstance(trial.outcome, Measured)
            for window in trial.outcome.windows
            for count in window.measurement.counts
        ),
        default=0,
    )
    return (
        f"Capacities are brackets of single windows of at most {largest} values, by the point rule; PASS and "
        f"FAIL are one-sided {run.confidence:.0%} bounds with a design effect of {run.design_effect:g}."
    )
