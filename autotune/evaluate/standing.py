"""Recorded traffic against a server that somebody else runs: what it carries, as a verdict."""

from __future__ import annotations

import secrets
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

from autotune import replay as replaying
from autotune.domain.launch import Endpoint
from autotune.domain.measurement import Measurement, Verdict
from autotune.domain.slo import Sla
from autotune.domain.timing import Timing
from autotune.domain.workload import Workload
from autotune.engine.metrics import counters
from autotune.errors import ReplayError
from autotune.score.client_fault import void_reason
from autotune.score.counts import allowed_bad, expected_values, holds
from autotune.score.measure import measure
from autotune.score.verdict import judge
from autotune.traffic import Due, offered_rps

CONFIDENCE = 0.95
DESIGN_EFFECT = 3.0
DRAIN_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A server that stands already, and the traffic it gets.

    `vocabulary` bounds the token ids of prompts of which only lengths were recorded. `vllm_fields` is False
    for a server that refuses vLLM's additions to the protocol, `natural_stops` leaves the end of an answer to
    the model.
    """

    endpoint: Endpoint
    workload: Workload
    due: tuple[Due, ...]
    sla: Sla
    speed: float
    seed: int
    vocabulary: int
    natural_stops: bool = False
    vllm_fields: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Stood:
    """What a replay against a standing server showed.

    `exact_prompts` and `exact_outputs` count finished requests whose lengths, as the server says them, are
    the recorded ones; `prefix_share` is the share of prompt tokens that its prefix cache answered, None when
    it does not say. `void` says why our own client spoiled it; None when it did not.
    """

    measurement: Measurement
    verdict: Verdict
    timings: tuple[Timing, ...]
    held: bool
    exact_prompts: int
    exact_outputs: int
    prefix_share: float | None
    void: str | None


def replay_standing(standing: Standing) -> Generator[replaying.Progress, None, Stood]:
    """Replay all of it to its end and judge it.

    Raises `ReplayError` when our own client died or fell silent.
    """
    due, sla = standing.due, standing.sla
    before = counters(standing.endpoint)
    replayed = None
    for frame in replaying.replay(_job(standing)):
        if isinstance(frame, replaying.Progress):
            yield frame
        else:
            replayed = frame
    if replayed is None:
        raise ReplayError("the replay client gave no result")
    after = counters(standing.endpoint)
    engine = {name: after[name] - before[name] for name in before if name in after}
    measurement = replace(
        measure(
            replayed.timings,
            sla=sla,
            speed=standing.speed,
            rate_rps=offered_rps(due) or 0.0,
            planned=sum(one.measured for one in due),
            curtailed=False,
            engine=engine,
        ),
        client=replayed.client,
    )
    done = [timing for timing in replayed.timings if timing.finished]
    queries = engine.get("prefix_cache_queries", 0.0)
    return Stood(
        measurement=measurement,
        verdict=judge(measurement, confidence=CONFIDENCE, design_effect=DESIGN_EFFECT),
        timings=replayed.timings,
        held=holds(measurement.counts),
        exact_prompts=sum(timing.seen_prompt_tokens == timing.prompt_tokens for timing in done),
        exact_outputs=sum(len(timing.token_ns) == timing.output_tokens for timing in done),
        prefix_share=engine["prefix_cache_hits"] / queries if queries else None,
        void=void_reason(replayed.client, sla, replayed.timings),
    )


def _job(standing: Standing) -> replaying.Job:
    outputs: Sequence[int] = [one.request.output_tokens for one in standing.due if one.measured]
    slos = standing.sla.slos
    return replaying.Job(
        url=standing.endpoint.url,
        key=standing.endpoint.key,
        model=standing.endpoint.model,
        vocabulary=standing.vocabulary,
        block_tokens=standing.workload.block_tokens,
        seed=standing.seed,
        salt=f"replay-{standing.speed:.4g}",
        cache_salt=secrets.token_hex(8),
        due=standing.due,
        sla=standing.sla,
        allowed=tuple(allowed_bad(slo, expected_values(slo, outputs)) for slo in slos),
        run_to_end=True,
        drain_s=max(DRAIN_S, *(2 * slo.limit_s for slo in slos)),
        natural_stops=standing.natural_stops,
        vllm_fields=standing.vllm_fields,
    )
