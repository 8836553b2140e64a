"""What an engine must tell us; everything here is pure, processes are `engine.process`'s business."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from autotune.domain.hardware import Hardware, ModelProfile
from autotune.domain.launch import EngineSpec, LaunchPlan, StartFacts
from autotune.domain.outcome import Infeasible
from autotune.domain.space import Point, SearchSpace


class Engine(Protocol):
    """One engine. `point` always assigns every parameter of the space."""

    def plan(
        self,
        point: Point,
        *,
        space: SearchSpace,
        spec: EngineSpec,
        model: ModelProfile,
        variants: Mapping[str, ModelProfile],
        hardware: Hardware,
        port: int,
        start_deadline_s: float,
    ) -> LaunchPlan:
        """The launch of a point: its settings at their defaults emit no flag."""
        ...

    def unfit(
        self, point: Point, *, space: SearchSpace, hardware: Hardware, variants: Mapping[str, ModelProfile]
    ) -> str | None:
        """Why a point cannot run although each of its levels can; None when nothing speaks against it."""
        ...

    def diagnose(self, exit_code: int | None, log: str) -> Infeasible | None:
        """Why a start or a run failed, when the log says it; None when the cause is unknown.

        `exit_code` is None for an engine that hung and had to be killed.
        """
        ...

    def facts(self, log: str, *, start_s: float) -> StartFacts:
        """What the engine said about itself while starting."""
        ...

    def precision(self, point: Point) -> str:
        """Which points compute the same numbers: the key under which quality is measured once."""
        ...

    def config_file(self, plan: LaunchPlan, notes: tuple[str, ...]) -> str:
        """The configuration file that deploys the plan, `notes` as its leading comments."""
        ...

    def deploy_command(self, plan: LaunchPlan, spec: EngineSpec) -> str:
        """The shell command that serves it, environment first; `--config FILE` goes behind it."""
        ...
