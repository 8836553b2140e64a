"""From raw stamps to one `Measurement`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from autotune.domain.measurement import Measurement, Quantiles
from autotune.domain.slo import Metric, Sla
from autotune.domain.timing import Timing
from autotune.score.counts import count, rank_of


def quantile(ordered: Sequence[float], percentile: float) -> float:
    """The order statistic ceil(p·n) of ascending values: a value that was really seen, never between two."""
    return ordered[rank_of(percentile, len(ordered)) - 1]


def quantiles(values: Sequence[float]) -> Quantiles | None:
    """Percentiles with their n; None without values, because a metric nobody saw has no p99."""
    if not values:
        return None
    ordered = sorted(values)
    p50, p90, p95, p99 = (quantile(ordered, p) for p in (50, 90, 95, 99))
    return Quantiles(n=len(ordered), p50_s=p50, p90_s=p90, p95_s=p95, p99_s=p99)


def measure(
    timings: Sequence[Timing],
    *,
    sla: Sla,
    speed: float,
    rate_rps: float,
    planned: int,
    curtailed: bool,
    engine: Mapping[str, float],
) -> Measurement:
    """Summarise the measured requests of one window.

    `served_rps` and `output_tokens_per_s` divide what finished by the time from the first due to the last
    end. Quantiles cover the requests that produced a value; the counts cover all of them.
    """
    done = [timing for timing in timings if timing.finished]
    lags = sorted(lag for timing in timings if (lag := timing.send_lag_s()) is not None)
    begin = min((timing.due_ns for timing in timings), default=0)
    end = max((timing.ended_ns for timing in timings), default=begin)
    duration_s = (end - begin) / 1e9
    found = {
        metric.value: summary
        for metric in Metric
        if (summary := quantiles([value for timing in timings for value in timing.values_s(metric)]))
    }
    return Measurement(
        speed=speed,
        rate_rps=rate_rps,
        planned=planned,
        sent=len(timings),
        finished=len(done),
        failed=sum(not timing.finished and not timing.cancelled for timing in timings),
        curtailed=curtailed,
        duration_s=duration_s,
        served_rps=len(done) / duration_s if duration_s else 0.0,
        output_tokens_per_s=sum(len(t.token_ns) for t in done) / duration_s if duration_s else 0.0,
        send_lag_p99_s=quantile(lags, 99) if lags else None,
        counts=tuple(count(slo, timings) for slo in sla.slos),
        quantiles=found,
        engine=dict(engine),
        errors=dict(Counter(timing.error for timing in timings if timing.error)),
    )
