"""What may be varied: parameters with their levels, rules between them, and points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

Value = bool | int | float | str
Point = Mapping[str, Value]
"""One assignment: a value for every parameter of the space."""


def world_size(settings: Point) -> int:
    """GPUs that one engine takes: tensor × pipeline × data parallel.

    Source: `ParallelConfig.world_size_across_dp` in vllm/config/parallel.py.
    """
    return prod(int(settings.get(f"{kind}_parallel_size", 1)) for kind in ("tensor", "pipeline", "data"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A setting and the levels it may take.

    Every parameter is discrete: a change costs a launch and often a compilation, so that few,
    log-spaced levels are worth more than a continuum. `ordered` levels are ranked for the sampler.
    `default` is what the engine does when the setting is left out; a point that holds it emits no flag.
    `cpu_lacks` names an instruction set: with it, nothing but the default is worth a trial.
    """

    name: str
    levels: tuple[Value, ...]
    default: Value
    ordered: bool
    why: str = ""
    cpu_lacks: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`left` ≥ `right` for two integer parameters, with the reason."""

    left: str
    right: str
    why: str

    def holds(self, point: Point) -> bool:
        """True when either side is absent from the point or the relation is met."""
        left, right = point.get(self.left), point.get(self.right)
        if not isinstance(left, int) or not isinstance(right, int):
            return True
        return left >= right


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A published or vendor starting point: settings that differ from the defaults."""

    name: str
    settings: Point
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """A level that provably cannot run here, or is not worth a trial here, with its reason."""

    parameter: str
    level: Value
    reason: str

    def __str__(self) -> str:
        return f"{self.parameter}={self.level}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """Everything that may be varied for one engine on one kind of device.

    `fixed` settings go into every launch, the default's included.
    """

    name: str
    engine: str
    device: str
    versions: str
    parameters: tuple[Parameter, ...]
    rules: tuple[Rule, ...]
    presets: tuple[Preset, ...]
    fixed: Mapping[str, Value]

    def default_point(self) -> dict[str, Value]:
        """Every parameter at the engine's own default: trial 0."""
        return {parameter.name: parameter.default for parameter in self.parameters}

    def changed(self, point: Point) -> dict[str, Value]:
        """The settings of `point` that differ from the defaults, in the space's order."""
        defaults = self.default_point()
        return {name: point[name] for name in defaults if point[name] != defaults[name]}

    def broken_rule(self, point: Point) -> Rule | None:
        """The first rule that the point violates, if any."""
        return next((rule for rule in self.rules if not rule.holds(point)), None)
