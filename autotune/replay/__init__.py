"""Replay of a window against a running engine, in processes of its own."""

from autotune.replay.job import Job, Progress, Replayed
from autotune.replay.parent import replay
from autotune.replay.selftest import TEST_S, refusal, selftest
from autotune.replay.table import read_timings, write_timings

__all__ = [
    "TEST_S",
    "Job",
    "Progress",
    "Replayed",
    "read_timings",
    "refusal",
    "replay",
    "selftest",
    "write_timings",
]
