"""How busy the machine is, and with whose work."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Self

import psutil


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUse:
    """CPU seconds since boot: of the cores that we may use, and of processes that are ours.

    Time stolen by other guests of the host counts as the cores': it is lost to us as well.
    """

    cores_s: float
    ours_s: float
    cores: int

    @classmethod
    def now(cls, pids: Iterable[int], core_ids: Collection[int]) -> Self:
        """The cores of these numbers, and `pids` with this process and its ended children."""
        busy = sum(
            core.user + core.nice + core.system + core.irq + core.softirq + core.steal
            for number, core in enumerate(psutil.cpu_times(percpu=True))
            if number in core_ids
        )
        ours = 0.0
        for pid in pids:
            with contextlib.suppress(psutil.Error):
                times = psutil.Process(pid).cpu_times()
                ours += times.user + times.system
        mine = psutil.Process(os.getpid()).cpu_times()
        ours += mine.user + mine.system + mine.children_user + mine.children_system
        return cls(cores_s=busy, ours_s=ours, cores=len(core_ids))

    def foreign_share(self, before: CpuUse, *, elapsed_s: float) -> float:
        """Share of our cores that work of others took since `before`, from 0 to 1."""
        foreign_s = (self.cores_s - before.cores_s) - (self.ours_s - before.ours_s)
        return min(max(foreign_s / (elapsed_s * self.cores), 0.0), 1.0) if elapsed_s > 0 else 0.0
