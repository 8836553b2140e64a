"""What a client's processes cost: CPU and memory of a process and everything below it."""

from __future__ import annotations

import os
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """At `at_ns`: CPU seconds used so far, by living processes and those they reaped; resident bytes."""

    at_ns: int
    cpu_s: float
    rss_bytes: int
    processes: int


def tree(root: int) -> list[int]:
    """`root` and its living descendants; two looks at /proc a process, so not for every sample."""
    found, queue = [], [root]
    while queue:
        pid = queue.pop()
        found.append(pid)
        try:
            for task in (PROC / str(pid) / "task").iterdir():
                queue += map(int, (task / "children").read_text(encoding="ascii").split())
        except OSError:
            continue  # it has just ended
    return found


def sample(pids: list[int], at_ns: int) -> Sample:
    """One look at `/proc/PID/stat` of each; resident pages shared by two processes count twice."""
    cpu_s, pages, alive = 0.0, 0, 0
    for pid in pids:
        try:
            text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        fields = text[text.rfind(")") + 2 :].split()
        cpu_s += sum(map(int, fields[11:15])) * _TICK_S  # utime stime cutime cstime, proc(5)
        pages += int(fields[21])
        alive += 1
    return Sample(at_ns=at_ns, cpu_s=cpu_s, rss_bytes=pages * _PAGE, processes=alive)


def cpu_at(samples: list[Sample], at_ns: int) -> float | None:
    """CPU seconds used up to a moment, on the straight line between the samples around it."""
    place = bisect_left([one.at_ns for one in samples], at_ns)
    if not samples or place == len(samples):
        return None
    if place == 0:
        return samples[0].cpu_s
    before, after = samples[place - 1], samples[place]
    share = (at_ns - before.at_ns) / (after.at_ns - before.at_ns)
    return before.cpu_s + share * (after.cpu_s - before.cpu_s)
