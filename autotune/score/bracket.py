"""What windows at several speeds say together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """Highest speed that passed and lowest that failed; None where there was none."""

    low: float | None
    high: float | None


def bracket(results: Iterable[tuple[float, bool]]) -> Bracket:
    """The bracket of windows, each a speed and whether it passed.

    A pass above a fail is noise: the fail stands.
    """
    seen = tuple(results)
    high = min((speed for speed, passed in seen if not passed), default=None)
    low = max((speed for speed, passed in seen if passed and (high is None or speed < high)), default=None)
    return Bracket(low=low, high=high)
