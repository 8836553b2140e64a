"""The engine's own counters, read over HTTP."""

from __future__ import annotations

import contextlib
import time

import httpx
from prometheus_client.parser import text_string_to_metric_families

from autotune.domain.launch import Endpoint
from autotune.engine.process import Running
from autotune.errors import EngineError

IDLE_S = 180.0
"""A step of 2,048 tokens takes a minute on a slow CPU, and what was given up ends after its step."""
_BUSY = ("vllm:num_requests_running", "vllm:num_requests_waiting")
COUNTERS = (
    "vllm:num_preemptions",
    "vllm:prefix_cache_queries",
    "vllm:prefix_cache_hits",
    "vllm:prompt_tokens",
    "vllm:generation_tokens",
)


def counters(endpoint: Endpoint) -> dict[str, float]:
    """Sums of the engine's counters over all its parts; empty when it has no metrics."""
    totals: dict[str, float] = {}
    with contextlib.suppress(httpx.HTTPError, ValueError):
        text = httpx.get(f"{endpoint.url}/metrics", timeout=10.0, trust_env=False).text
        for family in text_string_to_metric_families(text):
            if family.name in (*COUNTERS, *_BUSY):
                for sample in family.samples:
                    if not sample.name.endswith("_created"):
                        name = family.name.removeprefix("vllm:")
                        totals[name] = totals.get(name, 0.0) + sample.value
    return totals


def wait_idle(engine: Running, endpoint: Endpoint) -> dict[str, float]:
    """The counters once nothing runs or waits any more: the next window starts from an idle engine.

    Raises `EngineError` for an engine that died or still works long after its last request.
    """
    begun = time.monotonic()
    while time.monotonic() - begun < IDLE_S:
        now = counters(endpoint)
        running, waiting = now.pop("num_requests_running", 0.0), now.pop("num_requests_waiting", 0.0)
        if now and running + waiting == 0:
            return now
        if engine.ended():
            raise EngineError(f"the engine died under load (exit {engine.exit_code}): {engine.last_line()}")
        if not now and engine.ready():
            return {}
        time.sleep(0.1)
    raise EngineError(f"the engine did not go idle within {IDLE_S:.0f} s of the last request")
