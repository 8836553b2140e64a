"""Which values are bad, how many a window may hold, and the percentile that goes with them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from timing_fixtures import timing

from autotune.domain.measurement import Count
from autotune.domain.slo import Metric, Slo
from autotune.domain.timing import Timing
from autotune.score.counts import allowed_bad, count, expected_values, holds, judged, rank_of

TTFT = Slo.parse("ttft_p99=500ms")
ITL = Slo.parse("itl_p99=50ms")
TPOT = Slo.parse("tpot_p99=40ms")
E2EL = Slo.parse("e2el_p99=1s")


# -- one request ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("slo", "values", "bad"), [(TTFT, 1, 0), (ITL, 3, 1), (TPOT, 1, 1), (E2EL, 1, 0)])
def test_a_finished_request_counts_what_it_showed(slo: Slo, values: int, bad: int) -> None:
    # TTFT 400 ms; gaps 20, 20 and 140 ms; TPOT 180 / 3 = 60 ms; E2EL 580 ms
    assert judged(slo, timing(400, 420, 440, 580)) == (values, bad)


def test_a_value_at_its_limit_is_within_it() -> None:
    assert judged(TTFT, timing(500)) == (1, 0)
    assert judged(TTFT, timing(500.001)) == (1, 1)


def test_a_finished_single_token_has_no_gap_and_no_time_per_token() -> None:
    assert judged(TPOT, timing(10)) == (0, 0)
    assert judged(ITL, timing(10)) == (0, 0)
    assert judged(TTFT, timing(10)) == (1, 0)


def test_a_wait_counts_from_the_due_time() -> None:
    assert judged(TTFT, timing(900, due_ms=500)) == (1, 0)
    assert judged(TTFT, timing(1100, due_ms=500)) == (1, 1)


@pytest.mark.parametrize(("slo", "values"), [(TTFT, 1), (ITL, 9), (TPOT, 1), (E2EL, 1)])
@pytest.mark.parametrize("token_ms", [(), (100,), (100, 110, 120)])
def test_every_value_of_a_failed_request_is_bad(slo: Slo, values: int, token_ms: tuple[int, ...]) -> None:
    assert judged(slo, timing(*token_ms, output_tokens=10, failed=True)) == (values, values)


def test_a_request_that_failed_after_its_last_token_is_bad_too() -> None:
    assert judged(ITL, timing(100, 110, 120, failed=True)) == (2, 2)


def test_a_failed_request_for_one_token_owes_no_gap_and_no_time_per_token() -> None:
    assert judged(TPOT, timing(output_tokens=1, failed=True)) == (0, 0)
    assert judged(ITL, timing(output_tokens=1, failed=True)) == (0, 0)


@pytest.mark.parametrize(
    ("slo", "waiting", "expected"),
    [
        # What had not happened when we cut the request off is unknown, unless its limit had passed already.
        (TTFT, timing(output_tokens=4, ended_ms=500, cancelled=True), (0, 0)),
        (TTFT, timing(output_tokens=4, ended_ms=501, cancelled=True), (1, 1)),
        (TTFT, timing(400, output_tokens=4, ended_ms=9000, cancelled=True), (1, 0)),
        (TTFT, timing(600, output_tokens=4, ended_ms=9000, cancelled=True), (1, 1)),
        (E2EL, timing(400, output_tokens=4, ended_ms=1000, cancelled=True), (0, 0)),
        (E2EL, timing(400, output_tokens=4, ended_ms=1001, cancelled=True), (1, 1)),
        # three gaps to fill: 3 · 40 ms are not over yet, then they are
        (TPOT, timing(400, 420, output_tokens=4, ended_ms=520, cancelled=True), (0, 0)),
        (TPOT, timing(400, 420, output_tokens=4, ended_ms=521, cancelled=True), (1, 1)),
        # a silence that is longer than the limit is a bad gap, whenever it ends
        (ITL, timing(400, 420, 520, output_tokens=9, ended_ms=530, cancelled=True), (2, 1)),
        (ITL, timing(400, 420, 520, output_tokens=9, ended_ms=9000, cancelled=True), (3, 2)),
        (ITL, timing(400, 420, 520, output_tokens=3, ended_ms=9000, cancelled=True), (2, 1)),
    ],
)
def test_a_cancelled_request_counts_for_what_was_certain(
    slo: Slo, waiting: Timing, expected: tuple[int, int]
) -> None:
    assert judged(slo, waiting) == expected


# -- many requests --------------------------------------------------------------------------------


def test_a_count_sums_requests_and_takes_the_percentile() -> None:
    # 100 values of 1 to 100 ms: the p99 is the 99th, and none is over 500 ms
    assert count(TTFT, [timing(ms) for ms in range(100, 0, -1)]) == Count(
        slo=TTFT, n=100, bad=0, requests=100, value_s=0.099
    )


def test_gaps_are_pooled_and_their_requests_counted() -> None:
    # gaps of 10, 10 | 10, 100 | none: the p99 of 4 gaps is the 4th
    found = count(ITL, [timing(0, 10, 20), timing(0, 10, 110), timing(5)])
    assert found == Count(slo=ITL, n=4, bad=1, requests=2, value_s=0.1)


def test_no_request_gives_no_value() -> None:
    assert count(TTFT, []) == Count(slo=TTFT, n=0, bad=0, requests=0, value_s=None)


def test_the_percentile_of_failures_is_no_value() -> None:
    timings = [timing(100) for _ in range(98)] + [timing(output_tokens=1, failed=True) for _ in range(2)]
    assert count(TTFT, timings) == Count(slo=TTFT, n=100, bad=2, requests=100, value_s=None)


def test_one_failure_of_a_hundred_stands_above_the_p99() -> None:
    timings = [timing(ms) for ms in range(1, 100)] + [timing(output_tokens=1, failed=True)]
    assert count(TTFT, timings) == Count(slo=TTFT, n=100, bad=1, requests=100, value_s=0.099)


def test_a_fast_first_token_of_a_failed_request_does_not_lower_the_percentile() -> None:
    timings = [timing(1, output_tokens=9, failed=True) for _ in range(100)]
    assert count(TTFT, timings) == Count(slo=TTFT, n=100, bad=100, requests=100, value_s=None)


requests = st.builds(
    timing,
    st.integers(0, 1000),
    output_tokens=st.integers(1, 4),
    ended_ms=st.integers(1000, 2000),
    failed=st.just(value=False),
    cancelled=st.booleans(),
) | st.builds(
    timing, output_tokens=st.integers(1, 4), ended_ms=st.integers(0, 2000), failed=st.just(value=True)
)


@given(
    timings=st.lists(requests, min_size=1, max_size=300),
    metric=st.sampled_from([Metric.TTFT, Metric.E2EL]),
    percentile=st.sampled_from([50.0, 90.0, 95.0, 99.0]),
)
def test_as_many_bad_as_allowed_and_a_percentile_within_the_limit_are_the_same(
    timings: list[Timing], metric: Metric, percentile: float
) -> None:
    slo = Slo(metric=metric, percentile=percentile, limit_s=0.5)
    found = count(slo, timings)
    within = found.value_s is not None and found.value_s <= slo.limit_s
    assert holds([found]) == within


# -- what a window may hold -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("percentile", "n", "rank"),
    [
        # The worked example of the nearest-rank method: 5 values, percentiles 5, 30, 40, 50 and 100.
        (5, 5, 1),
        (30, 5, 2),
        (40, 5, 2),
        (50, 5, 3),
        (100, 5, 5),
        (99, 1, 1),
        (99, 99, 99),
        (99, 100, 99),
        (99, 101, 100),
        (99, 1000, 990),
        (99.9, 1000, 999),
        (95, 20, 19),
    ],
)
def test_a_percentile_is_an_order_statistic(percentile: float, n: int, rank: int) -> None:
    assert rank_of(percentile, n) == rank


@pytest.mark.parametrize(
    ("percentile", "n", "allowed"),
    [
        (99, 0, 0),
        (99, 99, 0),
        (99, 100, 1),
        (99, 199, 1),
        (99, 200, 2),
        (99, 1000, 10),
        (99, 10_000, 100),
        (95, 19, 0),
        (95, 20, 1),
        (90, 10, 1),
        (50, 3, 1),
        (99.9, 999, 0),
        (99.9, 1000, 1),
    ],
)
def test_a_window_may_hold_the_share_above_the_percentile(percentile: float, n: int, allowed: int) -> None:
    assert allowed_bad(Slo(metric=Metric.TTFT, percentile=percentile, limit_s=1), n) == allowed


@given(percentile=st.integers(500, 999).map(lambda p: p / 10), n=st.integers(1, 100_000))
def test_the_percentile_and_what_lies_above_it_make_the_whole(percentile: float, n: int) -> None:
    slo = Slo(metric=Metric.TTFT, percentile=percentile, limit_s=1)
    assert rank_of(percentile, n) + allowed_bad(slo, n) == n


@pytest.mark.parametrize(("slo", "values"), [(TTFT, 4), (E2EL, 4), (TPOT, 2), (ITL, 11)])
def test_the_values_of_a_window_follow_from_its_output_lengths(slo: Slo, values: int) -> None:
    # one token has neither gap nor time per token; 10 and 3 tokens have 9 + 2 gaps
    assert expected_values(slo, [1, 10, 3, 1]) == values


def counted(n: int, bad: int, slo: Slo = TTFT) -> Count:
    return Count(slo=slo, n=n, bad=bad, requests=n, value_s=None)


def test_a_window_holds_with_as_many_bad_as_allowed_in_every_objective() -> None:
    assert holds([counted(500, 5), counted(500, 0, E2EL)])
    assert not holds([counted(500, 6), counted(500, 0, E2EL)])
    assert not holds([counted(500, 5), counted(500, 6, E2EL)])


def test_a_window_without_values_of_an_objective_does_not_hold() -> None:
    assert not holds([counted(500, 0), counted(0, 0, TPOT)])
