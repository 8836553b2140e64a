"""What `tune` says while it works: the console and `--json` are two readers of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.domain.client import OwnError
from autotune.domain.launch import StartFacts
from autotune.domain.outcome import Capacity, Quality, Trial, Window
from autotune.domain.space import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """The run begins or goes on: `resumed` trials, which took `elapsed_s`, are in the journal already."""

    id: str
    folder: str
    trials: int | None
    budget_s: float | None
    resumed: int
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTested:
    """What our own client adds to what it measures, found before the first launch."""

    own: OwnError


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStarted:
    """A point is about to be launched; `changed` are its settings that differ from the defaults."""

    number: int
    origin: str
    point: Mapping[str, Value]
    changed: Mapping[str, Value]
    elapsed_s: float
    left_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLaunched:
    """The engine process exists; `log` is where it writes."""

    number: int
    session: int
    port: int
    log: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineWaiting:
    """Still starting; `line` is the last line of its log."""

    number: int
    waited_s: float
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReady:
    """The engine answers."""

    number: int
    facts: StartFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityMeasured:
    """The gate has measured (or remembered, `cached`) the perplexity of this precision."""

    number: int
    quality: Quality
    cached: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowStarted:
    """A window of `planned` requests begins at `rate_rps`."""

    number: int
    index: int
    phase: str
    speed: float
    rate_rps: float
    planned: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowProgress:
    """Inside a window: requests sent, finished and already bad; `allowed` bad ones may be."""

    number: int
    index: int
    sent: int
    finished: int
    bad: int
    allowed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowEnded:
    """A window was measured and judged."""

    number: int
    window: Window


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStopped:
    """The whole process group is gone after `seconds`; `forced` when it had to be killed."""

    number: int
    seconds: float
    forced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnded:
    """A trial is in the journal; `incumbent` is the best so far, if any."""

    trial: Trial
    incumbent: int | None
    capacity: Capacity | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmStarted:
    """The winner is launched afresh on traffic that the search has not seen."""

    number: int
    speed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """Nothing was learned of a trial; it is tried again (`attempt` counts from 1)."""

    number: int
    reason: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """The last event: which trial won, and the files written."""

    folder: str
    winner: int | None
    reason: str
    seconds: float
    files: tuple[str, ...]


Event = (
    RunStarted
    | ClientTested
    | TrialStarted
    | EngineLaunched
    | EngineWaiting
    | EngineReady
    | QualityMeasured
    | WindowStarted
    | WindowProgress
    | WindowEnded
    | EngineStopped
    | TrialEnded
    | ConfirmStarted
    | Retried
    | RunEnded
)
