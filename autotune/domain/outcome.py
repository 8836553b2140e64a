"""How a trial ended: four kinds, told to the search in four ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from autotune.domain.client import OwnError
from autotune.domain.launch import StartFacts
from autotune.domain.measurement import Measurement, Verdict
from autotune.domain.space import Value


class Cause(Enum):
    """Why a configuration cannot be used; the first words a user sees."""

    OUT_OF_MEMORY = "out of memory"
    KV_TOO_SMALL = "KV cache too small"
    BAD_FLAG = "refused by the engine"
    UNSUPPORTED = "not supported here"
    QUALITY = "quality gate"
    CRASH = "engine crashed"
    HANG = "engine never became ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Perplexity of one precision against the reference precision on the same text.

    `increase` is perplexity / reference − 1, `limit` the most it may be.
    """

    precision: str
    perplexity: float
    reference: float
    increase: float
    limit: float
    tokens: int
    seconds: float

    @property
    def passed(self) -> bool:
        """True when the increase is within the limit."""
        return self.increase <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One window of a trial: what it showed and whether the point rule passed it."""

    index: int
    phase: str
    speed: float
    passed: bool
    measurement: Measurement
    verdict: Verdict
    timings: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The bracket a climb ended with, as speeds of the recorded trace and as request rates.

    `low_*`: highest speed that passed, None when even the lowest failed. `high_*`: lowest speed that
    failed, None when none did. A rate is the speed times the recorded mean rate of the slice it was found
    on; what one short window was offered differs with how busy the part is that fits into it.
    """

    low_speed: float | None
    high_speed: float | None
    low_rps: float | None
    high_rps: float | None
    output_tokens_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The engine ran and was loaded."""

    capacity: Capacity
    windows: tuple[Window, ...]
    quality: Quality | None
    facts: StartFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Infeasible:
    """A finding: this configuration cannot be used. `evidence` is the line that says so."""

    cause: Cause
    evidence: str
    quality: Quality | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The budget ended inside the trial; its windows are kept, nothing is concluded."""

    reason: str
    windows: tuple[Window, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Faulted:
    """Nothing was learned of the configuration: our client, a port or a stranger interfered.

    `engine` is True when the engine crashed or hung for an unknown cause: should it do so again, that is a
    property of the configuration after all.
    """

    reason: str
    engine: bool


Outcome = Measured | Infeasible | Stopped | Faulted


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One line of the result: a point, what became of it, and how long that took."""

    number: int
    point: Mapping[str, Value]
    origin: str
    outcome: Outcome
    started_at: str
    seconds: float
    launches: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """A fresh launch of a trial's point on the held-out slice.

    `windows` are its attempts in order, each slower than the one before; `speed` is the last one when it
    passed, else None, and `rate_rps` that speed times the slice's recorded rate. The defaults (`default`) are
    first tried at the winner's confirmed speed, in windows of the same length `window_s`: should they hold it
    too, nothing was gained. `note` says why attempts are missing.
    """

    trial: int
    default: bool
    speed: float | None
    rate_rps: float | None
    windows: tuple[Window, ...]
    window_s: float | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What the whole run says: every trial, the winner, and the confirmations of the end.

    `winner` is None when nothing held the SLA; trial 0 when the defaults are to be kept. `client` is what our
    own client adds to what it measures, None where that was not tested.
    """

    trials: tuple[Trial, ...]
    winner: int | None
    confirmations: tuple[Confirmation, ...]
    reason: str
    seconds: float
    client: OwnError | None = None
