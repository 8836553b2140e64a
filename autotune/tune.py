"""The whole run: ask, evaluate, journal, until the budget ends; then confirm on held-out traffic.

A generator of events. What it is given decides everything: a journal (empty, or that of an interrupted run),
a bench, and the function that evaluates one point.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from autotune import search
from autotune.domain.client import OwnError
from autotune.domain.event import (
    ClientTested,
    ConfirmStarted,
    Event,
    QualityMeasured,
    Retried,
    RunEnded,
    RunStarted,
    TrialEnded,
    TrialStarted,
)
from autotune.domain.outcome import (
    Cause,
    Confirmation,
    Faulted,
    Infeasible,
    Measured,
    Outcome,
    Quality,
    Result,
    Stopped,
    Trial,
    Window,
)
from autotune.domain.run import Run
from autotune.domain.space import Point
from autotune.errors import SetupError
from autotune.journal import History, Journal, Started, now, result
from autotune.replay import refusal
from autotune.score.choose import choose, held, verdict

FINALS_SHARE = 0.25
"""Share of the budget that is kept for the confirmation."""
RETRIES = 2
CLIENT_TESTS = 3
PUBLISHED = 0.95
"""The confirmation, and so the claim, begins at this share of what the search found."""
BACK_OFF = 0.8
CONFIRM_ATTEMPTS = 6
"""Other traffic bursts otherwise: small steps ended above what either could hold (docs/adr/0008)."""
PROOF_REQUESTS = 3000
"""A confirmation never needs more: 913 with 4 bad times a design effect of 3 is 2,739."""


class Evaluate(Protocol):
    """One trial; see `autotune.evaluate.evaluate`."""

    def __call__(  # noqa: D102  the class says it
        self,
        point: Point,
        *,
        number: int,
        qualities: dict[str, Quality],
        incumbent: float | None,
        deadline: Callable[[], float],
    ) -> Generator[Event, None, Outcome]: ...


class Confirm(Protocol):
    """One confirmation; see `autotune.evaluate.confirm`."""

    def __call__(  # noqa: D102  the class says it
        self,
        point: Point,
        *,
        number: int,
        speeds: Sequence[float],
        window_s: float,
        deadline: Callable[[], float],
    ) -> Generator[Event, None, tuple[tuple[Window, ...], str | None]]: ...


@dataclass(slots=True)
class Tuner:
    """One run in progress: its journal is its memory."""

    run: Run
    journal: Journal
    evaluate: Evaluate
    confirm: Confirm
    precision: Callable[[Point], str]
    unfit: Callable[[Point], str | None]
    deliver: Callable[[Result], tuple[str, ...]]
    client: Callable[[], OwnError]
    start_s: float
    clock: Callable[[], float] = time.monotonic

    def tune(self) -> Generator[Event, None, None]:
        """All events of the run, from where the journal ends to the last one."""
        history = self.journal.history()
        begun = self.clock() - history.spent_s
        run = self.run
        yield RunStarted(
            id=run.id,
            folder=str(self.journal.folder),
            trials=run.trials,
            budget_s=run.budget_s,
            resumed=len(history.trials),
            elapsed_s=history.spent_s,
        )
        yield from self._test_client(history)
        reason = yield from self._search(history, begun)
        winner = choose(history.trials, run.space, fixed_rate=run.load.at is not None)
        if winner is not None:
            yield from self._finals(history, winner, begun)
        final, why = verdict(run, history.trials, history.confirmations)
        outcome = result(history, winner=final, reason=f"{why}; {reason}", seconds=self.clock() - begun)
        files = self.deliver(outcome)
        self.journal.write("ended", reason=outcome.reason, winner=final, seconds=outcome.seconds)
        yield RunEnded(
            folder=str(self.journal.folder),
            winner=final,
            reason=outcome.reason,
            seconds=outcome.seconds,
            files=files,
        )

    def _test_client(self, history: History) -> Generator[Event, None, None]:
        """Once a run: a client that adds more to a TTFT than it may measures nothing here.

        A machine has busy moments; the best of three tests counts. Raises `SetupError`.
        """
        if history.client is not None:
            return
        for attempt in range(CLIENT_TESTS):
            own = self.client()
            reason = refusal(own, self.run.sla)
            if reason is None:
                break
            if attempt == CLIENT_TESTS - 1:
                raise SetupError(reason, hint="autotune doctor --client shows what it can measure")
        self.journal.write("client", own=own)
        history.client = own
        yield ClientTested(own=own)

    def _search(self, history: History, begun: float) -> Generator[Event, None, str]:
        """Trials until the number, the budget or the space ends; returns which."""
        run = self.run
        while True:
            if history.ended is not None and run.budget_s is not None:
                return history.ended.rpartition("; ")[
                    2
                ]  # its budget is spent, whatever the journal adds up to
            if run.trials is not None and len(history.trials) >= run.trials:
                return f"{run.trials} trials were asked for"
            first = history.trials[0].outcome if history.trials else None
            if isinstance(first, Infeasible) and first.cause is Cause.BAD_FLAG:
                return f"the engine refuses what every launch has: {first.evidence}"
            if history.trials and isinstance(history.trials[-1].outcome, Stopped):
                return "the budget ended"
            if history.trials and self._search_left(begun) < self._expected_s(history):
                return "the budget has no room for another trial"
            ask = self._next(history)
            if ask is None:
                return "every point of the space was tried"
            yield from self._trial(history, ask, begun)

    def _next(self, history: History) -> search.Ask | None:
        """The trial that was interrupted, or the search's next."""
        if history.begun is not None:
            return search.Ask(point=history.begun.point, origin=history.begun.origin)
        return search.ask(self.run, history.trials, refused=lambda point: self._refused(history, point))

    def _refused(self, history: History, point: Point) -> str | None:
        if reason := self.unfit(point):
            return reason
        mine = self.precision(point)
        base = self.precision(self.run.space.default_point())
        if self.run.quality_limit is not None and mine != base and base not in history.qualities:
            return f"precision {base} was not measured yet, so there is nothing to compare {mine} with"
        for known in history.qualities.values():
            # Quality lost to one coarser number format does not come back by adding another.
            if not known.passed and set(mine.split()) >= set(known.precision.split()):
                return f"precision {known.precision} lost the quality gate"
        return None

    def _trial(self, history: History, ask: search.Ask, begun: float) -> Generator[Event, None, None]:
        run, number = self.run, len(history.trials)
        self.journal.write("begun", trial=Started(number=number, point=dict(ask.point), origin=ask.origin))
        started_at, clock = now(), self.clock()
        left_s = None if run.budget_s is None else self._left(begun)
        yield TrialStarted(
            number=number,
            origin=ask.origin,
            point=ask.point,
            changed=run.space.changed(ask.point),
            elapsed_s=clock - begun,
            left_s=left_s,
        )
        best = choose(history.trials, run.space, fixed_rate=False)
        speed = best.outcome.capacity.low_speed if best and isinstance(best.outcome, Measured) else None
        crashes = 0
        for attempt in range(1, RETRIES + 2):
            outcome = yield from self._evaluate(history, ask.point, number, speed, begun)
            if not isinstance(outcome, Faulted):
                break
            crashes += outcome.engine
            if crashes == 2:
                outcome = Infeasible(cause=Cause.CRASH, evidence=f"{outcome.reason} (twice)")
                break
            if self._search_left(begun) <= 0:
                break
            if attempt <= RETRIES:
                yield Retried(number=number, reason=outcome.reason, attempt=attempt)
        trial = Trial(
            number=number,
            point=dict(ask.point),
            origin=ask.origin,
            outcome=outcome,
            started_at=started_at,
            seconds=self.clock() - clock,
            launches=attempt,
        )
        self.journal.trial(trial)
        history.trials.append(trial)
        history.begun = None
        best = choose(history.trials, run.space, fixed_rate=run.load.at is not None)
        yield TrialEnded(
            trial=trial,
            incumbent=best.number if best else None,
            capacity=best.outcome.capacity if best and isinstance(best.outcome, Measured) else None,
        )

    def _evaluate(
        self, history: History, point: Point, number: int, incumbent: float | None, begun: float
    ) -> Generator[Event, None, Outcome]:
        """Pass events on; the quality of a precision is on disk as soon as it is known, whatever follows."""
        steps = self.evaluate(
            point,
            number=number,
            qualities=history.qualities,
            incumbent=incumbent,
            deadline=lambda: self._search_left(begun),
        )
        with contextlib.closing(steps):
            while True:
                try:
                    event = next(steps)
                except StopIteration as ended:
                    outcome: Outcome = ended.value
                    return outcome
                if isinstance(event, QualityMeasured) and not event.cached:
                    self.journal.write("quality", quality=event.quality)
                    history.qualities[event.quality.precision] = event.quality
                yield event

    def _search_left(self, begun: float) -> float:
        """Seconds of the budget that the search may still use; infinite without a budget."""
        if self.run.budget_s is None:
            return float("inf")
        return self.run.budget_s * (1 - FINALS_SHARE) - (self.clock() - begun)

    def _expected_s(self, history: History) -> float:
        """What the next trial will take at least: a start and two windows, or the cheapest load seen."""
        loaded = [trial.seconds for trial in history.trials[1:] if isinstance(trial.outcome, Measured)]
        return min(loaded, default=self.start_s + 2 * self.run.load.window_s)

    def _finals(self, history: History, winner: Trial, begun: float) -> Generator[Event, None, None]:
        """Confirm the winner, then the defaults, on held-out traffic; what is confirmed already stays."""
        default = history.trials[0]
        wanted = [winner] if winner.number == 0 or not held(default) else [winner, default]
        window_s: float | None = None
        for position, trial in enumerate(wanted):
            known = next((one for one in history.confirmations if one.trial == trial.number), None)
            if known is not None or not isinstance(trial.outcome, Measured):
                window_s = known.window_s if known else None
                continue
            clock = self.clock()
            speeds = self._confirm_speeds(trial, history.confirmations)
            rest = len(wanted) - position - 1
            # The same window for both: what may differ is the point, not which bursts it meets.
            window_s = window_s or self._confirm_window_s(trial.outcome, begun, rest + 1)
            kept_s = rest * (self.start_s + (window_s or 0.0))
            windows: tuple[Window, ...] = ()
            note: str | None = "the budget left no time for it"
            if window_s is not None and self._left(begun) >= self.start_s + window_s:
                yield ConfirmStarted(number=trial.number, speed=speeds[0])
                windows, note = yield from self.confirm(
                    trial.point,
                    number=trial.number,
                    speeds=speeds,
                    window_s=window_s,
                    deadline=partial(self._left, begun, kept_s),
                )
            passed = windows[-1].speed if windows and windows[-1].passed else None
            confirmation = Confirmation(
                trial=trial.number,
                default=trial.number == 0,
                speed=passed,
                rate_rps=None if passed is None else passed * self.run.held_rate_rps,
                windows=windows,
                window_s=window_s,
                note=note,
            )
            self.journal.write("confirmation", confirmation=confirmation, seconds=self.clock() - clock)
            history.confirmations.append(confirmation)

    def _confirm_speeds(self, trial: Trial, confirmed: Sequence[Confirmation]) -> tuple[float, ...]:
        """Speeds of the held-out slice to try, fastest first.

        0.95 of the request rate that the search found, then a fifth less each time. The defaults are tried
        first at the speed that the winner holds: only if they fail there was anything gained. A fixed speed
        stays.
        """
        if self.run.load.at is not None:
            return (self.run.load.at,)
        low_rps = trial.outcome.capacity.low_rps if isinstance(trial.outcome, Measured) else None
        first = PUBLISHED * (low_rps or 0.0) / self.run.held_rate_rps
        own = tuple(first * BACK_OFF**attempt for attempt in range(CONFIRM_ATTEMPTS))
        rival = next((one.speed for one in confirmed if one.trial != trial.number and one.speed), None)
        return own if rival is None else (rival, *(speed for speed in own if speed < rival))

    def _confirm_window_s(self, outcome: Measured, begun: float, remaining: int) -> float | None:
        """How long a confirmation window may be: its share of what is left, at most what a proof needs."""
        load = self.run.load
        proof_s = PROOF_REQUESTS / (outcome.capacity.low_rps or 1.0)
        if self.run.budget_s is None:
            return min(2 * load.window_s, proof_s)
        left_s = self._left(begun)
        for parts in (remaining, 1):  # better the winner alone than half a window for each
            share_s = left_s / parts - self.start_s
            if share_s >= load.window_s:
                return min(share_s / 2, proof_s)  # the other half is for attempts that fail
        return None

    def _left(self, begun: float, kept_s: float = 0.0) -> float:
        """Seconds of the whole budget that are left, `kept_s` put aside; infinite without a budget."""
        if self.run.budget_s is None:
            return float("inf")
        return self.run.budget_s - kept_s - (self.clock() - begun)
