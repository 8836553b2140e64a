"""When a window says more of our own client than of the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autotune.domain.client import Client
from autotune.domain.slo import Metric, Sla
from autotune.domain.timing import Timing
from autotune.score.counts import allowed_bad, count, expected_values
from autotune.units import show_duration

LATE_S = 0.002
"""What nobody needs to mind: p99 of a healthy client stays below it (docs/adr/0010)."""
LATE_SHARE = 0.01
"""Share of a limit on TTFT or E2EL by which our own client may be off."""
GAP_SHARE = 0.1
"""The same for ITL and TPOT, which compare two stamps of one client."""
FULL_SHARE = 0.8
"""Share of a core that a worker may want; above it work queues up in the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFault:
    """One reason to void a window.

    `from_due` is True for a late send: it makes latencies that count from the due time too long, so that a
    window which fails also from the actual send has failed all the same.
    """

    reason: str
    from_due: bool


def client_faults(client: Client, sla: Sla) -> tuple[ClientFault, ...]:
    """All that was wrong with our own client in a window judged by `sla`; empty when nothing was."""
    return tuple(_faults(client, sla))


def void_reason(client: Client, sla: Sla, timings: Sequence[Timing]) -> str | None:
    """Why these timings say more of our client than of the server; None when they do not.

    A window that fails also when latency is counted from the actual send has failed, however late we were.
    """
    for fault in client_faults(client, sla):
        if not (fault.from_due and _fails_from_send(sla, timings)):
            return fault.reason
    return None


def _fails_from_send(sla: Sla, timings: Sequence[Timing]) -> bool:
    """True when the window holds too many bad requests even with our own lateness taken off."""
    kind = [replace(timing, due_ns=timing.sent_ns or timing.due_ns) for timing in timings]
    counts = [count(slo, kind) for slo in sla.slos]
    planned = [max(one.n, expected_values(one.slo, (t.output_tokens for t in kind))) for one in counts]
    return any(one.bad > allowed_bad(one.slo, n) for one, n in zip(counts, planned, strict=True))


def _faults(client: Client, sla: Sla) -> Iterator[ClientFault]:
    late_s = client.send_lag_p99_s
    if late_s is not None and late_s > (allowed_s := allowed_late_s(sla)):
        yield ClientFault(
            reason=f"our own client was late: p99 of {show_duration(late_s)} after the due time, allowed "
            f"{show_duration(allowed_s)}",
            from_due=True,
        )
    if client.loop_lag_p99_s > (allowed_s := _allowed_stamp_s(sla)):
        yield ClientFault(
            reason="our own client was slow to stamp: p99 of "
            f"{show_duration(client.loop_lag_p99_s)}, allowed {show_duration(allowed_s)}",
            from_due=False,
        )
    wanted = client.cpu_share + (client.waited_share or 0.0)
    if wanted > FULL_SHARE:
        yield ClientFault(
            reason=f"our own client was starved of CPU: one of {client.workers} workers wanted {wanted:.0%} "
            f"of a core and got {client.cpu_share:.0%}, allowed {FULL_SHARE:.0%}",
            from_due=False,
        )


def allowed_late_s(sla: Sla) -> float:
    """How late sends may be at p99: 2 ms, or 1 % of the tightest limit on TTFT or E2EL if that is more."""
    limits_s = [slo.limit_s for slo in sla.slos if slo.metric in (Metric.TTFT, Metric.E2EL)]
    return max(LATE_S, LATE_SHARE * min(limits_s)) if limits_s else LATE_S


def _allowed_stamp_s(sla: Sla) -> float:
    """The least that any objective allows: a late stamp touches all of them."""
    shares = {Metric.ITL: GAP_SHARE, Metric.TPOT: GAP_SHARE}
    return max(LATE_S, min(shares.get(slo.metric, LATE_SHARE) * slo.limit_s for slo in sla.slos))
