"""Numbers as a report says them: few figures, always a unit, intervals rounded outwards."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

from autotune.domain.measurement import Count
from autotune.domain.outcome import Capacity
from autotune.domain.slo import Metric, Sla, Slo
from autotune.domain.space import Value
from autotune.units import show_duration


def three(value: float) -> str:
    """Three significant figures without an exponent: '0.412', '4.20', '61.3', '1,240'."""
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{round(value, digits):,.{max(digits, 0)}f}"


def percent(share: float) -> str:
    """A share as a percentage: '0.21 %', '1.5 %', '31 %'."""
    value = share * 100
    if abs(value) >= 10:
        return f"{value:.0f} %"
    return f"{value:.2g} %" if abs(value) < 1 else f"{value:.1f} %"


def plural(count: int, noun: str) -> str:
    """'1 request', '1,200 requests'."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(texts: Iterable[str]) -> str:
    """'a', 'a and b', 'a, b and c'."""
    *head, last = texts
    return f"{', '.join(head)} and {last}" if head else last


def limit(seconds: float) -> str:
    """A limit with its unit apart: '500 ms', '1.5 s'."""
    return f"{seconds * 1e3:g} ms" if seconds < 1 else f"{seconds:g} s"


def objective(slo: Slo) -> str:
    """'ttft_p99 ≤ 500 ms'."""
    return f"{slo.key} ≤ {limit(slo.limit_s)}"


def allowed(slo: Slo) -> str:
    """The share that may be bad, exactly: '1 %', '0.1 %'."""
    return f"{slo.allowed_share * 100:g} %"


def promise(sla: Sla) -> str:
    """All objectives in one breath."""
    return listed(objective(slo) for slo in sla.slos)


def counted(count: Count) -> str:
    """'8 bad of 2,940 requests'; gaps are pooled, so they are given with the requests they came from."""
    values = plural(count.n, "request")
    if count.slo.metric is Metric.ITL:
        values = f"{plural(count.n, 'gap')} of {plural(count.requests, 'request')}"
    return f"{count.bad:,} bad of {values}"


def percentile(count: Count) -> str:
    """'ttft_p99 300 ms'."""
    return f"{count.slo.key} {'has no value' if count.value_s is None else show_duration(count.value_s)}"


def closeness(count: Count | None) -> str:
    """'ttft_p99 300 ms, 60 % of its limit'."""
    if count is None or count.value_s is None:
        return "no value"
    return f"{percentile(count)}, {percent(count.value_s / count.slo.limit_s)} of its limit"


def attempts(count: int) -> str:
    """How often a confirmation was tried; several chances are not one, so they are said."""
    return "first attempt" if count == 1 else f"attempt {count} of held-out traffic, each judged on its own"


def value_text(value: Value) -> str:
    """A setting as it stands in YAML: true and false, not Python's names."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def bracket(low: float | None, high: float | None, *, missing: str = "no rate tried") -> str:
    """'4.20 – 4.60', '≥ 4.20' when no rate failed, '< 0.400' when none held."""
    if low is None:
        return missing if high is None else f"< {three(high)}"
    return f"≥ {three(low)}" if high is None else f"{three(low)} – {three(high)}"


def rates(capacity: Capacity) -> str:
    """The bracket of a climb in requests per second."""
    return f"{bracket(capacity.low_rps, capacity.high_rps)} req/s"


def speeds(capacity: Capacity) -> str:
    """The same bracket as multiples of the recorded traffic."""
    return f"{bracket(capacity.low_speed, capacity.high_speed)} × recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """How many times the traffic of the defaults: between what held, and what the brackets allow.

    `low` is None when the defaults met no failing rate, `high` when the tuned settings met none.
    """

    point: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, tuned: Capacity, default: Capacity) -> Ratio | None:
        """None unless both held the SLA at some speed.

        The true capacities lie inside their brackets, so their ratio lies between low / high and
        high / low. Speeds are compared, for both replay the same slice of the recording.
        """
        if tuned.low_speed is None or default.low_speed is None:
            return None
        return cls(
            point=tuned.low_speed / default.low_speed,
            low=None if default.high_speed is None else tuned.low_speed / default.high_speed,
            high=None if tuned.high_speed is None else tuned.high_speed / default.low_speed,
        )

    def _step(self) -> Decimal:
        if self.point >= 10:
            return Decimal(1)
        return Decimal("0.1") if self.point >= 1.5 else Decimal("0.01")

    def _rounded(self, value: float, rounding: str) -> str:
        return str(Decimal(f"{value:.9f}").quantize(self._step(), rounding))

    def point_text(self) -> str:
        """'2.1×'."""
        return f"{self._rounded(self.point, ROUND_HALF_EVEN)}×"

    def low_text(self) -> str | None:
        """'1.8', rounded down so that the claim stays true."""
        return None if self.low is None else self._rounded(self.low, ROUND_FLOOR)

    def high_text(self) -> str | None:
        """'2.6', rounded up."""
        return None if self.high is None else self._rounded(self.high, ROUND_CEILING)

    def __str__(self) -> str:
        low, high = self.low_text() or "not bounded below", self.high_text() or "not bounded above"
        return f"{self.point_text()} [{low}, {high}]"
