"""Open-loop replay of a window against a running engine, in a process of its own."""

from autotune.replay.job import Job, Progress, Replayed
from autotune.replay.parent import replay
from autotune.replay.table import read_timings, write_timings

__all__ = ["Job", "Progress", "Replayed", "read_timings", "replay", "write_timings"]
