"""What the tuned settings carry against the defaults: on held-out traffic, or in the search alone."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.domain.outcome import Capacity, Confirmation, Measured, Result, Window
from autotune.domain.run import Run
from autotune.report.windows import by_number, confirmation_of, fixed_window
from autotune.report.words import Ratio

HELD_OUT = "on held-out traffic"
SEARCH_ONLY = "search, not confirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The ratio that is claimed and the brackets it compares.

    `held_out` is True when both confirmations held a speed: then they are compared, and `search` is the ratio
    of the climbs, to be shown beside it. Else the climbs are all there is, and `ratio` is theirs.
    """

    ratio: Ratio
    tuned: Capacity
    default: Capacity
    held_out: bool
    search: Ratio | None

    def __str__(self) -> str:
        if not self.held_out:
            return f"{self.ratio} the traffic of the defaults ({SEARCH_ONLY})"
        beside = "" if self.search is None else f" (search: {self.search})"
        return f"{self.ratio} the traffic of the defaults {HELD_OUT}{beside}"


def gain(run: Run, result: Result) -> Gain | None:
    """None without tuned settings, at a fixed rate, and when either of the two held at no speed."""
    best, default = by_number(result.trials, result.winner), by_number(result.trials, 0)
    if best is None or best.number == 0 or default is None or run.load.at is not None:
        return None
    if not isinstance(best.outcome, Measured) or not isinstance(default.outcome, Measured):
        return None
    tuned, usual = best.outcome.capacity, default.outcome.capacity
    search = Ratio.of(tuned, usual)
    mine, theirs = confirmation_of(result, best.number), confirmation_of(result, 0)
    if mine is not None and theirs is not None:
        again, usual_again = confirmed(run, mine), confirmed(run, theirs)
        ratio = Ratio.of(again, usual_again)
        if ratio is not None:
            return Gain(ratio=ratio, tuned=again, default=usual_again, held_out=True, search=search)
    if search is None:
        return None
    return Gain(ratio=search, tuned=tuned, default=usual, held_out=False, search=search)


def confirmed(run: Run, confirmation: Confirmation) -> Capacity:
    """The bracket that a confirmation's attempts leave: the speed that held, the slowest that did not."""
    failed = [window.speed for window in confirmation.windows if not window.passed]
    high = min(failed, default=None)
    return Capacity(
        low_speed=confirmation.speed,
        high_speed=high,
        low_rps=confirmation.rate_rps,
        high_rps=None if high is None else high * run.held_rate_rps,
        output_tokens_per_s=None
        if confirmation.speed is None
        else confirmation.windows[-1].measurement.output_tokens_per_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """At a fixed rate: the windows to compare, both of held-out traffic or both of the search."""

    held_out: bool
    tuned: Window | None
    default: Window | None


def pair(result: Result) -> Pair:
    """The winner's window and that of the defaults, of the confirmations when both were loaded in theirs."""
    best, default = by_number(result.trials, result.winner), by_number(result.trials, 0)
    mine, theirs = confirmation_of(result, result.winner), confirmation_of(result, 0)
    if mine is not None and theirs is not None:
        return Pair(held_out=True, tuned=mine.windows[-1], default=theirs.windows[-1])
    return Pair(
        held_out=False,
        tuned=None if best is None else fixed_window(best),
        default=None if default is None else fixed_window(default),
    )
