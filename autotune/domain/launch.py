"""An engine, how to start it, and where it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from autotune.domain.space import Value

Device = Literal["cpu", "cuda"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """An installed engine: `command` is the argv prefix that starts its CLI."""

    name: str
    version: str
    device: Device
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """Everything a start needs.

    `argv` and `env` (additions to our environment) start the trial. `settings` (options by long name,
    underscores) and `deploy_env` are the part of them that a deployment keeps: without port, key and
    whatever only a measurement needs.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    settings: Mapping[str, Value]
    deploy_env: Mapping[str, str]
    port: int
    served_model: str
    start_deadline_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFacts:
    """What the engine said about itself while starting; absent facts are None."""

    start_s: float
    kv_tokens: int | None = None
    max_concurrency: float | None = None
    weights_gib: float | None = None
    kv_gib: float | None = None
    compile_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A ready engine: base URL without a trailing slash, bearer key, model name."""

    url: str
    key: str
    model: str
    facts: StartFacts
