"""How far to climb: which speed to try next inside one launch.

A climb is a generator that yields a speed and is sent whether the window at that speed passed.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from autotune.domain.run import Load

ANCHOR = 1.03
"""First speed of a candidate as a multiple of the incumbent's: better beyond noise or not at all."""
LOWER_PROBE = 0.82
"""The one probe below the incumbent that gives the sampler a number for a loser."""
STEP = 1.08
"""First step above the anchor; its exponent doubles with each pass (1.08, 1.17, 1.36, 1.85)."""
BASELINE_STEP = 1.5
"""Step of the baseline, which has nothing to be anchored at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """Highest speed that passed and lowest that failed; None where there was none."""

    low: float | None
    high: float | None

    def with_result(self, speed: float, *, passed: bool) -> Bracket:
        """Narrow by one window. A pass above an earlier fail is noise: the fail stands."""
        if passed:
            if self.high is not None and speed >= self.high:
                return self
            return Bracket(low=max(speed, self.low or 0.0), high=self.high)
        high = speed if self.high is None else min(speed, self.high)
        low = self.low if self.low is not None and self.low < high else None
        return Bracket(low=low, high=high)


Climb = Generator[float, bool, Bracket]


def climb(load: Load, incumbent: float | None) -> Climb:
    """The windows of one trial: fixed speed, baseline, or anchored at the incumbent's speed."""
    bracket = Bracket(low=None, high=None)
    if load.at is not None:
        passed = yield load.at
        return bracket.with_result(load.at, passed=passed)
    if incumbent is None:
        used, bracket = yield from _find(load)
    else:
        used, bracket = yield from _anchored(load, incumbent)
        if bracket.low is None or (bracket.high is not None and bracket.low < incumbent):
            return bracket  # a loser has had its one lower probe
    while (
        used < load.max_windows
        and bracket.low is not None
        and bracket.high is not None
        and bracket.high / bracket.low > load.resolution
    ):
        speed = (bracket.low * bracket.high) ** 0.5
        passed = yield speed
        used, bracket = used + 1, bracket.with_result(speed, passed=passed)
    return bracket


def _find(load: Load) -> Generator[float, bool, tuple[int, Bracket]]:
    """Step up by 1.5 from the start while it passes, or down by 1.5² while it fails.

    Goes on past `max_windows` until something fails: a capacity without an upper end compares with nothing.
    """
    bracket, speed, used = Bracket(low=None, high=None), load.start_speed, 0
    while used < load.max_windows or bracket.high is None:
        passed = yield speed
        used, bracket = used + 1, bracket.with_result(speed, passed=passed)
        if bracket.low is not None and bracket.high is not None:
            break
        if (passed and speed >= load.max_speed) or (not passed and speed <= load.min_speed):
            break
        speed = (
            min(speed * BASELINE_STEP, load.max_speed)
            if passed
            else max(speed / BASELINE_STEP**2, load.min_speed)
        )
    return used, bracket


def _anchored(load: Load, incumbent: float) -> Generator[float, bool, tuple[int, Bracket]]:
    """One window just above the incumbent decides; a winner gallops on, a loser gets one lower probe.

    The gallop, too, ends at a failure and not at `max_windows`.
    """
    speed = min(incumbent * ANCHOR, load.max_speed)
    bracket, used, exponent = Bracket(low=None, high=None), 0, 1
    while bracket.high is None:
        passed = yield speed
        used, bracket = used + 1, bracket.with_result(speed, passed=passed)
        if speed >= load.max_speed:
            break
        speed, exponent = min(speed * STEP**exponent, load.max_speed), exponent * 2
    if bracket.low is None and used < load.max_windows:
        lower = max(incumbent * LOWER_PROBE, load.min_speed)
        passed = yield lower
        used, bracket = used + 1, bracket.with_result(lower, passed=passed)
    return used, bracket
