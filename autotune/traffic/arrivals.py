"""What arrival times tell, gathered in one pass over them in ascending order."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

LEAST_STEP_S = 0.1
"""Stamps finer than this are no finding: requests that share one reach the engine within a few steps."""

_LONGEST_GAP_MS = 120_000
_MOST_BINS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Stamps that come in steps: `seconds` between them, `stamps` different ones, requests on each."""

    seconds: float
    stamps: int
    requests_per_stamp: float


class Gaps:
    """Gaps between arrivals: their coefficient of variation, and the step of their stamps."""

    def __init__(self) -> None:
        self._n = 0
        self._mean_s = 0.0
        self._squares = 0.0
        self._gaps_ms: Counter[int] = Counter()

    def add(self, gap_s: float) -> None:
        """One more gap. The running moments are Welford's (Technometrics 4(3), 1962)."""
        self._n += 1
        apart = gap_s - self._mean_s
        self._mean_s += apart / self._n
        self._squares += apart * (gap_s - self._mean_s)
        self._gaps_ms[min(round(gap_s * 1e3), _LONGEST_GAP_MS)] += 1

    def cv(self) -> float | None:
        """Standard deviation (of these n gaps) over mean, 1 for a Poisson process; None below two gaps."""
        if self._n < 2 or self._mean_s <= 0:
            return None
        return math.sqrt(self._squares / self._n) / self._mean_s

    def step(self) -> Step | None:
        """The step of the stamps, None where requests do not share stamps or the stamps keep no step.

        A step shows as many requests with one stamp (gaps under half a millisecond), no short gaps else, and
        nothing between one step and two. Clocks that jitter around the step by milliseconds still count.
        """
        shared = self._gaps_ms[0]
        apart = sorted((gap, n) for gap, n in self._gaps_ms.items() if gap)
        stamps = self._n - shared + 1
        if shared < 0.05 * self._n or stamps < 10:
            return None
        low_ms = _at_rank(apart, math.ceil(0.01 * (stamps - 1)))
        if low_ms / 1e3 < max(LEAST_STEP_S, 0.1 * self._mean_s):
            return None
        near = [(gap, n) for gap, n in apart if gap < 1.25 * low_ms and gap >= low_ms]
        step_ms = sum(gap * n for gap, n in near) / sum(n for _, n in near)
        between = sum(n for gap, n in apart if 1.25 * step_ms <= gap < 1.75 * step_ms)
        if between > 0.1 * sum(n for _, n in near):
            return None
        return Step(seconds=step_ms / 1e3, stamps=stamps, requests_per_stamp=(self._n + 1) / stamps)


class Dispersion:
    """Index of dispersion of counts: their variance over their mean in windows of `window_s` from 0 on."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._window = 0
        self._count = 0
        self._sum = 0
        self._squares = 0

    def add(self, offset_s: float) -> None:
        """One more arrival; empty windows before it count as zeros."""
        window = int(offset_s / self._window_s)
        if window > self._window:
            self._sum += self._count
            self._squares += self._count * self._count
            self._count = 0
            self._window = window
        self._count += 1

    def index(self) -> float | None:
        """1 for a Poisson process at a steady rate; None below two whole windows or without arrivals.

        The last window is left out, because the recording ends somewhere in it. Source: Cox and Lewis, The
        Statistical Analysis of Series of Events (1966), section 4.5.
        """
        n = self._window
        if n < 2 or not self._sum:
            return None
        mean = self._sum / n
        return (self._squares / n - mean * mean) / mean


class RateLine:
    """Arrivals over time in at most 128 bins, whose width doubles when the recording outgrows them."""

    def __init__(self) -> None:
        self._bin_s = 1 / 64
        self._counts = [0]

    def add(self, offset_s: float) -> None:
        """One more arrival."""
        place = int(offset_s / self._bin_s)
        while place >= _MOST_BINS:
            pairs = self._counts + [0] * (len(self._counts) % 2)
            self._counts = [a + b for a, b in zip(pairs[::2], pairs[1::2], strict=True)]
            self._bin_s *= 2
            place = int(offset_s / self._bin_s)
        self._counts += [0] * (place + 1 - len(self._counts))
        self._counts[place] += 1

    def rates_rps(self, *, most: int) -> tuple[float, tuple[float, ...]]:
        """Width of a bin in seconds, and the mean rate in each of at most `most` whole bins."""
        counts, bin_s = self._counts, self._bin_s
        while len(counts) > most:
            pairs = counts + [0] * (len(counts) % 2)
            counts = [a + b for a, b in zip(pairs[::2], pairs[1::2], strict=True)]
            bin_s *= 2
        whole = counts[:-1] or counts  # the recording ends somewhere in the last one
        return bin_s, tuple(count / bin_s for count in whole)


def _at_rank(counts: list[tuple[int, int]], rank: int) -> int:
    """The value of this rank, from 1, among ascending values and how often each was seen."""
    passed = 0
    for value, n in counts:
        passed += n
        if passed >= rank:
            return value
    return counts[-1][0]
