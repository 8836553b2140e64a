"""One request as the client saw it, and the latencies defined on it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from autotune.domain.slo import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One request in nanoseconds of one monotonic clock (CLOCK_MONOTONIC).

    Latency counts from `due_ns`, when the schedule wanted the request sent, so that a stalled
    engine or a late client cannot hide behind late sends. Source: README of giltene/wrk2.
    `token_ns` holds the arrival of each output token, ascending; tokens that came in one event share
    a stamp. `finished` is True only for a stream that ended with a finish reason and all its tokens;
    `ended_ns` is when it ended, failed or was given up. A `cancelled` request was cut off by us when the
    window was already decided: what had not happened by then is unknown, not bad. `seen_prompt_tokens` is the
    length of the prompt as the engine counted it, None when it did not say.
    """

    index: int
    due_ns: int
    sent_ns: int | None
    token_ns: tuple[int, ...]
    prompt_tokens: int
    output_tokens: int
    ended_ns: int
    finished: bool
    cancelled: bool = False
    error: str | None = None
    seen_prompt_tokens: int | None = None

    def send_lag_s(self) -> float | None:
        """How late our own client was; None when the request was never sent."""
        return None if self.sent_ns is None else (self.sent_ns - self.due_ns) / 1e9

    def ttft_s(self) -> float | None:
        """Due time to first token; None before the first token."""
        return (self.token_ns[0] - self.due_ns) / 1e9 if self.token_ns else None

    def tpot_s(self) -> float | None:
        """Mean time per output token after the first; None below two tokens.

        Source: `calculate_metrics` in vllm/benchmarks/serve.py, which calls it TPOT and
        counts one-token outputs as 0 in goodput; here they have none.
        """
        n = len(self.token_ns)
        return (self.token_ns[-1] - self.token_ns[0]) / (n - 1) / 1e9 if n > 1 else None

    def itl_s(self) -> tuple[float, ...]:
        """Gaps between successive arrivals; tokens of one event are one arrival."""
        stamps = sorted(set(self.token_ns))
        return tuple((b - a) / 1e9 for a, b in pairwise(stamps))

    def e2el_s(self) -> float | None:
        """Due time to last token; None for a request that did not finish."""
        return (self.token_ns[-1] - self.due_ns) / 1e9 if self.finished and self.token_ns else None

    def values_s(self, metric: Metric) -> tuple[float, ...]:
        """All values of `metric` that this request contributes: none, one, or its gaps."""
        match metric:
            case Metric.TTFT:
                value = self.ttft_s()
            case Metric.TPOT:
                value = self.tpot_s()
            case Metric.E2EL:
                value = self.e2el_s()
            case Metric.ITL:
                return self.itl_s()
        return () if value is None else (value,)
