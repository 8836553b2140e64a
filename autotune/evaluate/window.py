"""One window: cut, replay, wait until idle, measure, judge."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autotune import replay as replaying
from autotune.domain.client import Client, OwnError
from autotune.domain.event import Event, Retried, WindowEnded, WindowProgress, WindowStarted
from autotune.domain.launch import Endpoint
from autotune.domain.outcome import Capacity, Window
from autotune.domain.run import Run
from autotune.domain.timing import Timing
from autotune.domain.workload import Workload
from autotune.engine.contract import Engine
from autotune.engine.metrics import counters, wait_idle
from autotune.engine.process import Owned, Running, members
from autotune.errors import EngineError, ReplayError
from autotune.probe import CpuUse
from autotune.score.bracket import bracket
from autotune.score.client_fault import void_reason
from autotune.score.counts import allowed_bad, expected_values, holds
from autotune.score.measure import measure
from autotune.score.verdict import judge
from autotune.traffic import Due, cut, first_of_search, offered_rps

DRAIN_S = 30.0
WARM_UP = 4
WINDOW_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What every trial of a run is evaluated with.

    `owned` is told of each engine process before anything else happens, `disowned` once it is gone, so that
    a later process can end what this one leaves behind. `quality_text` is what the gate, if it is on, reads.
    """

    run: Run
    engine: Engine
    workload: Workload
    folder: Path
    quality_text: str
    owned: Callable[[Owned], None]
    disowned: Callable[[Owned], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """An engine that answers, and what it is loaded for: the windows of one trial in one phase.

    `folder` takes the stamps of its windows, `window_s` is the least time that a window lasts.
    """

    bench: Bench
    engine: Running
    endpoint: Endpoint
    number: int
    phase: str
    folder: Path
    window_s: float


def own_error(bench: Bench) -> OwnError:
    """What our client adds to the first window of a run, against a server of known timing."""
    load = bench.run.load
    due = _window(bench, load.at or load.start_speed, held_out=False, window_s=load.window_s)
    if not due:
        raise ReplayError(f"{bench.workload.source} leaves no request for a window")
    return replaying.selftest(due, seconds=min(replaying.TEST_S, load.window_s))


def warm_up(bench: Bench, endpoint: Endpoint) -> None:
    """A few unmeasured requests, short to long: late kernels and lazy set-up are paid here.

    They may take what a start may take: a slow engine is one to be measured, not a dead one. Raises
    `EngineError` when none of them is answered.
    """
    shapes = sorted(bench.workload.requests, key=lambda request: request.prompt_tokens)
    step = max((len(shapes) - 1) // (WARM_UP - 1), 1)
    chosen = [shapes[min(position * step, len(shapes) - 1)] for position in range(WARM_UP)]
    due = tuple(
        Due(index=-1 - position, due_s=0.0, request=one, measured=True) for position, one in enumerate(chosen)
    )
    for frame in replaying.replay(_job(bench, endpoint, due, salt="warm-up", warm_up=True)):
        if isinstance(frame, replaying.Replayed) and not any(timing.finished for timing in frame.timings):
            raise EngineError(f"the engine answers no request: {frame.timings[0].error}")


def _job(
    bench: Bench, endpoint: Endpoint, due: tuple[Due, ...], *, salt: str, warm_up: bool = False
) -> replaying.Job:
    outputs = [one.request.output_tokens for one in due if one.measured]
    run, sla = bench.run, bench.run.sla
    return replaying.Job(
        url=endpoint.url,
        key=endpoint.key,
        model=endpoint.model,
        vocabulary=bench.run.model.vocab_size,
        block_tokens=bench.workload.block_tokens,
        seed=run.seed,
        salt=salt,
        cache_salt=secrets.token_hex(8),
        due=due,
        sla=sla,
        allowed=tuple(allowed_bad(slo, expected_values(slo, outputs)) for slo in sla.slos),
        run_to_end=warm_up,
        drain_s=run.start_deadline_s if warm_up else max(DRAIN_S, *(2 * slo.limit_s for slo in sla.slos)),
    )


def replay_window(loaded: Loaded, index: int, speed: float) -> Generator[Event, None, Window]:
    """One valid window: a void one (late client, busy machine) is replayed again, at most twice.

    Raises `ReplayError` when none was valid, `EngineError` when the engine died.
    """
    for attempt in range(1, WINDOW_ATTEMPTS):
        try:
            return (yield from _attempt(loaded, index, speed))
        except ReplayError as error:
            yield Retried(number=loaded.number, reason=error.message, attempt=attempt)
    return (yield from _attempt(loaded, index, speed))


def _attempt(loaded: Loaded, index: int, speed: float) -> Generator[Event, None, Window]:
    """Replay one window and judge it."""
    run, engine, endpoint = loaded.bench.run, loaded.engine, loaded.endpoint
    held_out = loaded.phase == "confirm"
    due = _window(loaded.bench, speed, held_out=held_out, window_s=loaded.window_s)
    if not any(one.measured for one in due):
        raise ReplayError(f"no request falls into a window at {speed:.3g} × the recorded speed")
    rate_rps = offered_rps(due) or speed * (run.held_rate_rps if held_out else run.search_rate_rps)
    planned = sum(one.measured for one in due)
    yield WindowStarted(
        number=loaded.number, index=index, phase=loaded.phase, speed=speed, rate_rps=rate_rps, planned=planned
    )
    before, cpu_before, began = (
        counters(endpoint),
        CpuUse.now(members(engine.owned), run.hardware.cpu.core_ids),
        time.monotonic(),
    )
    job = _job(loaded.bench, endpoint, due, salt=f"{loaded.phase}-{speed:.4g}")
    replayed = None
    for frame in replaying.replay(job):
        if isinstance(frame, replaying.Replayed):
            replayed = frame
        else:
            yield WindowProgress(
                number=loaded.number, index=index, sent=frame.sent, finished=frame.finished, bad=frame.bad,
                allowed=frame.allowed,
            )  # fmt: skip
    cpu = CpuUse.now(members(engine.owned), run.hardware.cpu.core_ids)
    foreign = cpu.foreign_share(cpu_before, elapsed_s=time.monotonic() - began)
    if replayed is None:
        raise ReplayError("the replay client gave no result")
    path = loaded.folder / f"window-{index:02d}.parquet"
    replaying.write_timings(replayed.timings, path)
    if engine.ended():
        raise EngineError(f"the engine died under load (exit {engine.exit_code}): {engine.last_line()}")
    after = wait_idle(engine, endpoint)
    measurement = replace(
        measure(
            replayed.timings,
            sla=run.sla,
            speed=speed,
            rate_rps=rate_rps,
            planned=planned,
            curtailed=replayed.curtailed,
            engine={name: after[name] - before[name] for name in before if name in after},
        ),
        foreign_cpu_share=foreign,
        client=replayed.client,
    )
    _refuse_void(run, replayed.client, foreign, replayed.timings)
    passed = not replayed.curtailed and holds(measurement.counts)
    window = Window(
        index=index,
        phase=loaded.phase,
        speed=speed,
        passed=passed,
        measurement=measurement,
        verdict=judge(measurement, confidence=run.confidence, design_effect=run.design_effect),
        timings=str(path.relative_to(loaded.bench.folder)),
    )
    yield WindowEnded(number=loaded.number, window=window)
    return window


def _window(bench: Bench, speed: float, *, held_out: bool, window_s: float) -> tuple[Due, ...]:
    run, requests = bench.run, bench.workload.requests
    return cut(
        requests,
        first=run.holdout if held_out else first_of_search(len(requests)),
        end=len(requests) if held_out else run.holdout,
        speed=speed,
        count=run.load.window_requests,
        at_least_s=window_s,
        at_most_s=window_s if held_out else run.load.max_window_s,
        lead_in_s=run.load.lead_in_s,
    )


def _refuse_void(run: Run, client: Client, foreign: float | None, timings: Sequence[Timing]) -> None:
    """Raise `ReplayError` for a window that says more of this machine than of the configuration."""
    if (reason := void_reason(client, run.sla, timings)) is not None:
        raise ReplayError(reason)
    allowed = run.load.max_foreign_cpu
    if run.engine.device == "cpu" and foreign is not None and foreign > allowed:
        raise ReplayError(
            f"other programs took {foreign:.0%} of the processor during a window, allowed {allowed:.0%}"
        )


def capacity(windows: Sequence[Window], recorded_rps: float) -> Capacity:
    """The bracket that these windows leave, as rates.

    Rates are multiples of the slice's mean rate: what one short window was offered depends on how busy the
    part of it is that fits.
    """
    found = bracket((one.speed, one.passed) for one in windows)
    best = next((one for one in windows if one.passed and one.speed == found.low), None)
    return Capacity(
        low_speed=found.low,
        high_speed=found.high,
        low_rps=None if found.low is None else found.low * recorded_rps,
        high_rps=None if found.high is None else found.high * recorded_rps,
        output_tokens_per_s=best.measurement.output_tokens_per_s if best else None,
    )
