"""From what a space offers to what can run: defaults settled, impossible levels taken out with a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from autotune.domain.hardware import Hardware, ModelProfile
from autotune.domain.launch import EngineSpec
from autotune.domain.space import Exclusion, Parameter, Preset, Rule, SearchSpace, Value
from autotune.errors import InputError, SetupError
from autotune.space.fitness import PARALLEL, Site, unfit
from autotune.space.known import BASE_VARIANT, ENGINE_DEFAULT, VLLM
from autotune.space.versions import admits, numbers
from autotune.units import show_bytes

Offered = Mapping[str, tuple[Value, ...]]


def narrow(
    space: SearchSpace,
    *,
    hardware: Hardware,
    engine: EngineSpec,
    model: ModelProfile,
    variants: Mapping[str, ModelProfile],
    longest_tokens: int,
) -> tuple[SearchSpace, tuple[Exclusion, ...]]:
    """The space of what can run here, and the levels that cannot, each with its reason.

    Defaults written as `engine` become values; `variant` is added when the run has variants. What is
    left with one level is no parameter any more; presets that cannot run, or change nothing, go too.
    Raises `InputError` when space, engine, model and workload do not belong together, `SetupError`
    when the defaults or a fixed setting cannot run on this machine.
    """
    _refuse_strangers(space, engine, hardware)
    parameters = _settled(_with_variants(space.parameters, variants), space.fixed, engine, hardware)
    defaults = {**space.fixed, **{parameter.name: parameter.default for parameter in parameters}}
    _refuse_long_requests(space, defaults, model, longest_tokens)
    offered: Offered = {
        **{name: (value,) for name, value in space.fixed.items()},
        **{parameter.name: parameter.levels for parameter in parameters},
    }
    site = Site(
        device=engine.device,
        hardware=hardware,
        model=model,
        variants=frozenset(variants),
        longest_model_len=_longest_model_len(defaults, model),
        least_parallel={name: _smallest(offered, name) for name in PARALLEL},
    )
    pointless = _pointless(parameters, hardware)
    exclusions = (*pointless, *_exclusions(_without(offered, pointless), space.rules, site))
    _refuse_lost_defaults(space, defaults, exclusions)
    kept = _without(offered, exclusions)
    left = tuple(
        replace(parameter, levels=kept[parameter.name])
        for parameter in parameters
        if len(kept[parameter.name]) > 1
    )
    names = {parameter.name for parameter in left}
    narrowed = replace(
        space,
        parameters=left,
        rules=tuple(rule for rule in space.rules if {rule.left, rule.right} <= names),
        presets=_runnable(space.presets, space.rules, kept, defaults),
    )
    return narrowed, exclusions


def batch_defaults(
    engine: EngineSpec, hardware: Hardware, fixed: Mapping[str, Value], world: int
) -> tuple[int, int]:
    """What vLLM's API server makes of unset max_num_batched_tokens and max_num_seqs, in this order.

    Source: `EngineArgs.get_batch_defaults` and its caller in vllm/engine/arg_utils.py, 0.26 and 0.32;
    the step at 160 GiB stands in 0.32 and not in 0.26. The caller's cap of tokens at
    max_num_seqs · max_model_len is left out: it binds for models of a few tokens only.
    """
    if engine.device == "cpu":
        tokens, seqs = 2048 * world, 128 * world
    else:
        gpu = hardware.gpus[0]
        if gpu.memory_bytes >= 160 * 2**30 and numbers(engine.version) >= (0, 32):
            tokens, seqs = 16384, 1024
        elif gpu.memory_bytes >= 70 * 2**30 and "a100" not in gpu.name.lower():
            tokens, seqs = 8192, 1024
        else:
            tokens, seqs = 2048, 256
    if fixed.get("performance_mode") == "throughput":
        tokens, seqs = 2 * tokens, 2 * seqs
    set_tokens = fixed.get("max_num_batched_tokens")
    return tokens, min(seqs, set_tokens if isinstance(set_tokens, int) else tokens)


def _refuse_strangers(space: SearchSpace, engine: EngineSpec, hardware: Hardware) -> None:
    """Space, engine and machine must be made for each other."""
    if space.engine != engine.name:
        raise InputError(
            f"the space {space.name} is for {space.engine}, the engine is {engine.name}",
            hint="choose a space for this engine",
        )
    if space.device != engine.device:
        raise InputError(
            f"the space {space.name} is for {space.device}, "
            f"{engine.name} {engine.version} is built for {engine.device}",
            hint=f"choose a space whose device is {engine.device}, or another engine",
        )
    if not admits(space.versions, engine.version):
        raise InputError(
            f"the space {space.name} is for {engine.name} {space.versions}, installed is {engine.version}",
            hint="install a version in that range, or widen `versions` in a copy of the space",
        )
    if engine.device == "cuda" and not hardware.gpus:
        raise SetupError(
            f"{engine.name} {engine.version} needs a GPU and the run has none",
            hint="give the run a GPU, or an engine built for the CPU",
        )


def _with_variants(
    parameters: Sequence[Parameter], variants: Mapping[str, ModelProfile]
) -> tuple[Parameter, ...]:
    """The parameters, and `variant` last when there are variants and the space has none of its own."""
    if BASE_VARIANT in variants:
        raise InputError(
            f"a variant cannot be called {BASE_VARIANT!r}", hint="that name stands for the model itself"
        )
    if not variants or any(parameter.name == "variant" for parameter in parameters):
        return tuple(parameters)
    variant = Parameter(
        name="variant",
        levels=(BASE_VARIANT, *sorted(variants)),
        default=BASE_VARIANT,
        ordered=False,
        why="the same model in another precision",
    )
    return (*parameters, variant)


def _settled(
    parameters: Sequence[Parameter],
    fixed: Mapping[str, Value],
    engine: EngineSpec,
    hardware: Hardware,
) -> tuple[Parameter, ...]:
    """The parameters with every `engine` default replaced by its value, which joins the levels."""
    written = {parameter.name: parameter.default for parameter in parameters}
    world = 1
    for name in ("tensor_parallel_size", "pipeline_parallel_size"):
        size = fixed.get(name, written.get(name, ENGINE_DEFAULT))
        world *= size if isinstance(size, int) else 1
    tokens, seqs = batch_defaults(engine, hardware, fixed, world)
    known: dict[str, Value | None] = {}
    if engine.name == "vllm":
        known = {name: tunable.default for name, tunable in VLLM.items()}
        known |= {"max_num_batched_tokens": tokens, "max_num_seqs": seqs}

    def settle(parameter: Parameter) -> Parameter:
        if parameter.default != ENGINE_DEFAULT:
            return parameter
        default = known.get(parameter.name)
        if default is None:
            raise InputError(
                f"the engine's default of {parameter.name} is not known",
                hint="write the value as `default`",
            )
        if default in parameter.levels:
            return replace(parameter, default=default)
        levels = (*parameter.levels, default)
        if parameter.ordered:
            levels = tuple(sorted(levels, key=float))
        return replace(parameter, default=default, levels=levels)

    return tuple(map(settle, parameters))


def _refuse_long_requests(
    space: SearchSpace, defaults: Mapping[str, Value], model: ModelProfile, longest_tokens: int
) -> None:
    """Every request must fit the model and, when its size is fixed, the KV pool of the defaults."""
    longest_model_len = _longest_model_len(defaults, model)
    if longest_tokens > longest_model_len:
        raise InputError(
            f"the longest request has {longest_tokens:,} tokens, {model.name} takes {longest_model_len:,}",
            hint="leave the longer requests out of the workload, or serve a model with a longer context",
        )
    pool_bytes = defaults.get("kv_cache_memory_bytes")
    if not isinstance(pool_bytes, int):
        return
    element_bytes = 1 if str(defaults.get("kv_cache_dtype", "auto")).startswith("fp8") else 2
    # each rank of a tensor-parallel group holds its share of the KV heads, but at least one
    ranks = min(_size(defaults, "tensor_parallel_size"), model.kv_heads)
    ranks *= _size(defaults, "pipeline_parallel_size")
    token_bytes = model.kv_bytes_per_token(element_bytes) / ranks
    if longest_tokens * token_bytes > pool_bytes:
        raise InputError(
            f"the longest request has {longest_tokens:,} tokens, the KV pool of {show_bytes(pool_bytes)} "
            f"(kv_cache_memory_bytes in the space {space.name}) holds {int(pool_bytes / token_bytes):,}",
            hint=f"raise kv_cache_memory_bytes above {show_bytes(longest_tokens * token_bytes)}, "
            "or leave the longer requests out of the workload",
        )


def _longest_model_len(defaults: Mapping[str, Value], model: ModelProfile) -> int:
    """The fixed max_model_len, if it is a number, else the model's own."""
    limit = defaults.get("max_model_len")
    return min(limit, model.max_position) if isinstance(limit, int) and limit > 0 else model.max_position


