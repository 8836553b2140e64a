"""Which trial wins, and on what a tie is decided."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_fixtures import SPACE, measured, trial, window

from autotune.domain.launch import StartFacts
from autotune.domain.outcome import (
    Capacity,
    Cause,
    Faulted,
    Infeasible,
    Measured,
    Outcome,
    Stopped,
    Trial,
)
from autotune.domain.slo import Slo
from autotune.score.choose import choose, depth, score


def held(speed: float, value_s: float = 0.3) -> Measured:
    """Capacity of `speed` (2 requests/s each), the p99 at `value_s` against a limit of 500 ms."""
    return replace(measured(speed, None), windows=(window(speed, passed=True, value_s=value_s),))


def winner(*trials: Trial, fixed_rate: bool = False) -> int | None:
    best = choose(trials, SPACE, fixed_rate=fixed_rate)
    return None if best is None else best.number


UNUSABLE: list[Outcome] = [
    Infeasible(cause=Cause.OUT_OF_MEMORY, evidence="CUDA out of memory"),
    Stopped(reason="the budget ended", windows=()),
    Faulted(reason="late", engine=False),
    measured(None, 0.5),
]


def test_the_highest_capacity_wins() -> None:
    assert winner(trial(0, held(2.0)), trial(1, held(4.0), max_num_seqs=512), trial(2, held(3.0))) == 1


def test_without_a_trial_that_held_nobody_wins() -> None:
    assert winner() is None
    assert winner(*(trial(number, outcome) for number, outcome in enumerate(UNUSABLE))) is None


@pytest.mark.parametrize("outcome", UNUSABLE)
@pytest.mark.parametrize("fixed_rate", [False, True])
def test_what_held_nowhere_has_no_score_and_loses_to_anything(outcome: Outcome, fixed_rate: bool) -> None:
    assert score(trial(1, outcome), fixed_rate=fixed_rate) is None
    assert winner(trial(0, held(0.01)), trial(1, outcome), fixed_rate=fixed_rate) == 0


def test_two_percent_more_is_noise_and_the_defaults_stay() -> None:
    # 4.0 / 4.08 = 0.98039 is inside 2 %, 4.0 / 4.09 = 0.97800 is not
    assert winner(trial(0, held(4.0)), trial(1, held(4.08), max_num_seqs=512)) == 0
    assert winner(trial(0, held(4.0)), trial(1, held(4.09), max_num_seqs=512)) == 1


def test_a_tie_goes_to_fewer_changed_settings() -> None:
    two = trial(1, held(4.02), max_num_seqs=512, kv_cache_dtype="fp8")
    one = trial(2, held(4.0), max_num_seqs=512)
    assert winner(two, one) == 2


def test_a_tie_of_as_many_settings_goes_to_the_lower_percentile() -> None:
    slow = trial(1, held(4.02, value_s=0.45), max_num_seqs=512)
    fast = trial(2, held(4.0, value_s=0.2), max_num_seqs=1024)
    assert winner(slow, fast) == 2


def test_a_complete_tie_goes_to_the_earlier_trial() -> None:
    assert winner(trial(2, held(4.0), max_num_seqs=512), trial(1, held(4.0), max_num_seqs=1024)) == 1


def test_at_a_fixed_rate_the_trial_deepest_inside_its_limits_wins() -> None:
    # both hold at 1 ×; 500 / 400 = 1.25 against 500 / 200 = 2.5
    default, fast = trial(0, held(1.0, value_s=0.4)), trial(1, held(1.0, value_s=0.2), max_num_seqs=512)
    assert winner(default, fast, fixed_rate=True) == 1
    assert winner(default, fast, fixed_rate=False) == 0
    assert score(fast, fixed_rate=True) == pytest.approx(2.5)


def test_the_score_is_capacity_in_requests_a_second() -> None:
    assert score(trial(0, held(2.5)), fixed_rate=False) == 5.0


def test_depth_is_that_of_the_tightest_objective() -> None:
    tpot = Slo.parse("tpot_p95=40ms")
    ttft = window(1.0, passed=True, value_s=0.1)  # 500 / 100 = 5
    both = replace(
        ttft,
        measurement=replace(
            ttft.measurement,
            counts=(
                *ttft.measurement.counts,
                *window(1.0, passed=True, value_s=0.032, slo=tpot).measurement.counts,  # 40 / 32
            ),
        ),
    )
    assert depth([ttft]) == pytest.approx(5)
    assert depth([both]) == pytest.approx(1.25)
    assert depth([]) == 0


def test_depth_is_taken_at_the_speed_that_held_not_at_the_one_that_failed() -> None:
    climbed = Measured(
        capacity=Capacity(low_speed=2, high_speed=3, low_rps=4, high_rps=6, output_tokens_per_s=800),
        windows=(window(2, passed=True, value_s=0.25), window(3, passed=False, value_s=2.0)),
        quality=None,
        facts=StartFacts(start_s=1.0),
    )
    assert score(trial(0, climbed), fixed_rate=True) == pytest.approx(2)


@given(st.permutations([2.0, 2.02, 3.0, 3.05, 3.3, 3.31]))
def test_the_order_of_the_trials_does_not_matter(speeds: list[float]) -> None:
    trials = [trial(int(speed * 100), held(speed), max_num_seqs=512) for speed in speeds]
    assert winner(*trials) == 330  # ties with 331, and is earlier
