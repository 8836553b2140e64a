"""What the user promises: metrics, limits and their percentiles."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum

from autotune.errors import InputError
from autotune.units import parse_duration, show_limit

_SLO = re.compile(r"\s*([a-z0-9]+)_p([0-9]+(?:\.[0-9]+)?)\s*(?:<=|=|<)\s*(\S.*?)\s*")
_HINT = "write METRIC_pNN=LIMIT, for example ttft_p99=500ms (metrics: ttft, itl, tpot, e2el)"


class Metric(Enum):
    """A latency of one request; its definition stands on `Timing`."""

    TTFT = "ttft"
    ITL = "itl"
    TPOT = "tpot"
    E2EL = "e2el"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """One objective: at least `percentile` % of the values of `metric` are within `limit_s`."""

    metric: Metric
    percentile: float
    limit_s: float

    @property
    def key(self) -> str:
        """The name under which verdicts, constraints and files know it: 'ttft_p99'."""
        return f"{self.metric.value}_p{self.percentile:g}"

    @property
    def allowed_share(self) -> float:
        """The share of values that may be over the limit: 0.01 for a p99."""
        return round(1 - self.percentile / 100, 12)

    def __str__(self) -> str:
        return f"{self.key}={show_limit(self.limit_s)}"

    @classmethod
    def parse(cls, text: str) -> Slo:
        """Read 'ttft_p99=500ms'; raises `InputError` with the nearest metric name."""
        match = _SLO.fullmatch(text)
        if match is None:
            raise InputError(f"{text!r} is not an SLO", hint=_HINT)
        name, percentile, limit = match.groups()
        known = [metric.value for metric in Metric]
        if name not in known:
            near = get_close_matches(name, known, n=1)
            raise InputError(
                f"unknown metric {name!r} in {text!r}",
                hint=f"did you mean {near[0]}?" if near else f"one of {', '.join(known)}",
            )
        if not 50 <= float(percentile) <= 99.9:
            raise InputError(
                f"p{percentile} in {text!r} is not a percentile that a replay can prove",
                hint="use p50 to p99.9; p100 would be a promise about every request ever",
            )
        return cls(
            metric=Metric(name),
            percentile=float(percentile),
            limit_s=parse_duration(limit, what=f"limit for {name}"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sla:
    """All objectives, in the order given; every one of them must hold."""

    slos: tuple[Slo, ...]

    def __str__(self) -> str:
        return ", ".join(map(str, self.slos))

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Sla:
        """Read several objectives (each may hold commas); raises `InputError` on contradictions."""
        slos = [Slo.parse(part) for text in texts for part in text.split(",") if part.strip()]
        if not slos:
            raise InputError("no SLA given", hint="add --sla ttft_p99=500ms")
        seen: dict[str, Slo] = {}
        for slo in slos:
            other = seen.setdefault(slo.key, slo)
            if other.limit_s != slo.limit_s:
                raise InputError(
                    f"--sla gives two limits for {slo.key}: {other} and {slo}", hint="keep one of them"
                )
        _refuse_contradictions(list(seen.values()))
        return cls(slos=tuple(seen.values()))


def _refuse_contradictions(slos: list[Slo]) -> None:
    """Refuse what no set of requests can show: a p99 below the p50, an E2EL below the TTFT."""
    for low in slos:
        for high in slos:
            if low.metric is high.metric and low.percentile < high.percentile and low.limit_s > high.limit_s:
                raise InputError(
                    f"--sla contradicts itself: {low} is looser than {high}, which already implies it",
                    hint="a higher percentile needs a limit at least as large; drop one",
                )
            if (
                low.metric is Metric.TTFT
                and high.metric is Metric.E2EL
                and low.percentile == high.percentile
                and high.limit_s < low.limit_s
            ):
                raise InputError(
                    f"--sla contradicts itself: {high} is below {low}, but tokens end after they begin",
                    hint="raise the e2el limit or lower the ttft limit",
                )
