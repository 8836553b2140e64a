"""How far to climb: which speed to try next inside one launch.

A climb is a generator that yields a speed and is sent whether the window at that speed passed.
"""

from __future__ import annotations

from collections.abc import Generator

from autotune.domain.run import Load
from autotune.score.bracket import bracket

ANCHOR = 1.03
"""First speed of a candidate as a multiple of the incumbent's: better beyond noise or not at all."""
LOWER_PROBE = 0.82
"""The one probe below the incumbent that gives the sampler a number for a loser."""
STEP = 1.08
"""First step above the anchor; its exponent doubles with each pass (1.08, 1.17, 1.36, 1.85)."""
BASELINE_STEP = 1.5
"""Step of the baseline, which has nothing to be anchored at."""


Climb = Generator[float, bool, None]


def climb(load: Load, incumbent: float | None) -> Climb:
    """The windows of one trial: fixed speed, baseline, or anchored at the incumbent's speed."""
    if load.at is not None:
        yield load.at
        return
    results: list[tuple[float, bool]] = []
    if incumbent is None:
        yield from _find(load, results)
    else:
        yield from _anchored(load, incumbent, results)
        found = bracket(results)
        if found.low is None or (found.high is not None and found.low < incumbent):
            return  # a loser has had its one lower probe
    while len(results) < load.max_windows:
        found = bracket(results)
        if found.low is None or found.high is None or found.high / found.low <= load.resolution:
            return
        yield from _window(results, (found.low * found.high) ** 0.5)


def _window(results: list[tuple[float, bool]], speed: float) -> Generator[float, bool, bool]:
    """One window: keeps its result, and returns it."""
    passed = yield speed
    results.append((speed, passed))
    return passed


def _find(load: Load, results: list[tuple[float, bool]]) -> Climb:
    """Step up by 1.5 from the start while it passes, or down by 1.5² while it fails.

    Goes on past `max_windows` until something fails: a capacity without an upper end compares with nothing.
    """
    speed = load.start_speed
    while len(results) < load.max_windows or bracket(results).high is None:
        passed = yield from _window(results, speed)
        found = bracket(results)
        if found.low is not None and found.high is not None:
            return
        if (passed and speed >= load.max_speed) or (not passed and speed <= load.min_speed):
            return
        speed = (
            min(speed * BASELINE_STEP, load.max_speed)
            if passed
            else max(speed / BASELINE_STEP**2, load.min_speed)
        )


def _anchored(load: Load, incumbent: float, results: list[tuple[float, bool]]) -> Climb:
    """One window just above the incumbent decides; a winner gallops on, a loser gets one lower probe.

    The gallop, too, ends at a failure and not at `max_windows`.
    """
    speed, exponent = min(incumbent * ANCHOR, load.max_speed), 1
    while (yield from _window(results, speed)) and speed < load.max_speed:
        speed, exponent = min(speed * STEP**exponent, load.max_speed), exponent * 2
    if bracket(results).low is None and len(results) < load.max_windows:
        yield from _window(results, max(incumbent * LOWER_PROBE, load.min_speed))
