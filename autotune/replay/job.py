"""What is to be replayed, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.domain.client import Client
from autotune.domain.slo import Sla
from autotune.domain.timing import Timing
from autotune.traffic import Due


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One window to replay.

    `vocabulary`, `block_tokens`, `seed` and `salt` decide the prompts (`traffic.prompt`); `cache_salt` keeps
    this window's prefixes from every other's. `allowed` holds for each objective of `sla` how many bad values
    the window may have: with one more it is decided and stops, unless `run_to_end`. Requests still running
    `drain_s` after the last due time are cut off.

    `natural_stops` leaves the end of an answer to the model, `vllm_fields` is False for a server that refuses
    vLLM's additions to the protocol. `workers` is the number of client processes; None lets the expected
    token rate and the cores decide.
    """

    url: str
    key: str
    model: str
    vocabulary: int
    block_tokens: int | None
    seed: int
    salt: str
    cache_salt: str
    due: tuple[Due, ...]
    sla: Sla
    allowed: tuple[int, ...]
    run_to_end: bool
    drain_s: float
    natural_stops: bool = False
    vllm_fields: bool = True
    workers: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Measured requests sent and finished, and certainly bad values so far.

    `bad` of `allowed` is that of the objective that is nearest to failing.
    """

    sent: int
    finished: int
    bad: int
    allowed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The measured requests of a window in order of their due times.

    A turn of a session that would have left after the window's last planned due time is not among them.
    """

    timings: tuple[Timing, ...]
    curtailed: bool
    client: Client

    @property
    def loop_lag_p99_s(self) -> float:
        """That of `client`."""
        return self.client.loop_lag_p99_s
