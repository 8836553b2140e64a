"""The client's own error: a schedule replayed against a server of known timing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import BinaryIO, cast

import msgspec

from autotune.domain.client import OwnError
from autotune.domain.slo import Metric, Sla
from autotune.domain.timing import Timing
from autotune.errors import ReplayError
from autotune.replay.frames import Answered
from autotune.replay.job import Job, Replayed
from autotune.replay.parent import replay
from autotune.score.measure import quantile
from autotune.traffic import Due
from autotune.units import show_duration

FIRST_S = 0.05
"""Time to the first token of the built-in server."""
LONGEST_GAP_S = 0.01
TEST_S = 3.0
ERROR_SHARE = 0.01
"""A client that is off by more than this share of the TTFT limit is refused."""
_PROMPT_BYTES = 65_536  # what longer ones are cut to: the server has to read them all
_BYTES_A_TOKEN = 6  # of a prompt given as token ids


def refusal(own: OwnError, sla: Sla) -> str | None:
    """Why this client must not measure this SLA here, and what to change; None when it may."""
    limits_s = [slo.limit_s for slo in sla.slos if slo.metric in (Metric.TTFT, Metric.E2EL)]
    if own.failed:
        return f"{own.failed} of {own.requests} requests failed against the built-in server"
    if not limits_s or own.ttft_error_s <= ERROR_SHARE * min(limits_s):
        return None
    return (
        f"our own client is off by {show_duration(own.ttft_error_s)} at TTFT p99 with {own.rate_rps:.3g} "
        f"requests/s and {own.events_per_s:,.0f} token events/s, allowed "
        f"{show_duration(ERROR_SHARE * min(limits_s))} (1 % of the limit); send fewer streams, leave the "
        f"client more cores than its {own.client.workers}, stop other programs, or send from another machine"
    )


def busiest(due: Sequence[Due], seconds: float = TEST_S) -> tuple[Due, ...]:
    """The part of a schedule of that many seconds with the most output tokens, shifted to begin at 0."""
    ordered = sorted(due, key=lambda one: one.due_s)
    best, tokens, begin = (0, 0), -1, 0
    running = 0
    for end, one in enumerate(ordered):
        running += one.request.output_tokens
        while one.due_s - ordered[begin].due_s > seconds:
            running -= ordered[begin].request.output_tokens
            begin += 1
        if running > tokens:
            best, tokens = (begin, end + 1), running
    part = ordered[best[0] : best[1]]
    return tuple(replace(one, due_s=one.due_s - part[0].due_s, after=None) for one in part)


def selftest(
    due: Sequence[Due], *, workers: int | None = None, seconds: float = TEST_S, cores: str | None = None
) -> OwnError:
    """Replay the busiest seconds of a schedule: its due times, prompt sizes and output lengths.

    Sessions are sent as planned, since the built-in server answers at its own pace. Tokens come so fast that
    an answer takes a third of the time at most: the token rate is that of the whole window, where answers of
    earlier requests are still streaming. `cores` pins the server (taskset's notation). Raises `ReplayError`
    when the client or the server fails.
    """
    part = busiest(due, seconds)
    if not part:
        raise ReplayError("the window holds no request")
    longest = max(one.request.output_tokens for one in part)
    with _server(min(LONGEST_GAP_S, seconds / 3 / longest), cores) as (port, log):
        replayed = _replayed(part, port, workers)
    return _own_error(part, replayed, log, seconds)


def _replayed(part: tuple[Due, ...], port: int, workers: int | None) -> Replayed:
    job = Job(
        url=f"http://127.0.0.1:{port}",
        key="",
        model="known",
        vocabulary=1,
        block_tokens=None,
        seed=0,
        salt="",
        cache_salt="",
        due=tuple(_numbered(number, one) for number, one in enumerate(part)),
        sla=Sla.parse(["ttft_p99=1s"]),
        allowed=(len(part),),
        run_to_end=True,
        drain_s=10.0,
        vllm_fields=False,
        workers=workers,
    )
    *_, last = replay(job)
    if not isinstance(last, Replayed):
        raise ReplayError("the replay client gave no result")
    return last


def _numbered(number: int, one: Due) -> Due:
    """The same request, its prompt as many bytes that begin with its number."""
    size = min(one.request.prompt_tokens * _BYTES_A_TOKEN, _PROMPT_BYTES)
    body = msgspec.json.encode({"prompt": f"{number} {'x' * size}"}).decode()
    return replace(one, index=number, measured=True, request=replace(one.request, body=body, session=None))


@contextmanager
def _server(gap_s: float, cores: str | None) -> Generator[tuple[int, list[Answered]], None, None]:
    """The built-in server's port, and a list that holds what it did once it has ended."""
    command = [sys.executable, "-m", "autotune.replay.known", str(FIRST_S), str(gap_s)]
    log: list[Answered] = []
    with subprocess.Popen(
        ["taskset", "-c", cores, *command] if cores else command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        to_server, from_server = cast("BinaryIO", process.stdin), cast("BinaryIO", process.stdout)
        try:
            port = from_server.readline()
            if not port:
                raise ReplayError("the built-in server did not start")
            yield int(port), log
            to_server.close()
            log += msgspec.msgpack.decode(from_server.read(), type=list[Answered])
        finally:
            process.kill()


def _own_error(part: Sequence[Due], replayed: Replayed, log: list[Answered], seconds: float) -> OwnError:
    truth = {one.index: one for one in log}
    pairs: list[tuple[Timing, Answered]] = [
        (timing, truth[timing.index])
        for timing in replayed.timings
        if timing.finished and timing.index in truth
    ]
    if not pairs:
        raise ReplayError("the built-in server answered nothing")
    events = sum(len(timing.token_ns) for timing, _ in pairs)
    begin, end = min(t.due_ns for t, _ in pairs), max(t.ended_ns for t, _ in pairs)
    return OwnError(
        requests=len(part),
        failed=len(part) - len(pairs),
        seconds=seconds,
        rate_rps=len(part) / max(part[-1].due_s, 1.0),
        events_per_s=events / ((end - begin) / 1e9),
        ttft_p99_s=_p99(timing.ttft_s() or 0.0 for timing, _ in pairs),
        true_ttft_p99_s=_p99((one.first_ns - one.asked_ns) / 1e9 for _, one in pairs),
        send_error_p99_s=_p99((one.asked_ns - timing.due_ns) / 1e9 for timing, one in pairs),
        server_late_p99_s=_p99(one.late_ns / 1e9 for _, one in pairs),
        cpu_s_per_event=replayed.client.cpu_s / events,
        client=replayed.client,
    )


def _p99(values: Generator[float, None, None]) -> float:
    return quantile(sorted(values), 99)
