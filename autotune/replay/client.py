"""The measuring process: sends on time, stamps raw chunks, and parses when a request is over.

Started as `python -m autotune.replay.client`: a job comes in on standard input, frames go out on
standard output. It shares nothing with the tuner, so that neither the live view nor a journal's fsync
can make it late. httpx's own transport is clean up to some 3,000 events/s on one core and collapses
above 6,000; over aiohttp's connector it is clean to 9,000 or more (docs/adr/0005).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import signal
import sys
import time
from dataclasses import dataclass, field

import aiohttp
import httpx
import httpx_aiohttp
import msgspec
import uvloop

from autotune.domain.timing import Timing
from autotune.openai import PATH, completion_body, read_stream
from autotune.replay.job import Job, Progress, Replayed, write_frame
from autotune.score.counts import judged
from autotune.score.measure import quantile
from autotune.traffic import Due, prompt

HEAD_START_S = 0.2
KEEP_ALIVE_S = 4.0
"""Below the 5 s after which vLLM (uvicorn) closes an idle connection: a request must not meet that moment."""
TICK_S = 0.01
PROGRESS_S = 0.25
PRIORITY = -10
"""Nice value where it is permitted: an engine on the same cores must not make its own clock late."""
_PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class _Flight:
    """One request while it is on its way."""

    due: Due
    due_ns: int
    sent_ns: int | None = None
    chunks: list[tuple[int, bytes]] = field(default_factory=list)
    timing: Timing | None = None
    bad: tuple[int, ...] | None = None  # of each objective, once the request has ended

    def close(self, *, error: str | None = None, cancelled: bool = False) -> None:
        """Parse what arrived and fix the outcome; the first call wins."""
        if self.timing is not None:
            return
        answer = read_stream(self.chunks, self.due.request.output_tokens)
        reason = error or answer.error
        self.timing = Timing(
            index=self.due.index,
            due_ns=self.due_ns,
            sent_ns=self.sent_ns,
            token_ns=answer.token_ns,
            prompt_tokens=self.due.request.prompt_tokens,
            output_tokens=self.due.request.output_tokens,
            ended_ns=time.perf_counter_ns(),
            finished=reason is None and not cancelled,
            cancelled=cancelled,
            error=error or "cancelled" if cancelled else reason,
        )

    def so_far(self, now_ns: int) -> Timing:
        """The final timing, or what is certain now: the first chunk holds the first token.

        A request that waits past its limit is bad already; waiting on would only cost time.
        """
        return self.timing or Timing(
            index=self.due.index,
            due_ns=self.due_ns,
            sent_ns=self.sent_ns,
            token_ns=(self.chunks[0][0],) if self.chunks else (),
            prompt_tokens=self.due.request.prompt_tokens,
            output_tokens=self.due.request.output_tokens,
            ended_ns=now_ns,
            finished=False,
            cancelled=True,
        )


async def _send(client: httpx.AsyncClient, flight: _Flight, body: bytes) -> None:
    """Stream one request into its flight; every way of failing is an outcome, not an exception."""
    flight.sent_ns = time.perf_counter_ns()
    stamp, keep = time.perf_counter_ns, flight.chunks.append
    try:
        async with client.stream("POST", PATH, content=body) as response:
            if response.status_code != httpx.codes.OK:
                text = (await response.aread())[:200].decode(errors="replace")
                flight.close(error=f"HTTP {response.status_code}: {text}")
                return
            async for chunk in response.aiter_raw():
                keep((stamp(), chunk))
        flight.close()
    except (httpx.HTTPError, aiohttp.ClientError, OSError) as reason:
        flight.close(error=f"{type(reason).__name__}: {reason}")


async def _run(job: Job) -> None:
    bodies = [
        completion_body(
            model=job.model,
            prompt=prompt(
                due.request,
                due.index,
                block_tokens=job.block_tokens,
                vocabulary=job.vocabulary,
                seed=job.seed,
                salt=job.salt,
            ),
            output_tokens=due.request.output_tokens,
            cache_salt=job.cache_salt,
        )
        for due in job.due
    ]
    # limit=0 is aiohttp's "no limit"; its default of 100 would queue requests inside our own client.
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S))
    headers = {"authorization": f"Bearer {job.key}", "content-type": "application/json"}
    async with httpx.AsyncClient(
        base_url=job.url,
        headers=headers,
        timeout=None,  # noqa: S113  the window's own deadline ends a request
        trust_env=False,
        transport=httpx_aiohttp.AiohttpTransport(client=session),
    ) as client:
        gc.collect()
        gc.freeze()
        gc.disable()
        flights, curtailed, lags = await _replay(job, client, bodies)
    timings = tuple(flight.timing for flight in flights if flight.due.measured and flight.timing)
    write_frame(
        sys.stdout.buffer,
        Replayed(
            timings=timings, curtailed=curtailed, loop_lag_p99_s=quantile(sorted(lags), 99) if lags else 0.0
        ),
    )


async def _replay(
    job: Job, client: httpx.AsyncClient, bodies: list[bytes]
) -> tuple[list[_Flight], bool, list[float]]:
    loop = asyncio.get_running_loop()
    start_ns, start = time.perf_counter_ns() + int(HEAD_START_S * 1e9), loop.time() + HEAD_START_S
    flights: list[_Flight] = []
    tasks: list[asyncio.Task[None]] = []

    def release(due: Due, body: bytes) -> None:
        flight = _Flight(due=due, due_ns=start_ns + int(due.due_s * 1e9))
        while time.perf_counter_ns() < flight.due_ns:
            pass  # uvloop's timers count whole milliseconds: up to one too early
        flights.append(flight)
        tasks.append(loop.create_task(_send(client, flight, body)))

    timers = [
        loop.call_at(start + due.due_s, release, due, body) for due, body in zip(job.due, bodies, strict=True)
    ]
    give_up = start + job.due[-1].due_s + job.drain_s
    lags: list[float] = []
    curtailed, told = False, 0.0
    while len(tasks) < len(timers) or not all(task.done() for task in tasks):
        before = loop.time()
        await asyncio.sleep(TICK_S)
        lags.append(loop.time() - before - TICK_S)
        if loop.time() - told < PROGRESS_S and loop.time() < give_up:
            continue
        told = loop.time()
        bad = _bad_so_far(job, flights)
        _tell(job, flights, bad)
        curtailed = not job.run_to_end and any(
            n > allowed for n, allowed in zip(bad, job.allowed, strict=True)
        )
        if curtailed or told >= give_up:
            break
    for timer in timers:
        timer.cancel()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    _close(flights, curtailed=curtailed)
    _tell(job, flights, _bad_so_far(job, flights))
    return flights, curtailed, lags


def _close(flights: list[_Flight], *, curtailed: bool) -> None:
    """Fix what is known of requests that are still on their way."""
    for flight in flights:
        if curtailed:
            flight.close(cancelled=True)
        elif flight.chunks:  # it streams: what it has not done yet is unknown
            flight.close(cancelled=True, error="still running when the window closed")
        else:
            flight.close(error="timed out")


def _bad_so_far(job: Job, flights: list[_Flight]) -> list[int]:
    now_ns = time.perf_counter_ns()
    totals = [0] * len(job.sla.slos)
    for flight in flights:
        if flight.due.measured:
            bad = flight.bad or tuple(judged(slo, flight.so_far(now_ns))[1] for slo in job.sla.slos)
            if flight.timing is not None:
                flight.bad = bad
            totals = [total + more for total, more in zip(totals, bad, strict=True)]
    return totals


def _tell(job: Job, flights: list[_Flight], bad: list[int]) -> None:
    """Progress with the objective that is nearest to its end."""
    measured = [flight for flight in flights if flight.due.measured]
    finished = sum(flight.timing is not None and flight.timing.finished for flight in measured)
    worst = max(zip(bad, job.allowed, strict=True), key=lambda pair: pair[0] / (pair[1] + 1))
    write_frame(
        sys.stdout.buffer,
        Progress(sent=len(measured), finished=finished, bad=worst[0], allowed=worst[1]),
    )


def main() -> int:
    """Read a job, replay it, write frames; dies with its parent, even one that is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the tuner's to handle
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Job)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(job))
    return 0


if __name__ == "__main__":
    sys.exit(main())
