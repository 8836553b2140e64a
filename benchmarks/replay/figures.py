"""From one trial's stamps to its figures: what the client said, and what was true."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from clients.contract import GAP_S, OUTPUT_TOKENS, Ask, Told
from sampling import Sample, cpu_at

LEAD_S = 2.0
"""The first seconds of every load are left out: connections are opened, caches are cold."""
EVER_NS = 2.0**62
SHARES = (0.01, 0.1, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLog:
    """What the server did: streamed requests in order of arrival, in ns; 0 stands for never written."""

    arrived_ns: tuple[int, ...]
    first_ns: tuple[int, ...]
    last_ns: tuple[int, ...]
    late_p99_ms: float | None
    late_max_ms: float | None
    blocked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One trial; everything but memory and the whole cost is of the load after the lead-in.

    `ttft_ms` is as the client reports it, `truth_ms` is first write − arrival in the server's log, both at
    the percentiles of `SHARES`. `send_error_ms` is the client's own stamp of the send against the schedule:
    against the due time where the client says when its schedule began (`from_due`), else against its least
    late request, which is in its favour. `arrival_error_ms` is the same from the server's arrival stamps,
    against the least late request for all. `cpu_us_per_event` is CPU time from the first arrival to the exit
    of all processes over all events; `_in_load` is both within the load.
    """

    requests: int
    failed: int
    asked_rps: float
    offered_rps: float
    events_per_s: float
    ttft_ms: tuple[float, ...] | None
    truth_ms: tuple[float, ...] | None
    ttft_p99_error: float | None
    send_error_ms: tuple[float, ...] | None
    from_due: bool
    arrival_error_ms: tuple[float, ...] | None
    server_late_p99_ms: float | None
    server_late_max_ms: float | None
    cpu_us_per_event: float | None
    cpu_us_per_event_in_load: float | None
    cpu_share_in_load: float | None
    peak_rss_mib: float
    processes: int


def quantiles_ms(values_s: Sequence[float]) -> tuple[float, ...] | None:
    """Order statistics ceil(share·n) at `SHARES`, in ms; None without values."""
    ordered = sorted(values_s)
    if not ordered:
        return None
    return tuple(round(ordered[max(math.ceil(share * len(ordered)), 1) - 1] * 1e3, 4) for share in SHARES)


def p99(quantiles: Sequence[float] | None) -> float | None:
    """The 99th percentile among quantiles at `SHARES`."""
    return None if quantiles is None else quantiles[SHARES.index(0.99)]


def lag_s(at_s: Sequence[float], due_s: Sequence[float], *, first: int, from_due: bool) -> list[float]:
    """How late each of `at_s` was from place `first` on; against the least late of all unless `from_due`."""
    late = [at - due for at, due in zip(at_s, due_s, strict=True)]
    origin = 0.0 if from_due else min(late)
    return [one - origin for one in late[first:]]


def written(log: ServerLog, since_ns: float, until_ns: float) -> int:
    """Events of all requests that the server wrote in [since, until): one each gap from the first."""
    gap_ns, total = GAP_S * 1e9, 0
    for first_ns, last_ns in zip(log.first_ns, log.last_ns, strict=True):
        if first_ns and first_ns < until_ns:
            count = round((last_ns - first_ns) / gap_ns) + 1 if last_ns else OUTPUT_TOKENS
            low = max(math.ceil((since_ns - first_ns) / gap_ns), 0)
            high = min(math.ceil((until_ns - first_ns) / gap_ns), count)
            total += max(high - low, 0)
    return total


def figures(
    ask: Ask, told: Told, log: ServerLog, samples: list[Sample], *, cpu_s: float, lead_s: float = LEAD_S
) -> Figures:
    """Judge one trial; raises `ValueError` when the server saw no streamed request."""
    if not log.arrived_ns:
        raise ValueError("the server saw no streamed request")
    due_s, planned = ask.due_s, len(ask.due_s)
    first = next((place for place, due in enumerate(due_s) if due >= lead_s), planned)
    whole = len(log.arrived_ns) == planned
    origin_ns: float = log.arrived_ns[0]
    if whole:  # the schedule began no later than the least late request says
        origin_ns = min(at - due * 1e9 for at, due in zip(log.arrived_ns, due_s, strict=True))
    since_ns, until_ns = origin_ns + lead_s * 1e9, origin_ns + due_s[-1] * 1e9
    span_s = due_s[-1] - lead_s

    kept = [
        (first_ns - arrived_ns) / 1e9
        for place, (arrived_ns, first_ns) in enumerate(zip(log.arrived_ns, log.first_ns, strict=True))
        if first_ns and (place >= first if whole else arrived_ns >= since_ns)
    ]
    truth = quantiles_ms(kept)
    complete = len(told.sent_s) == planned
    ttft = quantiles_ms(
        [
            one
            for place, (sent_s, one) in enumerate(zip(told.sent_s, told.ttft_s, strict=True))
            if one is not None and (place >= first if complete else sent_s >= told.sent_s[0] + lead_s)
        ]
    )
    own_due_s = told.due_s or due_s
    sent_lag = (
        quantiles_ms(lag_s(told.sent_s, own_due_s, first=first, from_due=told.due_s is not None))
        if complete
        else None
    )
    arrival_lag = (
        quantiles_ms(lag_s([one / 1e9 for one in log.arrived_ns], due_s, first=first, from_due=False))
        if whole
        else None
    )
    in_load, all_events = written(log, since_ns, until_ns), written(log, 0, EVER_NS)
    cpu_before, cpu_since, cpu_until = (cpu_at(samples, int(at)) for at in (origin_ns, since_ns, until_ns))
    load_cpu_s = None if cpu_since is None or cpu_until is None else cpu_until - cpu_since
    said, true = p99(ttft), p99(truth)
    return Figures(
        requests=planned - first,
        failed=told.failed,
        asked_rps=round((planned - first) / span_s, 2),
        offered_rps=round(sum(since_ns <= one <= until_ns for one in log.arrived_ns) / span_s, 2),
        events_per_s=round(in_load / span_s, 1),
        ttft_ms=ttft,
        truth_ms=truth,
        ttft_p99_error=None if said is None or true is None else round(said / true - 1, 5),
        send_error_ms=sent_lag,
        from_due=told.due_s is not None,
        arrival_error_ms=arrival_lag,
        server_late_p99_ms=log.late_p99_ms,
        server_late_max_ms=log.late_max_ms,
        cpu_us_per_event=None
        if cpu_before is None or not all_events
        else round((cpu_s - cpu_before) / all_events * 1e6, 2),
        cpu_us_per_event_in_load=None
        if load_cpu_s is None or not in_load
        else round(load_cpu_s / in_load * 1e6, 2),
        cpu_share_in_load=None if load_cpu_s is None else round(load_cpu_s / span_s, 4),
        peak_rss_mib=round(max((one.rss_bytes for one in samples), default=0) / 2**20, 1),
        processes=max((one.processes for one in samples), default=0),
    )
