"""What a test wants the engine to do: how fast, how good, and where it breaks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from typing import Literal, get_args

from autotune.testing.settings import Settings

Kind = Literal[
    "oom",
    "kv_too_small",
    "bad_flag",
    "crash",
    "exit_137",
    "hang",
    "port_in_use",
    "slow_start",
    "die_mid_stream",
    "freeze",
    "short_output",
    "ignore_sigterm",
    "orphan",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong while `when` holds (empty: always; see `Settings.holds`).

    `once` names a marker file: only the launch that creates it is hit. `after` completions are served
    before `die_mid_stream`, `freeze` or `short_output` sets in; `seconds` is the delay of `slow_start`.
    """

    fault: Kind
    when: str = ""
    once: str | None = None
    after: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.fault not in get_args(Kind):
            raise ValueError(f"unknown fault {self.fault!r}, not one of {', '.join(get_args(Kind))}")

    def arm(self, settings: Settings) -> bool:
        """True when this launch is to be hit; creates the marker file."""
        if not settings.holds(self.when):
            return False
        try:
            if self.once is not None:
                Path(self.once).open("x").close()
        except FileExistsError:
            return False
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """How the engine behaves; conditions are those of `Settings.holds`.

    A step takes `step_s` + prefill tokens × `prefill_s_per_token` + decoding sequences ×
    `decode_s_per_seq`, over the product of the `speed` factors whose condition holds.
    `perplexity` has the base under "default" and, by condition, what a precision makes of it; several
    that hold multiply their ratios to the base. `kv_bytes` is the KV pool where no flag sets it. With
    `children` the engine has a child process, as vLLM has its EngineCore. A version with `+cpu` logs
    like the CPU build, any other like the CUDA build.
    """

    version: str = "0.32.0+cpu"
    start_s: float = 0.0
    step_s: float = 0.0005
    prefill_s_per_token: float = 4e-5
    decode_s_per_seq: float = 5e-5
    speed: Mapping[str, float] = field(default_factory=dict)
    perplexity: Mapping[str, float] = field(default_factory=dict)
    kv_bytes: int = 2**30
    children: bool = False
    faults: tuple[Fault, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Script:
        """The script that `json` wrote; empty text is the default one."""
        fields = json.loads(text or "{}")
        faults = tuple(Fault(**fault) for fault in fields.pop("faults", ()))
        return cls(faults=faults, **fields)

    def json(self) -> str:
        """One line for the environment variable AUTOTUNE_SCRIPT."""
        return json.dumps(asdict(self))

    def speed_of(self, settings: Settings) -> float:
        """How many times faster than scripted these settings run."""
        return prod(factor for when, factor in self.speed.items() if settings.holds(when))

    def perplexity_of(self, settings: Settings) -> float:
        """What every text scores at the precision of these settings."""
        base = self.perplexity.get("default", 20.0)
        precisions = {when: value for when, value in self.perplexity.items() if when != "default"}
        return base * prod(value / base for when, value in precisions.items() if settings.holds(when))
