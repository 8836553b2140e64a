"""What a recording looks like, with figures worked out by hand."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.workload import Request
from autotune.score.measure import quantile
from autotune.traffic.arrivals import Dispersion, Gaps, RateLine
from autotune.traffic.profile import Profile, profile, spread
from autotune.traffic.reuse import DENSE_IDS, Seen


def at(*offsets_s: float) -> list[Request]:
    return [Request(offset_s=offset, prompt_tokens=10, output_tokens=2) for offset in offsets_s]


def looked_at(requests: list[Request], *, block_tokens: int | None = None, timed: bool = True) -> Profile:
    return profile(iter(requests), block_tokens=block_tokens, timed=timed)


# -- rate and burstiness --------------------------------------------------------------------------


def test_the_rate_is_gaps_over_duration() -> None:
    found = looked_at(at(5.0, 6.0, 9.0))
    assert found.requests == 3
    assert found.duration_s == 4.0
    assert found.rate_rps == 0.5


def test_even_gaps_do_not_vary() -> None:
    assert looked_at(at(0, 2, 4, 6)).gap_cv == 0


def test_the_variation_of_gaps_is_their_deviation_over_their_mean() -> None:
    # Gaps 1, 1, 4: mean 2, squares of deviations 1, 1, 4, so sqrt(2) / 2.
    assert looked_at(at(0, 1, 2, 6)).gap_cv == pytest.approx(0.70710678)


def test_one_gap_does_not_vary_and_says_nothing() -> None:
    assert looked_at(at(0, 1)).gap_cv is None


def test_the_dispersion_of_counts_is_variance_over_mean_of_whole_windows() -> None:
    # Whole seconds hold 3, 0, 1 and 0; the one that begins at 4 is cut off. Mean 1, variance 6/4.
    assert looked_at(at(0, 0.5, 0.9, 2.5, 4.0)).dispersion_1s == 1.5


def test_the_same_count_in_every_window_has_no_dispersion() -> None:
    assert looked_at(at(*range(21))).dispersion_10s == 0


def test_one_whole_window_has_no_dispersion_at_all() -> None:
    found = looked_at(at(0, 12))
    assert found.dispersion_10s is None
    assert found.dispersion_1s == pytest.approx(11 / 12)  # one of twelve: 1/12 - 1/144 over 1/12


def test_a_poisson_process_has_both_near_one() -> None:
    draw = random.Random(1)
    offsets = [0.0]
    for _ in range(20_000):
        offsets.append(offsets[-1] + draw.expovariate(5))
    found = looked_at(at(*offsets))
    assert found.gap_cv == pytest.approx(1, abs=0.05)
    assert found.dispersion_1s == pytest.approx(1, abs=0.1)
    assert found.step is None


@given(st.lists(st.floats(0.001, 1e4), min_size=2, max_size=50))
def test_the_variation_does_not_depend_on_the_unit(gaps: list[float]) -> None:
    one, other = Gaps(), Gaps()
    for gap in gaps:
        one.add(gap)
        other.add(gap * 1e3)
    assert one.cv() == pytest.approx(other.cv(), abs=1e-6)


def test_a_window_far_away_is_reached_at_once() -> None:
    counts = Dispersion(1.0)
    counts.add(0)
    counts.add(1e12)
    assert counts.index() == pytest.approx(1)


def test_the_rate_over_time_keeps_every_arrival_in_few_bins() -> None:
    line = RateLine()
    for second in range(1000):
        line.add(float(second))
    bin_s, rates = line.rates_rps(most=64)
    assert bin_s == 16  # 62 whole bins of 16 s and the rest
    assert rates == (1.0,) * 62


# -- quantised stamps -----------------------------------------------------------------------------


def test_stamps_that_come_every_three_seconds_are_a_step() -> None:
    found = looked_at(at(*(3.0 * (index // 4) for index in range(80)))).step
    assert found is not None
    assert found.seconds == pytest.approx(3.0)
    assert found.stamps == 20
    assert found.requests_per_stamp == 4


def test_a_step_may_jitter_and_be_left_out_now_and_then() -> None:
    stamps = [3.0 * place + (0.001 if place % 3 else 0) for place in range(40) if place % 7]
    found = looked_at(at(*(stamp for stamp in stamps for _ in range(5)))).step
    assert found is not None
    assert found.seconds == pytest.approx(3.0, abs=0.01)


def test_one_request_at_each_even_stamp_is_no_step() -> None:
    assert looked_at(at(*range(100))).step is None


def test_bursts_at_any_moment_are_no_step() -> None:
    draw = random.Random(3)
    stamp, offsets = 0.0, []
    for _ in range(400):
        offsets += [stamp] * 10
        stamp += draw.expovariate(1 / 30)
    assert looked_at(at(*offsets)).step is None


def test_milliseconds_are_no_step() -> None:
    assert looked_at(at(*(0.001 * (index // 4) for index in range(80)))).step is None


# -- lengths --------------------------------------------------------------------------------------


def test_percentiles_are_values_that_were_seen() -> None:
    found = spread({1: 50, 7: 40, 1000: 10})
    assert found is not None
    assert (found.p50, found.p90, found.p99, found.max) == (1, 7, 1000, 1000)
    assert found.mean == 103.3  # (50 + 280 + 10,000) / 100


@given(st.lists(st.integers(1, 50), min_size=1, max_size=300), st.sampled_from([50, 90, 99]))
def test_percentiles_are_the_ones_a_measurement_uses(values: list[int], percentile: int) -> None:
    found = spread({value: values.count(value) for value in values})
    assert found is not None
    assert getattr(found, f"p{percentile}") == quantile(sorted(values), percentile)


def test_no_value_has_no_percentile() -> None:
    found = looked_at([])
    assert found.requests == 0
    assert found.input_tokens is None
    assert found.duration_s is None


# -- prefix reuse ---------------------------------------------------------------------------------


def blocks(*ids: int, tokens: int) -> Request:
    return Request(offset_s=0, prompt_tokens=tokens, output_tokens=1, blocks=ids)


def test_the_share_counts_leading_blocks_that_were_met_before() -> None:
    requests = [
        blocks(1, 2, 3, tokens=30),  # nothing before it
        blocks(1, 2, 9, tokens=30),  # 20 of 30
        blocks(7, 2, 3, tokens=40),  # begins anew: block 2 is not behind its prefix
    ]
    assert looked_at(requests, block_tokens=10).prefix_share == 0.2  # 20 of 100


def test_a_cut_last_block_counts_only_the_tokens_there_are() -> None:
    requests = [blocks(1, 2, tokens=15), blocks(1, 2, tokens=15)]
    assert looked_at(requests, block_tokens=10).prefix_share == 0.5  # 15 of 30, not 20


def test_a_recording_without_blocks_has_no_share() -> None:
    assert looked_at(at(0, 1)).prefix_share is None


def test_a_recording_that_reuses_nothing_has_a_share_of_zero() -> None:
    assert looked_at([blocks(1, tokens=10), blocks(2, tokens=10)], block_tokens=10).prefix_share == 0


@given(
    st.lists(
        st.lists(st.integers(0, 40) | st.integers(DENSE_IDS - 2, 2**63) | st.integers(-9, -1), max_size=6),
        max_size=40,
    )
)
def test_ids_of_any_size_are_met_once(prompts: list[list[int]]) -> None:
    seen, met = Seen(exact_ids=5), set[int]()
    for prompt in prompts:
        expected = next((place for place, one in enumerate(prompt) if one not in met), len(prompt))
        assert seen.leading(prompt) == expected
        met.update(prompt)


def test_hashed_ids_pass_for_seen_as_seldom_as_documented() -> None:
    # 40,000 ids of three bits in 2 ** 21: 5.6 % of the bits are set, and its cube is 1.7 in 10,000.
    seen = Seen(exact_ids=10, hashed_bits=2**21)
    draw = random.Random(4)
    wrong = 0
    for _ in range(40_000):
        wrong += seen.leading([draw.getrandbits(60) | 1 << 61])
    assert wrong < 20


# -- sessions, times, concurrency -----------------------------------------------------------------


def test_sessions_and_their_turns_are_counted() -> None:
    requests = [
        Request(offset_s=place, prompt_tokens=1, output_tokens=1, session=name)
        for place, name in enumerate(["a", "b", "a", None, "a"])
    ]
    found = looked_at(requests)
    assert found.sessions == 2
    assert found.turns is not None
    assert (found.turns.mean, found.turns.max) == (2, 3)


def test_a_recording_that_names_no_session_has_none_rather_than_zero() -> None:
    assert looked_at(at(0, 1)).sessions is None


def test_what_rests_on_times_is_absent_without_them() -> None:
    found = looked_at(at(0, 0, 0), timed=False)
    assert found.requests == 3
    assert found.duration_s is None
    assert found.rate_rps is None
    assert found.gap_cv is None
    assert found.dispersion_1s is None
    assert found.step is None
    assert found.concurrency(0.03) is None
    assert found.input_tokens is not None


def test_concurrency_is_rate_times_the_time_of_an_answer() -> None:
    # Two requests a second, 2 tokens each at 30 ms: 0.12 in flight.
    assert looked_at(at(0, 0.5, 1)).concurrency(0.03) == pytest.approx(0.12)