def _size(defaults: Mapping[str, Value], name: str) -> int:
    value = defaults.get(name, 1)
    return value if isinstance(value, int) else 1


def _smallest(offered: Offered, name: str) -> int:
    return min((level for level in offered.get(name, ()) if isinstance(level, int)), default=1)


def _pointless(parameters: Sequence[Parameter], hardware: Hardware) -> tuple[Exclusion, ...]:
    """Levels that the space itself calls not worth a trial on a processor such as this one."""
    return tuple(
        Exclusion(
            parameter=one.name, level=level, reason=f"worth a trial only on a CPU without {one.cpu_lacks}"
        )
        for one in parameters
        if one.cpu_lacks in hardware.cpu.isa
        for level in one.levels
        if level != one.default
    )


def _exclusions(offered: Offered, rules: Sequence[Rule], site: Site) -> tuple[Exclusion, ...]:
    """Levels that cannot run by themselves, then those that no level on a rule's other side allows."""
    found = [
        Exclusion(parameter=name, level=level, reason=reason)
        for name, levels in offered.items()
        for level in levels
        if (reason := unfit(name, level, site)) is not None
    ]
    offered = _without(offered, found)
    while new := next(filter(None, (_out_of_reach(rule, offered) for rule in rules)), []):
        found += new
        offered = _without(offered, new)
    return tuple(found)


