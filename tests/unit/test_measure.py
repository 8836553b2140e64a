"""One request's latencies, and the summary of a window."""

from __future__ import annotations

import pytest
from timing_fixtures import timing

from autotune.domain.measurement import Measurement, Quantiles
from autotune.domain.slo import Metric, Sla
from autotune.domain.timing import Timing
from autotune.score.measure import measure, quantile, quantiles

SLA = Sla.parse(["ttft_p99=500ms", "tpot_p95=40ms"])


# -- one request ----------------------------------------------------------------------------------


def test_latencies_count_from_the_due_time() -> None:
    # due at 1,000 ms, tokens at 1,250, 1,300, 1,310 and 1,400 ms
    one = timing(1250, 1300, 1310, 1400, due_ms=1000)
    assert one.ttft_s() == 0.25
    assert one.itl_s() == pytest.approx((0.05, 0.01, 0.09))
    assert one.tpot_s() == pytest.approx(0.05)  # 150 ms over three tokens after the first
    assert one.e2el_s() == 0.4


def test_a_late_send_is_not_taken_off_the_latency() -> None:
    late = Timing(
        index=0,
        due_ns=1_000_000_000,
        sent_ns=1_200_000_000,
        token_ns=(1_300_000_000,),
        prompt_tokens=1,
        output_tokens=1,
        ended_ns=1_300_000_000,
        finished=True,
    )
    assert late.send_lag_s() == 0.2
    assert late.ttft_s() == 0.3


def test_a_single_token_has_no_tpot_and_no_gap() -> None:
    assert timing(100).tpot_s() is None
    assert timing(100).itl_s() == ()
    assert timing(100).e2el_s() == 0.1


def test_tokens_of_one_event_are_one_arrival_for_itl_and_several_for_tpot() -> None:
    one = timing(100, 100, 100, 160)
    assert one.itl_s() == (0.06,)
    assert one.tpot_s() == 0.02  # 60 ms over three tokens


def test_a_request_without_tokens_has_no_latency_at_all() -> None:
    none = timing(output_tokens=5, ended_ms=900, failed=True)
    assert [none.values_s(metric) for metric in Metric] == [(), (), (), ()]


def test_a_request_that_did_not_finish_has_no_e2el() -> None:
    cut = timing(100, 110, output_tokens=5, failed=True)
    assert cut.e2el_s() is None
    assert cut.ttft_s() == 0.1


def test_a_request_that_was_never_sent_has_no_send_lag() -> None:
    unsent = Timing(
        index=0,
        due_ns=0,
        sent_ns=None,
        token_ns=(),
        prompt_tokens=1,
        output_tokens=1,
        ended_ns=1,
        finished=False,
    )
    assert unsent.send_lag_s() is None


@pytest.mark.parametrize(
    ("metric", "values"),
    [(Metric.TTFT, (0.1,)), (Metric.ITL, (0.01, 0.03)), (Metric.TPOT, (0.02,)), (Metric.E2EL, (0.14,))],
)
def test_a_request_contributes_to_each_metric(metric: Metric, values: tuple[float, ...]) -> None:
    assert timing(100, 110, 140).values_s(metric) == pytest.approx(values)


# -- quantiles ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("percentile", "value"), [(5, 15), (30, 20), (40, 20), (50, 35), (100, 50)])
def test_a_quantile_is_a_value_that_was_seen(percentile: float, value: float) -> None:
    """The nearest-rank method's own example: 15, 20, 35, 40, 50."""
    assert quantile([15, 20, 35, 40, 50], percentile) == value


def test_quantiles_carry_their_n() -> None:
    values = [float(value) for value in range(200, 0, -1)]
    assert quantiles(values) == Quantiles(n=200, p50_s=100, p90_s=180, p95_s=190, p99_s=198)


def test_no_values_have_no_quantiles() -> None:
    assert quantiles([]) is None


# -- a window -------------------------------------------------------------------------------------


def measured(*timings: Timing, planned: int = 4, curtailed: bool = False) -> Measurement:
    return measure(
        timings,
        sla=SLA,
        speed=2.0,
        rate_rps=1.5,
        planned=planned,
        curtailed=curtailed,
        engine={"preemptions": 3.0},
    )


def test_a_window_is_summed_up() -> None:
    found = measured(
        timing(100, 120, 140, due_ms=0),
        timing(1100, 1150, due_ms=1000),
        timing(2600, due_ms=2000),
        timing(due_ms=3000, ended_ms=4000, output_tokens=2, failed=True),
    )
    assert (found.planned, found.sent, found.finished, found.failed) == (4, 4, 3, 1)
    assert found.duration_s == 4.0  # first due at 0, last end at 4,000 ms
    assert found.served_rps == 0.75
    assert found.output_tokens_per_s == 1.5  # 3 + 2 + 1 tokens of finished requests over 4 s
    assert found.errors == {"timed out": 1}
    assert found.send_lag_p99_s == 0.0
    assert found.engine == {"preemptions": 3.0}
    assert found.quantiles["ttft"] == Quantiles(n=3, p50_s=0.1, p90_s=0.6, p95_s=0.6, p99_s=0.6)
    assert found.quantiles["tpot"].n == 2
    assert [(one.slo.key, one.n, one.bad) for one in found.counts] == [("ttft_p99", 4, 2), ("tpot_p95", 3, 2)]


def test_a_metric_that_nobody_saw_is_absent() -> None:
    found = measured(timing(100), timing(due_ms=10, output_tokens=1, ended_ms=20, failed=True))
    assert set(found.quantiles) == {"ttft", "e2el"}
    assert found.counts[1].n == 0
    assert found.counts[1].value_s is None


def test_what_we_cancelled_is_no_failure() -> None:
    found = measured(
        timing(100, 120), timing(output_tokens=2, ended_ms=300, cancelled=True), planned=9, curtailed=True
    )
    assert (found.sent, found.finished, found.failed, found.planned) == (2, 1, 0, 9)
    assert found.curtailed


def test_a_window_without_requests_served_nothing_and_has_no_lag() -> None:
    found = measured(planned=0)
    assert (found.served_rps, found.output_tokens_per_s, found.duration_s) == (0.0, 0.0, 0.0)
    assert found.send_lag_p99_s is None
    assert found.quantiles == {}
