"""Requests in order of arrival, counted from the first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from autotune.domain.workload import Request
from autotune.errors import InputError


@dataclass(slots=True)
class Arrivals:
    """Where the order of arrival stands: the first stamp and the latest."""

    origin_s: float | None = None
    latest_s: float = 0.0

    def counted(self, where: str, several: list[Request]) -> list[Request]:
        """Requests counted from the first of all; raises `InputError` for one before the latest."""
        latest_s = self.latest_s
        for one in several:
            if one.offset_s < latest_s:
                raise descending(where, latest_s - one.offset_s)
            latest_s = one.offset_s
        self.latest_s = latest_s
        if self.origin_s is None and several:
            self.origin_s = several[0].offset_s
        if not self.origin_s:
            return several
        return [replace(one, offset_s=one.offset_s - self.origin_s) for one in several]


def in_order(requests: Iterable[Request]) -> list[Request]:
    """Requests sorted by their stamps, equal ones as they stand, and counted from the first."""
    found = sorted(requests, key=lambda request: request.offset_s)
    origin_s = found[0].offset_s if found else 0.0
    return [replace(one, offset_s=one.offset_s - origin_s) for one in found] if origin_s else found


def descending(where: str, by_s: float) -> InputError:
    """The error of a row that is earlier than the one before it."""
    return InputError(
        f"{where}: this request is {by_s:.3f} s earlier than the one before it",
        hint="sort the rows by their time",
    )
