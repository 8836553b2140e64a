"""What a recording looks like: counts, rates, lengths and reuse, gathered in one pass."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autotune.domain.workload import Request
from autotune.traffic.arrivals import Dispersion, Gaps, RateLine, Step
from autotune.traffic.reuse import Seen

RATE_BINS = 56
"""Most bins of the rate over time: a line of a terminal, with its label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Whole numbers and how they spread: every percentile is a value that was seen.

    `counts` holds how often each value was seen, ascending.
    """

    n: int
    mean: float
    p50: int
    p90: int
    p99: int
    max: int
    counts: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One recording in numbers; None where it does not say.

    `duration_s` runs from the first arrival to the last, `rate_rps` is gaps over duration. Of a recording
    without arrival times all that rests on them is None. `turns` are the requests of each session; requests
    without a session are in none. `prefix_share` is the share of prompt tokens that an unbounded prefix cache
    would reuse: those of leading blocks met earlier in the recording.
    """

    requests: int
    duration_s: float | None
    rate_rps: float | None
    gap_cv: float | None
    dispersion_1s: float | None
    dispersion_10s: float | None
    step: Step | None
    rate_bin_s: float | None
    rates_rps: tuple[float, ...]
    input_tokens: Spread | None
    output_tokens: Spread | None
    prefix_share: float | None
    turns: Spread | None

    @property
    def sessions(self) -> int | None:
        """How many conversations the recording names, None when it names none."""
        return self.turns.n if self.turns else None

    def concurrency(self, tpot_s: float) -> float | None:
        """Mean requests in flight by Little's law, were each output token to take `tpot_s` and nothing else.

        A floor for a loaded engine: waiting and prefill come on top. None without a rate. Source: Little, A
        Proof for the Queuing Formula L = λW (1961).
        """
        if self.rate_rps is None or self.output_tokens is None:
            return None
        return self.rate_rps * self.output_tokens.mean * tpot_s


def profile(requests: Iterable[Request], *, block_tokens: int | None, timed: bool) -> Profile:
    """The profile of requests in order of arrival, read once; nothing grows with the number of requests.

    What grows is what they name: distinct lengths, sessions (about 100 bytes each), and blocks (see `Seen`).
    """
    inputs: Counter[int] = Counter()
    outputs: Counter[int] = Counter()
    turns: Counter[int] = Counter()
    gaps, one, ten, line, seen = Gaps(), Dispersion(1.0), Dispersion(10.0), RateLine(), Seen()
    n = reused = 0
    origin_s = offset_s = 0.0
    for request in requests:
        inputs[request.prompt_tokens] += 1
        outputs[request.output_tokens] += 1
        if request.session is not None:
            turns[hash(request.session)] += 1  # 64 bits for a name: two in a million share with p below 1e-7
        if block_tokens:
            reused += min(seen.leading(request.blocks) * block_tokens, request.prompt_tokens)
        if timed:
            now_s = request.offset_s
            if n:
                gaps.add(now_s - origin_s - offset_s)
            else:
                origin_s = now_s
            offset_s = now_s - origin_s
            one.add(offset_s)
            ten.add(offset_s)
            line.add(offset_s)
        n += 1
    lasts = timed and offset_s > 0
    bin_s, rates_rps = line.rates_rps(most=RATE_BINS)
    total = sum(tokens * count for tokens, count in inputs.items())
    return Profile(
        requests=n,
        duration_s=offset_s if timed and n else None,
        rate_rps=(n - 1) / offset_s if lasts else None,
        gap_cv=gaps.cv(),
        dispersion_1s=one.index(),
        dispersion_10s=ten.index(),
        step=gaps.step(),
        rate_bin_s=bin_s if lasts else None,
        rates_rps=rates_rps if lasts else (),
        input_tokens=spread(inputs),
        output_tokens=spread(outputs),
        prefix_share=reused / total if block_tokens and total else None,
        turns=spread(Counter(turns.values())),
    )


def spread(counts: Mapping[int, int]) -> Spread | None:
    """How values spread that were seen so often; None without any.

    Percentiles are the order statistics ceil(p·n), as everywhere here: see `quantile` in
    autotune/score/measure.py.
    """
    n = sum(counts.values())
    if not n:
        return None
    ordered = dict(sorted(counts.items()))
    ranks = {percentile: max(math.ceil(percentile / 100 * n - 1e-9), 1) for percentile in (50, 90, 99)}
    at: dict[int, int] = {}
    passed = 0
    for value, times in ordered.items():
        passed += times
        for percentile, rank in ranks.items():
            if percentile not in at and passed >= rank:
                at[percentile] = value
    return Spread(
        n=n,
        mean=sum(value * times for value, times in ordered.items()) / n,
        p50=at[50],
        p90=at[90],
        p99=at[99],
        max=next(reversed(ordered)),
        counts=ordered,
    )
