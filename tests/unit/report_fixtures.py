"""Runs and results by hand, for the tests of the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autotune.domain.hardware import Cpu, Gpu, Hardware, ModelProfile
from autotune.domain.launch import EngineSpec, StartFacts
from autotune.domain.measurement import Count, Judgement, Measurement, State, Verdict
from autotune.domain.outcome import (
    Capacity,
    Confirmation,
    Measured,
    Outcome,
    Quality,
    Result,
    Trial,
    Window,
)
from autotune.domain.run import Load, Run
from autotune.domain.slo import Sla, Slo
from autotune.domain.space import Exclusion, Parameter, SearchSpace, Value

TTFT = Slo.parse("ttft_p99=500ms")
RECORDED_RPS = 2.0

SPACE = SearchSpace(
    name="vllm-cuda",
    engine="vllm",
    device="cuda",
    versions=">=0.26",
    parameters=(
        Parameter(
            name="max_num_seqs",
            levels=(128, 256, 512, 1024),
            default=256,
            ordered=True,
            why="Sequences that run in one step.",
        ),
        Parameter(
            name="max_num_batched_tokens",
            levels=(2048, 4096, 8192, 16384),
            default=8192,
            ordered=True,
            why="Token budget of one step: smaller steps let a waiting prompt in sooner.",
        ),
        Parameter(
            name="kv_cache_dtype",
            levels=("auto", "fp8"),
            default="auto",
            ordered=False,
            why="Half the bytes for each cached token, so twice the sequences fit.",
        ),
        Parameter(name="async_scheduling", levels=(True, False), default=True, ordered=False),
    ),
    rules=(),
    presets=(),
    fixed={},
)

RUN = Run(
    id="2026-03-02-qwen-h200",
    created_at="2026-03-02T09:14:07.311+00:00",
    tool_version="0.1.0",
    sla=Sla(slos=(TTFT,)),
    engine=EngineSpec(name="vllm", version="0.26.0", device="cuda", command=("vllm",)),
    hardware=Hardware(
        cpu=Cpu(
            name="Xeon", cores=16, core_ids=(0,), memory_bytes=2**37, available_bytes=2**37, isa=("avx512f",)
        ),
        gpus=(
            Gpu(
                index=0,
                uuid="GPU-0",
                name="NVIDIA H200",
                memory_bytes=141 * 2**30,
                free_bytes=140 * 2**30,
                compute_capability=(9, 0),
            ),
        ),
        driver="570.86",
    ),
    model=ModelProfile(
        name="Qwen2.5-7B-Instruct",
        path="Qwen/Qwen2.5-7B-Instruct",
        architecture="Qwen2ForCausalLM",
        dtype="bfloat16",
        quantization=None,
        parameters=7_615_616_512,
        weights_bytes=15_231_233_024,
        layers=28,
        hidden_size=3584,
        heads=28,
        kv_heads=4,
        head_size=128,
        vocab_size=152_064,
        max_position=32_768,
    ),
    variants={},
    workload_path="workloads/support-chat.jsonl",
    workload_sha256="9f2c61d0b7e85a4431c0ffee12345678",
    workload_requests=12_000,
    workload_rate_rps=RECORDED_RPS,
    holdout=9_000,
    search_rate_rps=RECORDED_RPS,
    held_rate_rps=RECORDED_RPS,
    space=SPACE,
    exclusions=(
        Exclusion(parameter="max_num_seqs", level=2048, reason="more than max_num_batched_tokens allows"),
    ),
    load=Load(
        window_requests=600,
        window_s=60.0,
        lead_in_s=15.0,
        max_windows=8,
        resolution=1.1,
        start_speed=0.5,
        min_speed=0.1,
        max_speed=64.0,
        at=None,
    ),
    quality_limit=0.01,
    budget_s=7200.0,
    trials=24,
    seed=7,
    ports=(8100, 8199),
    start_deadline_s=600.0,
)
FIXED_RATE = replace(RUN, load=replace(RUN.load, at=1.0))
UNEVEN = replace(RUN, search_rate_rps=2.5, held_rate_rps=1.5)
"""A recording whose last part is quieter than the rest; windows are still offered 2.0 × their speed."""


def window(
    speed: float,
    *,
    passed: bool,
    trial: int = 0,
    n: int = 600,
    bad: int | None = None,
    value_s: float | None = 0.3,
    state: State = State.UNDECIDED,
    needed: int | None = 1_300,
    phase: str = "climb",
    slo: Slo = TTFT,
    requests: int | None = None,
) -> Window:
    """A window at `speed` × recorded; by default 2 of 600 are bad when it passed, 31 when it did not.

    `requests` is where the `n` values come from, when there are several of a request.
    """
    late = (2 if passed else 31) if bad is None else bad
    count = Count(slo=slo, n=n, bad=late, requests=requests or n, value_s=value_s)
    judgement = Judgement(
        count=count, state=state, lower_share=0.0002, upper_share=0.0147, margin=-0.47, needed=needed
    )
    return Window(
        index=0,
        phase=phase,
        speed=speed,
        passed=passed,
        measurement=Measurement(
            speed=speed,
            rate_rps=speed * RECORDED_RPS,
            planned=n,
            sent=n,
            finished=n,
            failed=0,
            curtailed=False,
            duration_s=60.0,
            served_rps=speed * RECORDED_RPS,
            output_tokens_per_s=400 * speed,
            send_lag_p99_s=0.001,
            counts=(count,),
            quantiles={},
            engine={},
            errors={},
        ),
        verdict=Verdict(state=state, confidence=0.95, design_effect=3.0, judgements=(judgement,)),
        timings=f"trials/{trial:04d}/{phase}-{speed:g}.parquet",
    )


def measured(
    low: float | None, high: float | None, *, trial: int = 0, quality: Quality | None = None
) -> Measured:
    """A climb that ended with this bracket of speeds."""
    windows = [
        *([window(low, passed=True, trial=trial)] if low else []),
        *([window(high, passed=False, trial=trial, value_s=0.9)] if high else []),
    ]
    return Measured(
        capacity=Capacity(
            low_speed=low,
            high_speed=high,
            low_rps=low * RECORDED_RPS if low else None,
            high_rps=high * RECORDED_RPS if high else None,
            output_tokens_per_s=400 * low if low else None,
        ),
        windows=tuple(windows),
        quality=quality,
        facts=StartFacts(start_s=42.0),
    )


def trial(number: int, outcome: Outcome, *, origin: str = "", **changed: Value) -> Trial:
    """A trial whose settings differ from the defaults by `changed`."""
    point: Mapping[str, Value] = {**SPACE.default_point(), **changed}
    return Trial(
        number=number,
        point=point,
        origin=origin or ("tpe" if number else "default"),
        outcome=outcome,
        started_at="2026-03-02T09:20:00.000+00:00",
        seconds=231.0,
    )


def confirmation(
    number: int, *windows: Window, speed: float | None = None, note: str | None = None, run: Run = RUN
) -> Confirmation:
    """A confirmation of a trial; `speed` is what it held at, with its rate by the held-out slice of `run`."""
    return Confirmation(
        trial=number,
        default=number == 0,
        speed=speed,
        rate_rps=None if speed is None else speed * run.held_rate_rps,
        windows=tuple(replace(window, phase="confirm") for window in windows),
        note=note,
    )


def result(
    *trials: Trial,
    winner: int | None,
    confirmations: tuple[Confirmation, ...] = (),
    reason: str = "24 trials were asked for",
) -> Result:
    """All of them together."""
    return Result(
        trials=trials,
        winner=winner,
        confirmations=confirmations,
        reason=reason,
        seconds=6_420.0,
    )
