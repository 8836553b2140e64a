"""People's reader of the events: a live line on a terminal, plain lines elsewhere. Talk goes to stderr."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from autotune.domain.event import (
    ClientTested,
    ConfirmStarted,
    EngineLaunched,
    EngineReady,
    EngineStopped,
    EngineWaiting,
    Event,
    QualityMeasured,
    Retried,
    RunEnded,
    RunStarted,
    TrialEnded,
    TrialStarted,
    WindowEnded,
    WindowProgress,
    WindowStarted,
)
from autotune.domain.measurement import Count
from autotune.domain.outcome import Capacity, Faulted, Infeasible, Measured, Stopped, Window
from autotune.domain.run import Run
from autotune.report.words import plural
from autotune.units import show_duration, show_limit


def settings_text(changed: object) -> str:
    """'max_num_seqs=32 threads=all', or 'the engine's defaults'."""
    items = changed.items() if isinstance(changed, dict) else ()
    return " ".join(f"{name}={plain(value)}" for name, value in items) or "the engine's defaults"


def plain(value: object) -> str:
    """A value as it is written in YAML."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def capacity_text(capacity: Capacity) -> str:
    """'3.21 req/s (32.1× recorded, fails at 3.60)', or that nothing held."""
    if capacity.low_rps is None:
        return (
            f"holds at no rate tried (fails at {capacity.high_rps:.2f} req/s)"
            if capacity.high_rps
            else "unknown"
        )
    high = f"fails at {capacity.high_rps:.2f}" if capacity.high_rps else "no failure found"
    return f"{capacity.low_rps:.2f} req/s ({capacity.low_speed:.3g}× recorded, {high})"


def window_text(window: Window) -> str:
    """One window on one line: rate, verdict of the point rule, what decided it."""
    measurement = window.measurement
    mark = "holds" if window.passed else "fails"
    counts = ", ".join(f"{one.slo.key} {_value(one)}, {one.bad}/{one.n} bad" for one in measurement.counts)
    stopped = f", stopped after {measurement.sent} of {measurement.planned}" if measurement.curtailed else ""
    return f"{mark} at {window.speed:.3g}× (offered {measurement.rate_rps:.2f} req/s): {counts}{stopped}"


def _value(count: Count) -> str:
    """The percentile; above the limit when it falls on a request that never gave a value."""
    return f"above {show_limit(count.slo.limit_s)}" if count.value_s is None else show_duration(count.value_s)


class Talk:
    """Turns events into lines; keeps the little state a line needs."""

    def __init__(self, run: Run, console: Console) -> None:
        """Talk about `run` on `console` (normally standard error)."""
        self.run = run
        self.console = console
        self.live: Live | None = None
        self.phase = ""
        self.trial = ""
        self.best = "none yet"
        self.begun = time.monotonic()
        self.spent_s = 0.0

    @contextmanager
    def open(self) -> Iterator[None]:
        """Keep one live line at the bottom while on a terminal."""
        if not self.console.is_terminal:
            yield
            return
        with Live(self._status(), console=self.console, refresh_per_second=2, transient=True) as live:
            self.live = live
            yield
            self.live = None

    def listen(self, events: Iterable[Event]) -> RunEnded | None:
        """Read all events; the last one, if it came."""
        ended = None
        for event in events:
            self.say(event)
            if isinstance(event, RunEnded):
                ended = event
        return ended

    def line(self, text: str, style: str = "") -> None:
        """One line that stays."""
        self.console.print(Text(text, style=style), soft_wrap=not self.console.is_terminal)

    def say(self, event: Event) -> None:  # noqa: C901, PLR0912  one case an event
        """Say what an event means."""
        match event:
            case RunStarted(resumed=resumed, folder=folder):
                self.begun = time.monotonic() - event.elapsed_s
                extent = plural(event.trials, "trial") if event.trials else ""
                budget = f"a budget of {show_duration(event.budget_s)}" if event.budget_s else ""
                self.line(f"run {event.id}: {' and '.join(filter(None, (extent, budget)))}, in {folder}")
                if resumed:
                    self.line(f"resumed: {plural(resumed, 'trial')} in the journal already")
            case ClientTested(own=own):
                error = show_duration(own.ttft_error_s)
                self.line(f"client: off by {error} at TTFT p99 against a server of known timing")
            case TrialStarted():
                self.begun, self.spent_s = time.monotonic() - event.elapsed_s, event.elapsed_s
                self.trial = f"trial {event.number}"
                self.line(
                    f"trial {event.number} ({event.origin}): {settings_text(dict(event.changed))}", "bold"
                )
            case EngineLaunched():
                self._phase("starting the engine")
            case EngineWaiting(waited_s=waited_s):
                self._phase(f"starting the engine, {waited_s:.0f} s")
            case EngineReady(facts=facts):
                kv = f", {facts.kv_tokens:,} KV tokens" if facts.kv_tokens else ""
                self.line(f"  ready after {facts.start_s:.0f} s{kv}")
                self._phase("ready")
            case QualityMeasured(quality=quality):
                known = " (measured before)" if event.cached else f" ({quality.seconds:.1f} s)"
                change = "the reference" if quality.increase == 0 else f"{quality.increase:+.1%}"
                fate = "" if quality.passed else f", over the limit of +{quality.limit:.1%}"
                self.line(f"  perplexity {quality.perplexity:.2f}, {change}{fate}{known}")
            case WindowStarted():
                self._phase(f"{event.phase} at {event.speed:.3g}×, {event.planned} requests")
            case WindowProgress():
                rate = self.phase.split(",")[0]
                self._phase(f"{rate}, {event.finished}/{event.sent} done, {event.bad} bad of {event.allowed}")
            case WindowEnded(window=window):
                self.line(f"  {window_text(window)}", "" if window.passed else "yellow")
            case EngineStopped():
                forced = ", by force" if event.forced else ""
                self.line(f"  engine gone after {event.seconds:.1f} s{forced}", "dim")
            case TrialEnded(trial=trial):
                self.line(f"  {_outcome(trial.outcome)} ({show_duration(trial.seconds)})", "bold")
                if event.incumbent is not None and event.capacity:
                    self.best = f"trial {event.incumbent}, {event.capacity.low_rps:.2f} req/s"
            case ConfirmStarted():
                self.trial = f"confirming trial {event.number}"
                self.line(
                    f"confirming trial {event.number} on held-out traffic at {event.speed:.3g}×", "bold"
                )
            case Retried():
                self.line(f"  tried again ({event.attempt}): {event.reason}", "yellow")
            case RunEnded():
                pass

    def _phase(self, text: str) -> None:
        self.phase = text
        if self.live:
            self.live.update(self._status())

    def _status(self) -> Text:
        elapsed_s = time.monotonic() - self.begun
        left = ""
        if self.run.budget_s is not None:
            left = f" · {show_duration(max(self.run.budget_s - elapsed_s, 0))} left"
        text = f"{self.trial or 'starting'} · {self.phase} · best {self.best}{left}"
        return Text(text, style="cyan", no_wrap=True, overflow="ellipsis")


def _outcome(outcome: Measured | Infeasible | Stopped | Faulted) -> str:
    match outcome:
        case Measured():
            return capacity_text(outcome.capacity)
        case Infeasible():
            return f"{outcome.cause.value}: {outcome.evidence}"
        case Stopped() | Faulted():
            return f"{type(outcome).__name__.lower()}: {outcome.reason}"
