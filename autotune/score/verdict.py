"""PASS, FAIL or UNDECIDED: one-sided exact binomial bounds on the share of bad values.

`p99 ≤ L` means that at most 1 % of requests are bad. Violations come in bursts, so n and the
count are divided by a design effect before the bound is taken (Kish's effective sample size).
"""

from __future__ import annotations

import math

from scipy.special import betaincinv

from autotune.domain.measurement import Count, Judgement, Measurement, State, Verdict

SEARCH_LIMIT = 10_000_000
"""Where the hunt for a deciding n ends: no replay of ten million requests is proposed."""


def upper_share(bad: int, n: int, confidence: float) -> float:
    """Clopper-Pearson upper bound of a share: Biometrika 26 (1934) 404; 1 without observations."""
    return 1.0 if bad >= n else float(betaincinv(bad + 1, n - bad, confidence))


def lower_share(bad: int, n: int, confidence: float) -> float:
    """Clopper-Pearson lower bound of a share; 0 without bad observations."""
    return 0.0 if bad <= 0 or n <= 0 else float(betaincinv(bad, n - bad + 1, 1 - confidence))


def passes(bad: int, n: int, allowed: float, confidence: float) -> bool:
    """True when `bad` of `n` prove a share of at most `allowed`.

    For 1 % at 95 %: n ≥ 299, 473, 628, 773, 913 with 0…4 bad, the MLPerf early-stopping numbers.
    """
    return n > 0 and upper_share(bad, n, confidence) <= allowed


def judge(measurement: Measurement, *, confidence: float, design_effect: float) -> Verdict:
    """Judge every objective of a window; the window's verdict is the weakest of them."""
    judgements = tuple(
        _judge(count, measurement, confidence=confidence, design_effect=design_effect)
        for count in measurement.counts
    )
    states = {judgement.state for judgement in judgements}
    state = State.UNDECIDED
    if State.FAIL in states:
        state = State.FAIL
    elif states == {State.PASS}:
        state = State.PASS
    return Verdict(state=state, confidence=confidence, design_effect=design_effect, judgements=judgements)


def _judge(count: Count, measurement: Measurement, *, confidence: float, design_effect: float) -> Judgement:
    allowed = count.slo.allowed_share
    if count.n == 0:
        return Judgement(
            count=count,
            state=State.UNDECIDED,
            lower_share=0.0,
            upper_share=1.0,
            margin=(allowed - 1) / allowed,  # finite: JSON has no infinity
            needed=None,
        )
    # Gaps of one request stall together: an ITL sample is worth its requests, not its gaps.
    effect = design_effect * count.n / count.requests
    n = math.floor(count.n / effect + 1e-9)
    upper = upper_share(math.ceil(count.bad / effect - 1e-9), n, confidence)
    # A curtailed window is judged for FAIL as if every request that was not sent had been good.
    planned = count.n * measurement.planned / count.requests if measurement.curtailed else count.n
    lower = lower_share(
        math.floor(count.bad / effect + 1e-9), math.floor(planned / effect + 1e-9), confidence
    )
    if lower > allowed:
        state = State.FAIL
    elif upper <= allowed and not measurement.curtailed:
        state = State.PASS
    else:
        state = State.UNDECIDED
    needed = None
    if state is State.UNDECIDED:
        needed = _needed(count, allowed, confidence=confidence, effect=effect)
    return Judgement(
        count=count,
        state=state,
        lower_share=lower,
        upper_share=upper,
        margin=(allowed - upper) / allowed,
        needed=needed,
    )


def _needed(count: Count, allowed: float, *, confidence: float, effect: float) -> int | None:
    """How many more requests, at the share seen so far, would prove it; None when none would."""
    share = count.bad / count.n
    if share >= allowed:
        return None
    low = high = max(math.floor(count.n / effect), 1)
    while not passes(math.ceil(share * high - 1e-9), high, allowed, confidence):
        low, high = high, high * 2
        if high > SEARCH_LIMIT:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        if passes(math.ceil(share * middle - 1e-9), middle, allowed, confidence):
            high = middle
        else:
            low = middle
    values_per_request = count.n / count.requests
    return max(math.ceil(high * effect / values_per_request) - count.requests, 1)
