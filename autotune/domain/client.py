"""How the measuring client itself fared."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """The client processes of one window; of several, the worst.

    `send_lag_p99_s` is that of all sends, lead-in included, None without a send. `loop_lag_p99_s` is by how
    much a wake-up every 10 ms came late. `cpu_s` is what all processes used, `cpu_share` the share of a core
    that one of them used, `waited_share` the share of the time that one was ready to run and got no core,
    None where the kernel does not tell. `reconnects` counts requests that met a kept connection just when the
    server closed it.
    """

    workers: int
    send_lag_p99_s: float | None
    loop_lag_p99_s: float
    cpu_s: float
    cpu_share: float
    waited_share: float | None
    reconnects: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnError:
    """What our client adds to what it measures, seen by a server that knows better; one machine, one clock.

    `ttft_p99_s` is what the client reports, from due time to first token; `true_ttft_p99_s` is the time that
    the server took, from the request being there to its first byte being written. `send_error_p99_s` is the
    time from due to being there. `server_late_p99_s` is how late the server was itself: with a large one the
    machine is busy and the test says little. `seconds` is the part of the schedule that was played.
    """

    requests: int
    failed: int
    seconds: float
    rate_rps: float
    events_per_s: float
    ttft_p99_s: float
    true_ttft_p99_s: float
    send_error_p99_s: float
    server_late_p99_s: float
    cpu_s_per_event: float
    client: Client

    @property
    def ttft_error_s(self) -> float:
        """By how much the reported TTFT p99 is off."""
        return abs(self.ttft_p99_s - self.true_ttft_p99_s)
