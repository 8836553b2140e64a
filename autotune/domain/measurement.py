"""What a replay showed, and what that proves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from autotune.domain.client import Client
from autotune.domain.slo import Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Percentiles of one metric in seconds over `n` values of requests that produced one."""

    n: int
    p50_s: float
    p90_s: float
    p95_s: float
    p99_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How often one objective was missed.

    `n` is the number of values judged, `bad` those over the limit, failed or still missing past it;
    `requests` is the number of requests they came from (equal to `n` but for ITL, which pools gaps).
    `value_s` is the objective's percentile as seen, the order statistic ceil(p·n) with missing values above
    all others; None when it falls on one of those.
    """

    slo: Slo
    n: int
    bad: int
    requests: int
    value_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One replay window.

    `planned` requests were scheduled at `rate_rps` (mean offered); `curtailed` means that the window
    was stopped once it held more bad requests than it may. `quantiles` lacks a metric with no values.
    `engine` holds differences of the engine's counters over the window, empty when it has none.
    `foreign_cpu_share` is the share of the machine's cores that work of others took, `client` how our own
    client fared; None where they were not looked at.
    """

    speed: float
    rate_rps: float
    planned: int
    sent: int
    finished: int
    failed: int
    curtailed: bool
    duration_s: float
    served_rps: float
    output_tokens_per_s: float
    send_lag_p99_s: float | None
    counts: tuple[Count, ...]
    quantiles: Mapping[str, Quantiles]
    engine: Mapping[str, float]
    errors: Mapping[str, int]
    foreign_cpu_share: float | None = None
    client: Client | None = None


class State(Enum):
    """What the evidence allows to say."""

    PASS = "PASS"  # noqa: S105  not a password
    FAIL = "FAIL"
    UNDECIDED = "UNDECIDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One objective judged at a confidence.

    `upper_share` and `lower_share` are one-sided bounds of the true share of bad values;
    `margin` is (allowed − upper) / allowed: above 0 when passed. `needed` is how many more requests
    with the share seen so far would decide for PASS, None when no number would.
    """

    count: Count
    state: State
    lower_share: float
    upper_share: float
    margin: float
    needed: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All objectives judged: FAIL if any fails, PASS if all pass, else UNDECIDED."""

    state: State
    confidence: float
    design_effect: float
    judgements: tuple[Judgement, ...]
