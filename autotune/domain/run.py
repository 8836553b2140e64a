"""All that one command was given, settled once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.domain.hardware import Hardware, ModelProfile
from autotune.domain.launch import EngineSpec
from autotune.domain.slo import Sla
from autotune.domain.space import Exclusion, SearchSpace


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How candidates are loaded.

    A window holds at least `window_requests` requests and lasts at least `window_s`, but never longer than
    `max_window_s`, after `lead_in_s` of unmeasured traffic. A climb refines for at most `max_windows` windows
    and stops once its bracket is narrower than `resolution` (high / low). `at` replaces the climb by one
    fixed speed. On a CPU engine a window is void when other programs took more than `max_foreign_cpu` of the
    cores.
    """

    window_requests: int
    window_s: float
    lead_in_s: float
    max_windows: int
    resolution: float
    start_speed: float
    min_speed: float
    max_speed: float
    at: float | None
    max_window_s: float = 90.0
    max_foreign_cpu: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One immutable run; `autotune resume` needs nothing else.

    `budget_s` bounds the wall time of the whole run, finals included; `trials` the number of trials,
    the default's included. `quality_limit` is the allowed relative perplexity increase, None for off.
    `holdout` is the index of the first request kept for the final confirmation. A recording is not equally
    busy all along: `search_rate_rps` and `held_rate_rps` are the recorded rates of the first
    `window_requests` of the two slices, and a speed times its slice's rate is the request rate that
    everything is compared in.
    """

    id: str
    created_at: str
    tool_version: str
    sla: Sla
    engine: EngineSpec
    hardware: Hardware
    model: ModelProfile
    variants: Mapping[str, ModelProfile]
    workload_path: str
    workload_sha256: str
    workload_requests: int
    workload_rate_rps: float
    holdout: int
    search_rate_rps: float
    held_rate_rps: float
    space: SearchSpace
    exclusions: tuple[Exclusion, ...]
    load: Load
    quality_limit: float | None
    budget_s: float | None
    trials: int | None
    seed: int
    ports: tuple[int, int]
    start_deadline_s: float
    confidence: float = 0.95
    design_effect: float = 3.0