def _out_of_reach(rule: Rule, offered: Offered) -> list[Exclusion]:
    """Levels of one side that break the rule with every level of the other."""
    left = [level for level in offered.get(rule.left, ()) if isinstance(level, int)]
    right = [level for level in offered.get(rule.right, ()) if isinstance(level, int)]
    if not left or not right:
        return []
    most, least = max(left), min(right)
    return [
        Exclusion(
            parameter=rule.right, level=level, reason=f"must not exceed {rule.left}, here at most {most}"
        )
        for level in right
        if level > most
    ] + [
        Exclusion(
            parameter=rule.left, level=level, reason=f"must not be below {rule.right}, here at least {least}"
        )
        for level in left
        if level < least
    ]


def _without(offered: Offered, exclusions: Sequence[Exclusion]) -> Offered:
    gone = {(exclusion.parameter, exclusion.level) for exclusion in exclusions}
    return {
        name: tuple(level for level in levels if (name, level) not in gone)
        for name, levels in offered.items()
    }


def _refuse_lost_defaults(
    space: SearchSpace, defaults: Mapping[str, Value], exclusions: Sequence[Exclusion]
) -> None:
    """The defaults are trial 0 and the fallback answer: without them there is no run."""
    for exclusion in exclusions:
        if defaults[exclusion.parameter] == exclusion.level:
            what = "fixed" if exclusion.parameter in space.fixed else "default"
            raise SetupError(
                f"the {what} {exclusion} (space {space.name})",
                hint=f"change {exclusion.parameter} in the space, or run where it works",
            )
    for rule in space.rules:
        if not rule.holds(defaults):
            raise InputError(
                f"the defaults of the space {space.name} break its own rule "
                f"{rule.left} ≥ {rule.right}: {defaults[rule.left]} < {defaults[rule.right]}",
                hint=rule.why or f"raise {rule.left} or lower {rule.right}",
            )


def _runnable(
    presets: Sequence[Preset], rules: Sequence[Rule], kept: Offered, defaults: Mapping[str, Value]
) -> tuple[Preset, ...]:
    """The presets that can run, cut down to what differs from the defaults; none twice."""
    found: list[Preset] = []
    for preset in presets:
        settings = {name: value for name, value in preset.settings.items() if value != defaults.get(name)}
        point = {**defaults, **settings}
        fits = all(value in kept.get(name, ()) for name, value in settings.items())
        known = any(settings == other.settings for other in found)
        if settings and fits and not known and all(rule.holds(point) for rule in rules):
            found.append(replace(preset, settings=settings))
    return tuple(found)
