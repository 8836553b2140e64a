"""Which speeds a trial is loaded with, and the bracket it ends with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_fixtures import window

from autotune.domain.run import Load
from autotune.evaluate import capacity
from autotune.score.bracket import Bracket, bracket
from autotune.score.climb import climb

LOAD = Load(
    window_requests=500,
    window_s=60.0,
    lead_in_s=10.0,
    max_windows=8,
    resolution=1.08,
    start_speed=1.0,
    min_speed=0.05,
    max_speed=1000.0,
    at=None,
)


def climbed(
    passes: Callable[[float], bool], load: Load = LOAD, incumbent: float | None = None
) -> tuple[list[tuple[float, bool]], Bracket]:
    """Every speed with its result, in order, and the bracket."""
    steps, tried = climb(load, incumbent), []
    speed = next(steps)
    while True:
        passed = passes(speed)
        tried.append((speed, passed))
        try:
            speed = steps.send(passed)
        except StopIteration:
            return tried, bracket(tried)


def up_to(capacity: float) -> Callable[[float], bool]:
    return lambda speed: speed <= capacity


def speeds(tried: list[tuple[float, bool]]) -> list[float]:
    return [speed for speed, _ in tried]


# -- the baseline ---------------------------------------------------------------------------------


def test_a_baseline_steps_up_by_half_until_it_fails_and_halves_the_bracket() -> None:
    tried, found = climbed(up_to(4))
    # 1.5⁴ = 5.0625 fails; √(3.375 · 5.0625) = 4.1335 fails; then 3.7351 and 3.9292 hold
    expected = [1, 1.5, 2.25, 3.375, 5.0625, 4.13351, 3.73505, 3.92924]
    assert speeds(tried) == pytest.approx(expected, rel=1e-5)
    assert (found.low, found.high) == (tried[7][0], tried[5][0])


def test_a_baseline_that_fails_at_the_start_steps_down_by_its_square() -> None:
    tried, found = climbed(up_to(0.3), replace(LOAD, max_windows=3))
    assert speeds(tried) == pytest.approx([1, 1 / 2.25, 1 / 2.25**2])
    assert (found.low, found.high) == pytest.approx((1 / 5.0625, 1 / 2.25))


def test_a_climb_stops_once_its_bracket_is_narrow_enough() -> None:
    # 1 holds and 1.5 fails: a bracket of 1.5; √1.5 = 1.2247 fails: 1.22 is below 1.25
    tried, found = climbed(up_to(1), replace(LOAD, resolution=1.25))
    assert speeds(tried) == pytest.approx([1, 1.5, 1.22474], rel=1e-5)
    assert found.high == pytest.approx(1.22474, rel=1e-5)


def test_a_baseline_that_holds_nowhere_ends_at_the_lowest_speed() -> None:
    tried, found = climbed(up_to(0), replace(LOAD, min_speed=0.3))
    assert speeds(tried) == pytest.approx([1, 1 / 2.25, 0.3])
    assert found == Bracket(low=None, high=0.3)


def test_a_baseline_that_holds_everywhere_ends_at_the_highest_speed() -> None:
    tried, found = climbed(up_to(1e9), replace(LOAD, max_speed=2))
    assert speeds(tried) == [1, 1.5, 2]
    assert found == Bracket(low=2, high=None)


def test_a_climb_out_of_windows_still_finds_what_fails_and_refines_no_more() -> None:
    tried, found = climbed(up_to(3), replace(LOAD, max_windows=2))
    assert speeds(tried) == [1, 1.5, 2.25, 3.375]
    assert found == Bracket(low=2.25, high=3.375)


# -- a candidate ----------------------------------------------------------------------------------


def test_a_loser_gets_one_window_above_the_incumbent_and_one_below() -> None:
    tried, found = climbed(up_to(9), incumbent=10)
    assert speeds(tried) == pytest.approx([10.3, 8.2])
    assert (found.low, found.high) == pytest.approx((8.2, 10.3))


def test_a_bad_loser_is_left_without_a_number() -> None:
    tried, found = climbed(up_to(1), incumbent=10)
    assert speeds(tried) == pytest.approx([10.3, 8.2])
    assert found.low is None
    assert found.high == pytest.approx(8.2)


def test_a_winner_gallops_and_is_then_bracketed() -> None:
    # × 1.03, then × 1.08, 1.08², 1.08⁴: 10.3, 11.124, 12.975, 17.652 fails; √(12.975 · 17.652) = 15.134 holds
    tried, found = climbed(up_to(16), replace(LOAD, max_windows=5), incumbent=10)
    assert speeds(tried) == pytest.approx([10.3, 11.124, 12.97503, 17.65239, 15.13398], rel=1e-5)
    assert (found.low, found.high) == pytest.approx((15.13398, 17.65239), rel=1e-5)


def test_a_candidate_is_not_driven_past_the_highest_speed() -> None:
    tried, found = climbed(up_to(1e9), replace(LOAD, max_speed=10), incumbent=10)
    assert speeds(tried) == [10]
    assert found == Bracket(low=10, high=None)


def test_a_loser_is_not_probed_below_the_lowest_speed() -> None:
    tried, _ = climbed(up_to(0), replace(LOAD, min_speed=9), incumbent=10)
    assert speeds(tried) == pytest.approx([10.3, 9])


def test_a_loser_of_a_single_window_has_no_lower_probe() -> None:
    tried, found = climbed(up_to(0), replace(LOAD, max_windows=1), incumbent=10)
    assert speeds(tried) == pytest.approx([10.3])
    assert found.low is None


@pytest.mark.parametrize("incumbent", [None, 10.0])
@pytest.mark.parametrize("holds", [True, False])
def test_a_fixed_speed_is_one_window(incumbent: float | None, holds: bool) -> None:
    tried, found = climbed(lambda _: holds, replace(LOAD, at=1.0), incumbent)
    assert tried == [(1.0, holds)]
    assert found == (Bracket(low=1.0, high=None) if holds else Bracket(low=None, high=1.0))


# -- whatever the engine does ---------------------------------------------------------------------

loads = st.builds(
    replace,
    st.just(LOAD),
    max_windows=st.integers(1, 10),
    resolution=st.floats(1.01, 2),
    start_speed=st.floats(0.5, 2),
    min_speed=st.floats(0.01, 0.5),
    max_speed=st.floats(2, 100),
)
incumbents = st.none() | st.floats(0.5, 2)


@given(load=loads, incumbent=incumbents, capacity=st.floats(0.001, 200))
def test_the_bracket_holds_the_capacity(load: Load, incumbent: float | None, capacity: float) -> None:
    tried, found = climbed(up_to(capacity), load, incumbent)
    assert found.low is None or found.low <= capacity
    assert found.high is None or found.high > capacity
    assert len(set(speeds(tried))) == len(tried)  # no window is spent on what is known


@given(load=loads, incumbent=incumbents, luck=st.randoms(use_true_random=False))
def test_even_noise_keeps_a_climb_in_bounds(load: Load, incumbent: float | None, luck: Random) -> None:
    results = iter(lambda: luck.random() < 0.5, None)
    tried, found = climbed(lambda _: next(results), load, incumbent)
    # from 0.5 up to 100 in steps of 1.5 takes 14 windows; nothing but the way up may exceed max_windows
    assert 1 <= len(tried) <= load.max_windows + 14
    assert all(load.min_speed <= speed <= load.max_speed for speed in speeds(tried))
    assert found.low is None or (found.low, True) in tried
    assert found.high is None or (found.high, False) in tried
    if found.low is not None and found.high is not None:
        assert found.low < found.high


# -- the bracket ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("results", "low", "high"),
    [
        ([], None, None),
        ([(2, True)], 2, None),
        ([(2, False)], None, 2),
        ([(2, True), (4, False), (3, True)], 3, 4),
        ([(2, True), (4, False), (3, False)], 2, 3),
        ([(2, True), (4, False), (5, False)], 2, 4),
        ([(2, True), (4, False), (5, True)], 2, 4),  # a pass above a fail is noise
        ([(2, True), (4, False), (1, False)], None, 1),  # a fail below a pass stands
        ([(2, True), (4, True), (3, False)], 2, 3),
    ],
)
def test_windows_leave_a_bracket(
    results: list[tuple[float, bool]], low: float | None, high: float | None
) -> None:
    assert bracket(results) == Bracket(low=low, high=high)
    found = capacity([window(speed, passed=passed) for speed, passed in results], 2.0)
    assert (found.low_speed, found.high_speed) == (low, high)
    assert found.low_rps == (None if low is None else low * 2)
    assert found.high_rps == (None if high is None else high * 2)
