"""`doctor`: what this machine offers and lacks, and what that means for a run."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator

import msgspec
from rich.console import Console
from rich.text import Text

from autotune.cli.settle import DEFAULT_PORTS, gpu_indexes
from autotune.domain.client import OwnError
from autotune.domain.workload import Request
from autotune.errors import ExitCode, InputError
from autotune.probe import Finding, findings
from autotune.replay import selftest
from autotune.replay.selftest import ERROR_SHARE, TEST_S
from autotune.score.client_fault import LATE_S
from autotune.traffic import Due
from autotune.units import show_duration

RATE_RPS = 100.0
MAX_RATE_RPS = 10_000
BUSY_S = 0.005
STYLES = {"ok": "green", "warn": "yellow", "bad": "red"}


def examine(engine_python: str | None, gpus: str | None, *, as_json: bool) -> int:
    """Print the findings; 0 when nothing stands in the way of a run, else 3."""
    return _show(findings(engine_python=engine_python, gpus=gpu_indexes(gpus), ports=DEFAULT_PORTS), as_json)


def examine_client(rate_rps: float, *, as_json: bool) -> int:
    """Print how far our own client is off at this request rate; 0 when it measures at all, else 3.

    Raises `InputError` for a rate that is none.
    """
    if not 0 < rate_rps <= MAX_RATE_RPS:
        raise InputError(
            f"--rate {rate_rps:g} is not between 0 and {MAX_RATE_RPS:,} requests/s",
            hint=f"for example --rate {RATE_RPS:g}, or leave it out",
        )
    own = selftest(poisson(rate_rps))
    if as_json:
        sys.stdout.write(msgspec.json.encode({"client": own}).decode() + "\n")
        return ExitCode.SETUP if own.failed else ExitCode.FOUND
    return _show(_client(own), as_json=False)


def poisson(rate_rps: float, *, seed: int = 0) -> tuple[Due, ...]:
    """Three seconds of requests of 64 tokens, drawn once."""
    draw = random.Random(seed)  # noqa: S311  a load, not a secret
    due_s, due = 0.0, [Due(index=0, due_s=0.0, request=_request(0.0), measured=True)]
    while (due_s := due_s + draw.expovariate(rate_rps)) < TEST_S:
        due.append(Due(index=len(due), due_s=due_s, request=_request(due_s), measured=True))
    return tuple(due)


def _request(offset_s: float) -> Request:
    return Request(offset_s=offset_s, prompt_tokens=256, output_tokens=64)


def _client(own: OwnError) -> Iterator[Finding]:
    load = f"{own.rate_rps:.3g} requests/s, {own.events_per_s:,.0f} token events/s"
    if own.failed:
        yield Finding(
            status="bad",
            subject="client",
            meaning=f"{own.failed} of {own.requests} requests failed at {load}",
        )
    fit = show_duration(max(own.ttft_error_s / ERROR_SHARE, 0.001))
    yield Finding(
        status="ok" if own.ttft_error_s <= LATE_S else "warn",
        subject="client",
        meaning=f"at {load} TTFT p99 is off by {show_duration(own.ttft_error_s)} "
        f"({own.ttft_p99_s * 1e3:.1f} ms for {own.true_ttft_p99_s * 1e3:.1f} ms): good for limits from {fit}",
    )
    yield Finding(
        status="ok" if own.send_error_p99_s <= LATE_S else "warn",
        subject="sends",
        meaning=f"{show_duration(own.send_error_p99_s)} after their due time at p99; "
        f"{own.cpu_s_per_event * 1e6:.0f} µs of CPU a token event, "
        f"{own.client.workers} worker {'process' if own.client.workers == 1 else 'processes'}",
    )
    if own.server_late_p99_s > BUSY_S:
        late = show_duration(own.server_late_p99_s)
        yield Finding(
            status="warn",
            subject="machine",
            meaning=f"the built-in server was late by {late} itself: other programs are at work",
        )


def _show(all_found: Iterable[Finding], as_json: bool) -> int:
    found = tuple(all_found)
    if as_json:
        sys.stdout.write(msgspec.json.encode({"findings": found}).decode() + "\n")
    else:
        console = Console(highlight=False)
        for finding in found:
            status = Text(f"{finding.status:<5}", style=STYLES[finding.status])
            console.print(status + Text(f"{finding.subject}: {finding.meaning}"))
    return ExitCode.SETUP if any(finding.status == "bad" for finding in found) else ExitCode.FOUND
