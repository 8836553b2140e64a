"""SLOs and SLAs: how they are read, what they refuse, and that they print what they were."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.slo import Metric, Sla, Slo
from autotune.errors import InputError


@pytest.mark.parametrize(
    "text", ["ttft_p99=500ms", "ttft_p99<=500ms", "ttft_p99<500ms", " ttft_p99 = 500 ms ", "ttft_p99=0.5s"]
)
def test_an_objective_is_read_in_every_way_it_is_written(text: str) -> None:
    slo = Slo.parse(text)
    assert (slo.metric, slo.percentile, slo.limit_s) == (Metric.TTFT, 99.0, 0.5)
    assert slo.key == "ttft_p99"
    assert str(slo) == "ttft_p99=500ms"


@pytest.mark.parametrize("metric", list(Metric))
def test_every_metric_can_be_promised(metric: Metric) -> None:
    assert Slo.parse(f"{metric.value}_p95=2s").metric is metric


@pytest.mark.parametrize(
    ("percentile", "share"), [("50", 0.5), ("90", 0.1), ("95", 0.05), ("99", 0.01), ("99.9", 0.001)]
)
def test_a_percentile_allows_exactly_the_share_above_it(percentile: str, share: float) -> None:
    assert Slo.parse(f"ttft_p{percentile}=1s").allowed_share == share


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "'' is not an SLO", "write METRIC_pNN=LIMIT"),
        ("ttft", "'ttft' is not an SLO", "write METRIC_pNN=LIMIT"),
        ("ttft=500ms", "'ttft=500ms' is not an SLO", "write METRIC_pNN=LIMIT"),
        ("ttft_p99>500ms", "'ttft_p99>500ms' is not an SLO", "write METRIC_pNN=LIMIT"),
        ("ttft_p99=", "'ttft_p99=' is not an SLO", "write METRIC_pNN=LIMIT"),
        ("ttft_99=500ms", "'ttft_99=500ms' is not an SLO", "write METRIC_pNN=LIMIT"),
        ("tft_p99=1s", "unknown metric 'tft' in 'tft_p99=1s'", "did you mean ttft?"),
        ("latency_p99=1s", "unknown metric 'latency' in", "one of ttft, itl, tpot, e2el"),
        ("ttft_p99=500", "'500' is not a limit for ttft", "write a number and a unit"),
        ("ttft_p99=0ms", "'0ms' is not a limit for ttft: it must be above 0", "for example 500ms"),
        ("ttft_p100=1s", "p100 in 'ttft_p100=1s' is not a percentile that a replay can prove", "use p50"),
        ("ttft_p49=1s", "p49 in 'ttft_p49=1s' is not a percentile", "use p50 to p99.9"),
        ("ttft_p99.99=1s", "p99.99 in", "use p50 to p99.9"),
    ],
)
def test_what_is_no_objective_is_refused_with_the_value_in_it(text: str, message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        Slo.parse(text)
    assert caught.value.message.startswith(message)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(hint)


@given(
    metric=st.sampled_from(Metric),
    percentile=st.integers(500, 999),
    limit_us=st.integers(1, 10**9),
)
def test_a_printed_objective_reads_back_as_itself(metric: Metric, percentile: int, limit_us: int) -> None:
    slo = Slo(metric=metric, percentile=percentile / 10, limit_s=limit_us / 1e6)
    again = Slo.parse(str(slo))
    assert (again.metric, again.percentile, again.key) == (slo.metric, slo.percentile, slo.key)
    assert again.limit_s == pytest.approx(slo.limit_s, rel=1e-11)
    assert str(again) == str(slo)


@given(st.text(max_size=30))
def test_any_text_is_an_objective_or_an_input_error(text: str) -> None:
    try:
        slo = Slo.parse(text)
    except InputError as error:
        hint = error.hint
    else:
        assert slo.limit_s > 0
        return
    assert hint


# -- several together -----------------------------------------------------------------------------


def test_objectives_keep_their_order_and_may_share_a_text() -> None:
    sla = Sla.parse(["tpot_p95=40ms, ttft_p99=500ms", "e2el_p90=10s"])
    assert [slo.key for slo in sla.slos] == ["tpot_p95", "ttft_p99", "e2el_p90"]
    assert str(sla) == "tpot_p95=40ms, ttft_p99=500ms, e2el_p90=10s"


def test_the_same_objective_twice_is_one() -> None:
    assert Sla.parse(["ttft_p99=500ms", "ttft_p99=0.5s"]) == Sla.parse(["ttft_p99=500ms"])


def test_two_percentiles_of_one_metric_are_two_objectives() -> None:
    assert [slo.key for slo in Sla.parse(["ttft_p50=200ms", "ttft_p99=500ms"]).slos] == [
        "ttft_p50",
        "ttft_p99",
    ]


@pytest.mark.parametrize("texts", [[], [""], [" , "]])
def test_no_objective_at_all_is_refused(texts: list[str]) -> None:
    with pytest.raises(InputError, match="no SLA given"):
        Sla.parse(texts)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            ["ttft_p99=500ms", "ttft_p99=2s"],
            "--sla gives two limits for ttft_p99: ttft_p99=500ms and ttft_p99=2s",
        ),
        (["ttft_p50=1s", "ttft_p99=500ms"], "ttft_p50=1s is looser than ttft_p99=500ms"),
        (["ttft_p99=500ms", "ttft_p50=1s"], "ttft_p50=1s is looser than ttft_p99=500ms"),
        (["ttft_p99=2s", "e2el_p99=1s"], "e2el_p99=1s is below ttft_p99=2s, but tokens end after they begin"),
    ],
)
def test_objectives_that_contradict_each_other_are_refused(texts: list[str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        Sla.parse(texts)
    assert message in caught.value.message


def test_a_tighter_e2el_at_another_percentile_is_no_contradiction() -> None:
    assert len(Sla.parse(["ttft_p99=2s", "e2el_p50=1s"]).slos) == 2
