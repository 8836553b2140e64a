"""Recorded traffic as something to send: windows, due times, prompts."""

from autotune.traffic.prompts import prompt
from autotune.traffic.window import (
    Due,
    cut,
    first_of_search,
    holdout,
    mean_rate_rps,
    offered_rps,
)

__all__ = [
    "Due",
    "cut",
    "first_of_search",
    "holdout",
    "mean_rate_rps",
    "offered_rps",
    "prompt",
]
