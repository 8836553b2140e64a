"""Which values are bad, and how many a window may hold."""

from __future__ import annotations

import math
from collections.abc import Iterable

from autotune.domain.measurement import Count
from autotune.domain.slo import Metric, Slo
from autotune.domain.timing import Timing


def judged(slo: Slo, timing: Timing) -> tuple[int, int]:
    """How many values of this request count for `slo`, and how many of them are bad.

    A value over the limit is bad; so is every value of a request that failed, timed out or was
    refused. A request that was still running when we cut it off counts only for what was certain by then.
    """
    values = timing.values_s(slo.metric)
    over = sum(value > slo.limit_s for value in values)
    if timing.finished:
        return len(values), over
    if timing.cancelled:
        return _certain(slo, timing, len(values), over)
    if slo.metric is Metric.ITL:
        gaps = max(timing.output_tokens - 1, len(values))
        return gaps, gaps
    return (0, 0) if slo.metric is Metric.TPOT and timing.output_tokens < 2 else (1, 1)


def _certain(slo: Slo, timing: Timing, seen: int, over: int) -> tuple[int, int]:
    """What is known of a request that was cut off: nothing it did later can make these values good."""
    waited_s = (timing.ended_ns - timing.due_ns) / 1e9
    silent_s = (timing.ended_ns - timing.token_ns[-1]) / 1e9 if timing.token_ns else 0.0
    match slo.metric:
        case Metric.TTFT if seen:
            return 1, over
        case Metric.TTFT | Metric.E2EL:
            late = waited_s > slo.limit_s
        case Metric.ITL:
            stalled = silent_s > slo.limit_s and len(timing.token_ns) < timing.output_tokens
            return seen + stalled, over + stalled
        case Metric.TPOT:
            streamed_s = (timing.ended_ns - timing.token_ns[0]) / 1e9 if timing.token_ns else 0.0
            late = timing.output_tokens > 1 and streamed_s / (timing.output_tokens - 1) > slo.limit_s
    return (1, 1) if late else (0, 0)


def count(slo: Slo, timings: Iterable[Timing]) -> Count:
    """Sum `judged` over requests, and take the percentile that the objective speaks of."""
    n = bad = requests = 0
    seen: list[float] = []
    for timing in timings:
        values, over = judged(slo, timing)
        n, bad, requests = n + values, bad + over, requests + (values > 0)
        if values and (timing.finished or timing.cancelled):  # what a failed request showed is void
            seen.extend(timing.values_s(slo.metric))
    rank = rank_of(slo.percentile, n)
    value_s = sorted(seen)[rank - 1] if n and rank <= len(seen) else None
    return Count(slo=slo, n=n, bad=bad, requests=requests, value_s=value_s)


def rank_of(percentile: float, n: int) -> int:
    """The order statistic that is the percentile of n values: ceil(p·n), counted from 1."""
    return max(math.ceil(percentile / 100 * n - 1e-9), 1)


def allowed_bad(slo: Slo, n: int) -> int:
    """The most bad values among `n` with which the empirical percentile still holds.

    The percentile is the order statistic ceil(p·n), so floor((1 − p)·n) values may lie above it.
    """
    return math.floor(slo.allowed_share * n + 1e-9)


def expected_values(slo: Slo, output_tokens: Iterable[int]) -> int:
    """How many values a window of these output lengths will be judged on when all goes well."""
    match slo.metric:
        case Metric.TTFT | Metric.E2EL:
            return sum(1 for _ in output_tokens)
        case Metric.TPOT:
            return sum(tokens >= 2 for tokens in output_tokens)
        case Metric.ITL:
            return sum(tokens - 1 for tokens in output_tokens)


def holds(counts: Iterable[Count]) -> bool:
    """The point rule of the search: every objective has values, and no more bad ones than allowed."""
    return all(one.n > 0 and one.bad <= allowed_bad(one.slo, one.n) for one in counts)
