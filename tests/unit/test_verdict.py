"""PASS, FAIL and UNDECIDED against published tables, exact error rates and worked examples."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.measurement import Count, Measurement, State, Verdict
from autotune.domain.slo import Slo
from autotune.score.verdict import judge, lower_share, passes, upper_share

P99 = Slo.parse("ttft_p99=500ms")
P95 = Slo.parse("ttft_p95=500ms")
ITL = Slo.parse("itl_p99=50ms")


def counted(n: int, bad: int = 0, *, slo: Slo = P99, requests: int | None = None) -> Count:
    return Count(slo=slo, n=n, bad=bad, requests=n if requests is None else requests, value_s=0.1)


def judged(
    *counts: Count,
    planned: int | None = None,
    confidence: float = 0.95,
    design_effect: float = 1.0,
) -> Verdict:
    """The verdict on these counts; `planned` makes it a curtailed window of so many requests."""
    sent = max((one.requests for one in counts), default=0)
    measurement = Measurement(
        speed=1.0,
        rate_rps=1.0,
        planned=sent if planned is None else planned,
        sent=sent,
        finished=sent,
        failed=0,
        curtailed=planned is not None,
        duration_s=60.0,
        served_rps=1.0,
        output_tokens_per_s=1.0,
        send_lag_p99_s=0.0,
        counts=counts,
        quantiles={},
        engine={},
        errors={},
    )
    return judge(measurement, confidence=confidence, design_effect=design_effect)


def state(
    n: int,
    bad: int = 0,
    *,
    slo: Slo = P99,
    planned: int | None = None,
    confidence: float = 0.95,
    design_effect: float = 1.0,
) -> State:
    verdict = judged(
        counted(n, bad, slo=slo), planned=planned, confidence=confidence, design_effect=design_effect
    )
    assert verdict.state is verdict.judgements[0].state
    return verdict.state


# -- the bound ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "n", "lower", "upper"),
    [
        # Two-sided 95 % limits for 10 trials, as tables of Clopper and Pearson's limits print them.
        (0, 10, 0.0, 0.3085),
        (1, 10, 0.0025, 0.4450),
        (2, 10, 0.0252, 0.5561),
        (5, 10, 0.1871, 0.8129),
        (10, 10, 0.6915, 1.0),
    ],
)
def test_the_bounds_are_those_of_clopper_and_pearson(bad: int, n: int, lower: float, upper: float) -> None:
    assert lower_share(bad, n, 0.975) == pytest.approx(lower, abs=5e-5)
    assert upper_share(bad, n, 0.975) == pytest.approx(upper, abs=5e-5)


def test_without_observations_the_share_may_be_anything() -> None:
    assert (lower_share(0, 0, 0.95), upper_share(0, 0, 0.95)) == (0.0, 1.0)
    assert not passes(0, 0, 0.5, 0.95)


BAD = (0, 1, 2, 3, 4, 5, 6, 8, 10, 20, 50)
NEEDED = [
    (0.01, 0.95, (299, 473, 628, 773, 913, 1049, 1182, 1441, 1693, 2902, 6323)),
    (0.01, 0.99, (459, 662, 838, 1001, 1157, 1307, 1453, 1736, 2010, 3304, 6898)),
    (0.05, 0.95, (59, 93, 124, 153, 181, 208)),
    (0.10, 0.95, (29, 46, 61, 76, 89)),
]


@pytest.mark.parametrize(
    ("allowed", "confidence", "bad", "n"),
    [
        (allowed, confidence, bad, n)
        for allowed, confidence, row in NEEDED
        for bad, n in zip(BAD, row, strict=False)
    ],
)
def test_a_pass_takes_the_published_number_of_requests_and_not_one_less(
    allowed: float, confidence: float, bad: int, n: int
) -> None:
    assert passes(bad, n, allowed, confidence)
    assert not passes(bad, n - 1, allowed, confidence)


@pytest.mark.parametrize(
    ("n", "confidence", "most"),
    [
        (500, 0.95, 1),
        (1000, 0.95, 4),
        (2000, 0.95, 12),
        (3000, 0.95, 20),
        (5000, 0.95, 38),
        (10_000, 0.95, 83),
        (1000, 0.99, 2),
        (2000, 0.99, 9),
        (5000, 0.99, 33),
    ],
)
def test_so_many_bad_requests_still_prove_a_p99(n: int, confidence: float, most: int) -> None:
    assert passes(most, n, 0.01, confidence)
    assert not passes(most + 1, n, 0.01, confidence)


@pytest.mark.parametrize(
    ("n", "counts"),
    [
        # Bad requests of n at which a share of 1 % is out of the question at 95, 99 and 99.9 %.
        (20, (2, 3, 4)),
        (50, (3, 4, 5)),
        (100, (4, 5, 6)),
        (200, (6, 7, 9)),
        (300, (7, 9, 11)),
        (500, (10, 12, 14)),
        (1000, (16, 19, 22)),
    ],
)
def test_a_fail_takes_the_published_number_of_bad_requests(n: int, counts: tuple[int, ...]) -> None:
    for confidence, bad in zip((0.95, 0.99, 0.999), counts, strict=True):
        assert state(n, bad, confidence=confidence) is State.FAIL
        assert state(n, bad - 1, confidence=confidence) is State.UNDECIDED


def chances(n: int, share: float) -> list[float]:
    """Binomial probabilities of 0 … n bad of n, by the recursion on their ratio."""
    row = [(1 - share) ** n]
    for bad in range(n):
        row.append(row[-1] * (n - bad) / (bad + 1) * share / (1 - share))
    return row


@given(
    n=st.integers(1, 1500),
    slo=st.sampled_from([P99, P95, Slo.parse("ttft_p50=1s")]),
    confidence=st.sampled_from([0.9, 0.95, 0.99]),
)
def test_at_the_limit_neither_verdict_is_wrong_more_often_than_its_confidence_says(
    n: int, slo: Slo, confidence: float
) -> None:
    row = chances(n, slo.allowed_share)
    wrong = dict.fromkeys(State, 0.0)
    for bad, chance in enumerate(row):
        if chance > 1e-9:
            wrong[state(n, bad, slo=slo, confidence=confidence)] += chance
    assert wrong[State.PASS] <= 1 - confidence + 1e-6
    assert wrong[State.FAIL] <= 1 - confidence + 1e-6


# -- one objective --------------------------------------------------------------------------------


def test_a_hundred_requests_without_a_miss_prove_nothing_about_a_p99() -> None:
    verdict = judged(counted(100))
    assert verdict.state is State.UNDECIDED
    assert verdict.judgements[0].upper_share == pytest.approx(0.0295, abs=5e-5)  # 1 − 0.05^(1/100)
    assert verdict.judgements[0].needed == 199  # 299 − 100


def test_299_requests_without_a_miss_pass_and_298_do_not() -> None:
    assert state(299) is State.PASS
    assert state(298) is State.UNDECIDED
    assert state(298, confidence=0.9) is State.PASS
    assert state(458, confidence=0.99) is State.UNDECIDED
    assert state(459, confidence=0.99) is State.PASS


@pytest.mark.parametrize(
    ("n", "bad", "expected"),
    [
        (897, 0, State.PASS),  # 3 × 299
        (896, 0, State.UNDECIDED),  # 298.7 requests are 298
        (1419, 3, State.PASS),  # 3 × 473 with 1
        (1418, 3, State.UNDECIDED),
        (1419, 4, State.UNDECIDED),  # 1.3 misses are 2: 628 would be needed
        (300, 11, State.UNDECIDED),  # 3.7 misses of 100 are 3, and it takes 4
        (300, 12, State.FAIL),
    ],
)
def test_requests_and_misses_are_divided_by_the_design_effect(n: int, bad: int, expected: State) -> None:
    assert state(n, bad, design_effect=3.0) is expected


def test_margins_are_positive_exactly_when_passed() -> None:
    passed, close = judged(counted(299)).judgements[0], judged(counted(298)).judgements[0]
    assert 0 < passed.margin < 0.01  # the bound is 0.99687 %
    assert passed.margin == pytest.approx(0.0031, abs=1e-4)
    assert -0.01 < close.margin < 0
    assert passed.needed is None


def test_gaps_of_one_request_weigh_as_much_as_the_request() -> None:
    # 50 gaps a request: 14,950 gaps from 299 requests are as much as 299 requests
    assert judged(counted(14_950, slo=ITL, requests=299)).state is State.PASS
    assert judged(counted(14_900, slo=ITL, requests=298)).state is State.UNDECIDED
    needed = judged(counted(5_000, slo=ITL, requests=100)).judgements[0].needed
    assert needed == 199  # requests, not gaps


def test_bad_gaps_weigh_as_much_as_the_requests_that_would_hold_them() -> None:
    # 200 bad gaps of 5,000 are 4 % of 100 requests: 4; 199 gaps are 3.98, and 3 are no proof
    assert judged(counted(5_000, 200, slo=ITL, requests=100)).state is State.FAIL
    assert judged(counted(5_000, 199, slo=ITL, requests=100)).state is State.UNDECIDED


def test_an_objective_without_values_is_undecided_and_far_from_passing() -> None:
    verdict = judged(counted(0))
    assert verdict.state is State.UNDECIDED
    (one,) = verdict.judgements
    assert (one.state, one.lower_share, one.upper_share) == (State.UNDECIDED, 0.0, 1.0)
    assert one.margin == pytest.approx(-99)  # (0.01 − 1) / 0.01
    assert one.needed is None


def test_every_judgement_can_be_written_as_json_and_read_back() -> None:
    for verdict in (judged(counted(0)), judged(counted(100)), judged(counted(100, 100))):
        assert msgspec.json.decode(msgspec.json.encode(verdict), type=Verdict) == verdict


# -- how many more --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "bad", "needed"),
    [
        (1, 0, 298),
        (298, 0, 1),
        # 1 of 300 seen: at that share 473 requests would hold 2, 628 would hold 3, and 773 with 3 pass
        (300, 1, 473),
        # 2 of 500 are 0.4 %: 628 would hold 3, 773 would hold 4, 913 hold 4, and pass
        (500, 2, 413),
    ],
)
def test_needed_counts_further_requests_at_the_share_seen(n: int, bad: int, needed: int) -> None:
    assert judged(counted(n, bad)).judgements[0].needed == needed


def test_needed_counts_real_requests_when_misses_cluster() -> None:
    assert judged(counted(100), design_effect=3.0).judgements[0].needed == 797  # 3 × 299 − 100


@pytest.mark.parametrize("bad", [1, 2, 3])
def test_no_number_helps_when_the_share_seen_is_too_large(bad: int) -> None:
    verdict = judged(counted(100, bad))
    assert verdict.state is State.UNDECIDED
    assert verdict.judgements[0].needed is None


@given(
    n=st.integers(1, 2000),
    slo=st.sampled_from([P99, P95]),
    confidence=st.sampled_from([0.95, 0.99]),
    effect=st.sampled_from([1.0, 3.0, 6.0]),
)
def test_with_the_needed_requests_and_no_miss_it_passes_and_with_one_less_it_does_not(
    n: int, slo: Slo, confidence: float, effect: float
) -> None:
    first = judged(counted(n, slo=slo), confidence=confidence, design_effect=effect).judgements[0]
    if first.needed is None:
        assert first.state is State.PASS
        return
    enough = n + first.needed
    assert state(enough, slo=slo, confidence=confidence, design_effect=effect) is State.PASS
    assert state(enough - 1, slo=slo, confidence=confidence, design_effect=effect) is State.UNDECIDED


# -- curtailed windows ----------------------------------------------------------------------------


def test_a_curtailed_window_fails_only_if_the_whole_window_would_have() -> None:
    # 4 bad of 100 are too many; of a window of 500 it takes 10, however early they came
    assert state(100, 4) is State.FAIL
    assert state(100, 4, planned=500) is State.UNDECIDED
    assert state(50, 9, planned=500) is State.UNDECIDED
    assert state(50, 10, planned=500) is State.FAIL


def test_a_curtailed_window_never_passes() -> None:
    assert state(1000, 0) is State.PASS
    assert state(1000, 0, planned=2000) is State.UNDECIDED


def test_a_curtailed_window_of_gaps_is_extended_to_its_planned_requests() -> None:
    # 500 bad of 2,500 gaps from 50 requests are as much as 10 bad requests of the 500 planned
    assert judged(counted(2_500, 500, slo=ITL, requests=50), planned=500).state is State.FAIL
    assert judged(counted(2_500, 499, slo=ITL, requests=50), planned=500).state is State.UNDECIDED


# -- several objectives ---------------------------------------------------------------------------

PASS, FAIL, OPEN, NONE = counted(299), counted(100, 4), counted(100), counted(0)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((PASS, PASS), State.PASS),
        ((PASS, OPEN), State.UNDECIDED),
        ((PASS, NONE), State.UNDECIDED),
        ((PASS, FAIL), State.FAIL),
        ((FAIL, OPEN), State.FAIL),
        ((NONE, FAIL), State.FAIL),
        ((), State.UNDECIDED),
    ],
)
def test_a_verdict_is_its_weakest_objective(counts: tuple[Count, ...], expected: State) -> None:
    verdict = judged(*counts)
    assert verdict.state is expected
    assert [one.count for one in verdict.judgements] == list(counts)


@given(n=st.integers(0, 5000), data=st.data(), effect=st.sampled_from([1.0, 3.0, 6.0]))
def test_the_bounds_hold_the_share_seen_between_them(n: int, data: st.DataObject, effect: float) -> None:
    bad = data.draw(st.integers(0, n))
    one = judged(counted(n, bad), design_effect=effect).judgements[0]
    assert 0 <= one.lower_share <= (bad / n if n else 0)
    assert (bad / n if n else 1) <= one.upper_share <= 1
    assert math.isfinite(one.margin)
