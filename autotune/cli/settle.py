"""Flags over `autotune.yaml` over defaults, settled once into one immutable `Run`."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path

from autotune import __version__
from autotune.config import ConfigFile, LoadFile
from autotune.domain.hardware import ModelProfile
from autotune.domain.launch import EngineSpec
from autotune.domain.run import Load, Run
from autotune.domain.slo import Sla
from autotune.domain.space import SearchSpace
from autotune.domain.workload import Request, Workload
from autotune.engine.vllm import START_S
from autotune.errors import InputError, SetupError
from autotune.formats.space_yaml import load_space
from autotune.formats.workloads import read_workload
from autotune.journal import check_folder, now
from autotune.probe import engine as probe_engine
from autotune.probe import free_port, hardware, model_profile
from autotune.shipped import shipped
from autotune.space.known import refuse_fixed
from autotune.space.narrow import narrow
from autotune.traffic import first_of_search, holdout, mean_rate_rps
from autotune.units import parse_duration, parse_share, show_duration

DEFAULT_TRIALS = 30
MOST_TRIALS = 10_000
SEED_BITS = 63
SLOWEST_AT = 0.001
DEFAULT_PORTS = (8100, 8199)
START_DEADLINE_S = 600.0
LOAD = Load(
    window_requests=500,
    window_s=30.0,
    max_window_s=90.0,
    lead_in_s=10.0,
    max_windows=8,
    resolution=1.08,
    start_speed=1.0,
    min_speed=0.05,
    max_speed=1000.0,
    at=None,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What was typed; None where nothing was."""

    sla: tuple[str, ...] = ()
    model: str | None = None
    workload: str | None = None
    engine: str | None = None
    space: str | None = None
    out: str | None = None
    budget: str | None = None
    trials: int | None = None
    gpus: str | None = None
    engine_python: str | None = None
    quality: str | None = None
    at: float | None = None
    seed: int | None = None
    ports: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A run that can start: the run, its workload in memory, and its folder (not yet made)."""

    run: Run
    workload: Workload
    folder: Path


def settle(flags: Flags, file: ConfigFile) -> Settled:
    """Check everything that can be checked without a launch, the cheap things first.

    Raises `InputError` for what was asked, `SetupError` for what this machine lacks.
    """
    for field in fields(flags):
        if getattr(flags, field.name) == "":
            raise InputError(
                f"--{field.name.replace('_', '-')} is empty", hint="give a value, or leave it out"
            )
    sla = Sla.parse(flags.sla or _texts(file.sla))
    load = _load(file.load, flags.at if flags.at is not None else file.at)
    quality_limit = _quality(flags.quality or file.quality or "perplexity=1%")
    budget_s, trials = _extent(flags, file)
    ports = _ports(flags.ports or file.ports)
    if (flags.engine or file.engine or "vllm") != "vllm":
        raise InputError(f"unknown engine {flags.engine or file.engine!r}", hint="this version knows vllm")
    folder = Path(flags.out or file.out or _fresh_folder())
    check_folder(folder)
    workload = read_workload(_path(flags.workload or file.workload, "--workload", "no workload given"))
    if not workload.timed:
        raise InputError(
            f"{workload.source} holds prompts without arrival times",
            hint="autotune workload convert --rate draws arrivals for them",
        )
    model = model_profile(str(_path(flags.model or file.model, "--model", "no model given")))
    variants = {name: model_profile(path) for name, path in file.variants.items()}
    asked = gpu_indexes(flags.gpus if flags.gpus is not None else file.gpus)
    machine = hardware(asked)
    spec = probe_engine(flags.engine_python or file.engine_python, gpus_present=bool(machine.gpus))
    if spec.device == "cpu" and machine.gpus:
        if asked is None:
            raise SetupError(
                f"{machine} is present, but vLLM {spec.version} is a CPU build",
                hint="--engine-python of a GPU build, or --gpus none to tune for the CPU",
            )
        raise SetupError(f"--gpus was given, but vLLM {spec.version} is a CPU build", hint="--gpus none")
    free_port(ports)
    space, exclusions = narrow(
        _space(flags, file, spec),
        hardware=machine,
        engine=spec,
        model=model,
        variants=variants,
        longest_tokens=workload.longest_tokens,
    )
    _check_weights(model, space, quality_limit)
    _check_budget(budget_s, load, spec)
    search = workload.requests[first_of_search(len(workload.requests)) : holdout(len(workload.requests))]
    held = workload.requests[holdout(len(workload.requests)) :]
    load = _within(load, workload, search)
    seed = flags.seed if flags.seed is not None else file.seed or 0
    if abs(seed) >= 2**SEED_BITS:
        raise InputError(f"--seed {seed} is too large", hint=f"any integer of at most {SEED_BITS} bits")
    run = Run(
        id=f"{datetime.now().astimezone():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
        created_at=now(),
        tool_version=__version__,
        sla=sla,
        engine=spec,
        hardware=machine,
        model=model,
        variants=variants,
        workload_path=str(Path(workload.source).absolute()),
        workload_sha256=workload.sha256,
        workload_requests=len(workload.requests),
        workload_rate_rps=workload.rate_rps,
        holdout=holdout(len(workload.requests)),
        search_rate_rps=mean_rate_rps(search[: load.window_requests]),
        held_rate_rps=mean_rate_rps(held[: load.window_requests]),
        space=space,
        exclusions=exclusions,
        load=load,
        quality_limit=quality_limit,
        budget_s=budget_s,
        trials=trials,
        seed=seed,
        ports=ports,
        start_deadline_s=parse_duration(file.start_deadline) if file.start_deadline else START_DEADLINE_S,
    )
    return Settled(run=run, workload=workload, folder=folder)


def _texts(sla: list[str] | str | None) -> tuple[str, ...]:
    if sla is None:
        return ()
    return (sla,) if isinstance(sla, str) else tuple(sla)


def _path(given: str | None, flag: str, missing: str) -> Path:
    if not given:
        raise InputError(missing, hint=f"{flag} PATH, or a line in autotune.yaml")
    return Path(given)


def _fresh_folder() -> str:
    return f"runs/{datetime.now().astimezone():%Y%m%d-%H%M%S}"


def _load(file: LoadFile, at: float | None) -> Load:
    """The load section over the defaults; raises `InputError` for numbers that make no climb."""
    if at is not None and not SLOWEST_AT <= at <= LOAD.max_speed:
        raise InputError(
            f"--at {at:g} is not a speed", hint="1 replays the recorded times exactly, 2 twice as fast"
        )
    given = {
        name: value
        for name in ("window_requests", "max_windows", "resolution", "start_speed", "min_speed", "max_speed")
        if (value := getattr(file, name)) is not None
    }
    load = replace(LOAD, **given, at=at)
    if file.window:
        load = replace(load, window_s=parse_duration(file.window, what="load.window"))
    if file.max_window:
        load = replace(load, max_window_s=parse_duration(file.max_window, what="load.max_window"))
    elif file.window:
        load = replace(load, max_window_s=max(load.max_window_s, load.window_s))
    if file.lead_in:
        load = replace(load, lead_in_s=parse_duration(file.lead_in, what="load.lead_in"))
    if file.max_foreign_cpu:
        load = replace(load, max_foreign_cpu=parse_share(file.max_foreign_cpu, what="load.max_foreign_cpu"))
    if load.window_requests < 10 or load.max_windows < 1 or not load.resolution > 1:
        raise InputError(
            f"load: {load.window_requests} requests in {load.max_windows} windows to a resolution of "
            f"{load.resolution:g} is no climb",
            hint="window_requests of at least 10, max_windows of at least 1, resolution above 1",
        )
    if load.max_window_s < load.window_s:
        raise InputError(
            f"load: max_window of {show_duration(load.max_window_s)} is below window of "
            f"{show_duration(load.window_s)}",
            hint="max_window ends a window that still lacks requests; window is the least it lasts",
        )
    if not 0 < load.min_speed <= load.start_speed <= load.max_speed:
        raise InputError(
            f"load: speeds {load.min_speed:g} (min), {load.start_speed:g} (start), {load.max_speed:g} (max)",
            hint="0 < min_speed ≤ start_speed ≤ max_speed",
        )
    return load


def _quality(text: str) -> float | None:
    """The allowed perplexity increase; None for 'off'."""
    if text == "off":
        return None
    name, _, limit = text.partition("=")
    if name != "perplexity" or not limit:
        raise InputError(f"{text!r} is not a quality gate", hint="write perplexity=1% or off")
    return parse_share(limit, what="perplexity limit")


def _extent(flags: Flags, file: ConfigFile) -> tuple[float | None, int | None]:
    """Budget and number of trials; both may be given, and whichever is reached first ends the search."""
    budget = flags.budget or file.budget
    trials = flags.trials if flags.trials is not None else file.trials
    if trials is not None and not 1 <= trials <= MOST_TRIALS:
        raise InputError(
            f"--trials {trials} is no number of trials", hint=f"1, the defaults alone, to {MOST_TRIALS:,}"
        )
    if budget is None and trials is None:
        trials = DEFAULT_TRIALS
    return parse_duration(budget, what="budget") if budget else None, trials


def _ports(text: str | None) -> tuple[int, int]:
    if not text:
        return DEFAULT_PORTS
    low, _, high = text.partition("-")
    if not (low.isdecimal() and (high or low).isdecimal() and 1024 <= int(low) <= int(high or low) <= 65535):
        raise InputError(f"{text!r} is not a range of ports", hint="write LOW-HIGH between 1024 and 65535")
    return int(low), int(high or low)


def gpu_indexes(given: str | int | None) -> tuple[int, ...] | None:
    """None for all, () for 'none', else the indexes."""
    if given is None:
        return None
    text = str(given).strip()
    if text == "none":
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts) or len(set(parts)) < len(parts):
        raise InputError(f"--gpus {text!r} is not a list of GPUs", hint="write indexes like 0,1 or none")
    return tuple(int(part) for part in parts)


def _space(flags: Flags, file: ConfigFile, spec: EngineSpec) -> SearchSpace:
    given = flags.space or file.space
    name = "vllm-cpu.yaml" if spec.device == "cpu" else "vllm.yaml"
    space = load_space(Path(given) if given else shipped(f"search_spaces/{name}"))
    fixed = {key.replace("-", "_"): value for key, value in file.engine_args.items()}
    for key in fixed:
        if refusal := refuse_fixed(key):
            raise InputError(f"autotune.yaml: engine_args: {refusal[0]}", hint=refusal[1])
    clash = next((parameter.name for parameter in space.parameters if parameter.name in fixed), None)
    if clash:
        raise InputError(
            f"autotune.yaml: engine_args pins {clash}, which {space.name} searches",
            hint="give a search space without it, or drop it from engine_args",
        )
    return replace(space, fixed={**space.fixed, **fixed})


def _check_weights(model: ModelProfile, space: SearchSpace, quality_limit: float | None) -> None:
    dummy = space.fixed.get("load_format") == "dummy"
    if quality_limit is not None and dummy:
        raise InputError(
            "load_format is dummy: the perplexity of random weights means nothing", hint="add --quality off"
        )
    if model.weights_bytes is None and not dummy:
        raise InputError(
            f"{model.path} holds no weights",
            hint="give a complete model folder, or engine_args: {load_format: dummy}",
        )


def _check_budget(budget_s: float | None, load: Load, spec: EngineSpec) -> None:
    needed_s = START_S[spec.device] + load.window_s
    if budget_s is not None and budget_s < needed_s:
        raise InputError(
            f"a budget of {show_duration(budget_s)} is too small for one trial",
            hint=f"a start and a window take about {show_duration(needed_s)}; begin with --budget 15min",
        )


def _within(load: Load, workload: Workload, search: Sequence[Request]) -> Load:
    """The load with no speed at which the search slice would be over before a window is.

    A window cut short by the end of the recording has no time to build a queue, and would hold at any speed.
    """
    if len(search) < 10:
        raise InputError(
            f"{workload.source} holds {len(workload.requests)} requests: too few for a search slice and a "
            "held-out slice",
            hint="record at least 30; 900 and more can prove a p99",
        )
    duration_s = search[-1].offset_s - search[0].offset_s
    fastest = duration_s / load.window_s
    if fastest < max(load.min_speed, load.at or 0.0):
        raise InputError(
            f"{workload.source}: the search's part of it, {len(search)} requests in "
            f"{show_duration(duration_s)}, is too short for windows of {show_duration(load.window_s)} at "
            f"{max(load.min_speed, load.at or 0.0):g} × its speed",
            hint="record longer, or shorten load.window in autotune.yaml",
        )
    return replace(load, max_speed=min(load.max_speed, fastest), start_speed=min(load.start_speed, fastest))
