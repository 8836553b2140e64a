"""One trial: plan, launch, warm up, gate, climb, stop. A generator of events that returns the outcome."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path

import msgspec

from autotune.domain.event import (
    EngineLaunched,
    EngineReady,
    EngineStopped,
    EngineWaiting,
    Event,
    QualityMeasured,
)
from autotune.domain.hardware import Gpu
from autotune.domain.launch import Endpoint, LaunchPlan
from autotune.domain.outcome import Cause, Faulted, Infeasible, Measured, Outcome, Quality, Stopped, Window
from autotune.domain.run import Run
from autotune.domain.space import Point, world_size
from autotune.engine.contract import Engine
from autotune.engine.process import Running, launch
from autotune.errors import EngineError, ReplayError
from autotune.evaluate.window import Bench, Loaded, capacity, replay_window, warm_up
from autotune.gate import measure_quality
from autotune.probe import free_gpu_bytes, free_port
from autotune.score.climb import climb
from autotune.units import show_bytes

MEMORY_SLACK_BYTES = 512 * 2**20
MEMORY_PATIENCE_S = 30.0

Steps = Generator[Event, None, Outcome]


def evaluate(
    bench: Bench,
    point: Point,
    *,
    number: int,
    qualities: Mapping[str, Quality],
    incumbent: float | None,
    deadline: Callable[[], float],
) -> Steps:
    """Launch the point and find its capacity.

    `incumbent` is the best speed so far, `deadline` the seconds left for load. Findings are values; what
    tells nothing of the point comes back as `Faulted`.
    """
    run = bench.run
    folder = _folder(bench.folder / "trials" / f"{number:04d}")
    try:
        with _started(bench, point, folder=folder) as engine:
            ready = yield from _wait(bench, engine, number)
            if isinstance(ready, Infeasible):
                return ready
            loaded = Loaded(
                bench=bench,
                engine=engine,
                endpoint=ready,
                number=number,
                phase="fixed" if run.load.at else "climb",
                folder=folder,
                window_s=run.load.window_s,
            )
            try:
                outcome = yield from _load(loaded, point, qualities, incumbent, deadline)
            except EngineError:
                if engine.ended() and (found := bench.engine.diagnose(engine.exit_code, engine.log_text())):
                    return found
                raise
    except (EngineError, ReplayError) as error:
        return Faulted(reason=error.message, engine=isinstance(error, EngineError))
    if engine.gone:
        yield EngineStopped(number=number, seconds=engine.gone.seconds, forced=engine.gone.forced)
    return outcome


def confirm(
    bench: Bench,
    point: Point,
    *,
    number: int,
    speeds: Sequence[float],
    window_s: float,
    deadline: Callable[[], float],
) -> Generator[Event, None, tuple[tuple[Window, ...], str | None]]:
    """Launch the point afresh and replay the held-out slice at these speeds until one holds.

    The windows in order, and why there are fewer than it took (None when there are not): a window that failed
    stays a failure whatever happens after it.
    """
    windows: list[Window] = []
    folder = _folder(bench.folder / "confirm" / f"{number:04d}")
    try:
        with _started(bench, point, folder=folder) as engine:
            ready = yield from _wait(bench, engine, number)
            if isinstance(ready, Infeasible):
                return (), f"trial {number} does not start again: {ready.evidence}"
            warm_up(bench, ready)
            loaded = Loaded(
                bench=bench,
                engine=engine,
                endpoint=ready,
                number=number,
                phase="confirm",
                folder=folder,
                window_s=window_s,
            )
            for index, speed in enumerate(speeds):
                window = yield from replay_window(loaded, index, speed)
                windows.append(window)
                if window.passed:
                    break
                if deadline() <= 0:
                    return tuple(windows), "the budget ended"
    except (EngineError, ReplayError) as error:
        return tuple(windows), error.message
    if engine.gone:
        yield EngineStopped(number=number, seconds=engine.gone.seconds, forced=engine.gone.forced)
    return tuple(windows), None


def _folder(folder: Path) -> Path:
    """Make it; what an interrupted or faulted attempt left there is kept beside it."""
    if folder.exists():
        attempt = 1
        while (kept := folder.with_name(f"{folder.name}.attempt-{attempt}")).exists():
            attempt += 1
        folder.rename(kept)
    folder.mkdir(parents=True)
    return folder


def plan_of(run: Run, engine: Engine, point: Point, port: int) -> LaunchPlan:
    """The launch of a point on a port."""
    return engine.plan(
        point,
        space=run.space,
        spec=run.engine,
        model=run.model,
        variants=run.variants,
        hardware=run.hardware,
        port=port,
        start_deadline_s=run.start_deadline_s,
    )


@contextlib.contextmanager
def _started(bench: Bench, point: Point, *, folder: Path) -> Generator[Running, None, None]:
    """An engine that is known to the journal before it can do anything, and gone at the end."""
    plan = plan_of(bench.run, bench.engine, point, free_port(bench.run.ports))
    _wait_for_memory(bench.run.hardware.gpus[: world_size({**bench.run.space.fixed, **point})])
    (folder / "plan.json").write_bytes(msgspec.json.format(msgspec.json.encode(plan)))
    log = folder / "engine.log"
    engine = launch(plan, key=secrets.token_urlsafe(24), log=log, announce=bench.owned)
    try:
        with engine:
            yield engine
    finally:
        if engine.gone:
            bench.disowned(engine.owned)


def _wait_for_memory(gpus: Sequence[Gpu]) -> None:
    """GPU memory returns some seconds after the last process has gone; the next start needs it.

    Raises `ReplayError` when it does not: a stranger holds it, which says nothing of the point.
    """
    begun = time.monotonic()
    while True:
        free = free_gpu_bytes(gpus)
        held = max((gpu.free_bytes - now for gpu, now in zip(gpus, free, strict=True)), default=0)
        if held < MEMORY_SLACK_BYTES:
            return
        if time.monotonic() - begun > MEMORY_PATIENCE_S:
            raise ReplayError(f"another program holds {show_bytes(held)} of GPU memory that was free before")
        time.sleep(0.2)


def _wait(bench: Bench, engine: Running, number: int) -> Generator[Event, None, Endpoint | Infeasible]:
    """Until the engine answers; a start that fails is diagnosed, a start that hangs is a finding."""
    yield EngineLaunched(
        number=number,
        session=engine.owned.session,
        port=engine.plan.port,
        log=str(engine.log.relative_to(bench.folder)),
    )
    begun = time.monotonic()
    told = 0.0
    for waited_s in engine.wait_ready():
        if waited_s - told >= 1:
            told = waited_s
            yield EngineWaiting(number=number, waited_s=waited_s, line=engine.last_line())
    start_s = time.monotonic() - begun
    if engine.ended():
        engine.stop()
        log = engine.log_text()
        if "ddress already in use" in log:
            raise ReplayError(
                f"port {engine.plan.port} was taken by another program while the engine started"
            )
        if found := bench.engine.diagnose(engine.exit_code, log):
            return found
        raise EngineError(f"the engine ended with {engine.exit_code} while starting: {engine.last_line()}")
    if not engine.answered:
        engine.stop()
        return Infeasible(
            cause=Cause.HANG,
            evidence=f"no answer in {engine.plan.start_deadline_s:.0f} s; last line: {engine.last_line()}",
        )
    facts = bench.engine.facts(engine.log_text(), start_s=start_s)
    yield EngineReady(number=number, facts=facts)
    longest = bench.workload.longest_tokens
    if facts.kv_tokens is not None and facts.kv_tokens < longest:
        return Infeasible(
            cause=Cause.KV_TOO_SMALL,
            evidence=f"{facts.kv_tokens:,} KV tokens cannot hold the workload's longest request, {longest:,}",
        )
    return Endpoint(url=engine.url, key=engine.key, model=engine.plan.served_model, facts=facts)


def _load(
    loaded: Loaded,
    point: Point,
    qualities: Mapping[str, Quality],
    incumbent: float | None,
    deadline: Callable[[], float],
) -> Steps:
    """Gate, warm up, climb."""
    bench, endpoint = loaded.bench, loaded.endpoint
    quality = None
    limit = bench.run.quality_limit
    if limit is not None:
        quality = yield from _gate(loaded, point, qualities, limit)
        if quality is None:
            return Infeasible(
                cause=Cause.QUALITY, evidence="no trial measured the default precision to compare with"
            )
        if not quality.passed:
            return refused(quality)
    warm_up(bench, endpoint)
    windows: list[Window] = []
    steps = climb(bench.run.load, incumbent)
    speed = next(steps)
    while True:
        if deadline() <= 0:
            if not any(window.passed for window in windows):
                return Stopped(reason="the budget ended before a window held", windows=tuple(windows))
            break
        window = yield from replay_window(loaded, len(windows), speed)
        windows.append(window)
        try:
            speed = steps.send(window.passed)
        except StopIteration:
            break
    return Measured(
        capacity=capacity(windows, bench.run.search_rate_rps),
        windows=tuple(windows),
        quality=quality,
        facts=endpoint.facts,
    )


def refused(quality: Quality) -> Infeasible:
    """The finding that a precision lost the quality gate."""
    return Infeasible(
        cause=Cause.QUALITY,
        evidence=f"perplexity {quality.perplexity:.2f} is {quality.increase:+.1%} against "
        f"{quality.reference:.2f} of the default precision over {quality.tokens:,} tokens; "
        f"the limit is +{quality.limit:.1%}",
        quality=quality,
    )


def _gate(
    loaded: Loaded, point: Point, qualities: Mapping[str, Quality], limit: float
) -> Generator[Event, None, Quality | None]:
    """The quality of this precision, remembered or measured; None without a reference to compare with."""
    bench, number = loaded.bench, loaded.number
    precision = bench.engine.precision(point)
    known = qualities.get(precision)
    if known is not None:
        yield QualityMeasured(number=number, quality=known, cached=True)
        return known
    base = bench.engine.precision(bench.run.space.default_point())
    reference = qualities.get(base)
    if reference is None and precision != base:
        return None
    quality = measure_quality(
        loaded.endpoint,
        bench.quality_text,
        precision=precision,
        reference=reference.perplexity if reference else None,
        limit=limit,
        max_tokens=bench.run.model.max_position,
    )
    yield QualityMeasured(number=number, quality=quality, cached=False)
    return quality
