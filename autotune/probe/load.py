"""How busy the machine is, and with whose work."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import psutil


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUse:
    """CPU seconds since boot: of the whole machine, and of processes that are ours.

    Time stolen by other guests of the host counts as the machine's: it is lost to us as well.
    """

    machine_s: float
    ours_s: float

    @classmethod
    def now(cls, pids: Iterable[int]) -> Self:
        """The machine, and `pids` with this process and its ended children."""
        machine = psutil.cpu_times()
        busy = machine.user + machine.nice + machine.system + machine.irq + machine.softirq + machine.steal
        ours = 0.0
        for pid in pids:
            with contextlib.suppress(psutil.Error):
                times = psutil.Process(pid).cpu_times()
                ours += times.user + times.system
        mine = psutil.Process(os.getpid()).cpu_times()
        ours += mine.user + mine.system + mine.children_user + mine.children_system
        return cls(machine_s=busy, ours_s=ours)

    def foreign_share(self, before: CpuUse, *, elapsed_s: float, cores: int) -> float:
        """Share of the machine's cores that work of others took since `before`, from 0 to 1."""
        foreign_s = (self.machine_s - before.machine_s) - (self.ours_s - before.ours_s)
        return min(max(foreign_s / (elapsed_s * cores), 0.0), 1.0) if elapsed_s > 0 else 0.0
