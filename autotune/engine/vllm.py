"""vLLM: a point becomes argv and environment, a log becomes facts or a cause. Pure.

Flags and texts are those of vLLM 0.26 to 0.33 (vllm/engine/arg_utils.py, vllm/v1/core/kv_cache_utils.py,
vllm/v1/worker/utils.py); the texts below were also seen in logs of 0.26 on a GPU and 0.32 on a CPU.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping

from autotune.domain.hardware import Hardware, ModelProfile
from autotune.domain.launch import EngineSpec, LaunchPlan, StartFacts
from autotune.domain.outcome import Cause, Infeasible
from autotune.domain.space import Point, SearchSpace, Value, world_size

SERVED_MODEL = "autotune"
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_COLOR": "0",
}
CPU_ENV = {
    # With the default of 1 a second compiled start takes 79 s instead of 31: its cache fails to load.
    "VLLM_USE_AOT_COMPILE": "0",
}
THREADS_ENV = "VLLM_CPU_OMP_THREADS_BIND"
PRECISION = ("variant", "dtype", "quantization", "kv_cache_dtype")
START_S = {"cpu": 35.0, "cuda": 75.0}
"""Usual time to `/health`, for budget estimates: 22-33 s on a CPU, 48-95 s on a GPU with a warm cache."""

_PREFIX = re.compile(
    r"^\((?:APIServer|EngineCore\S*|\S*Worker\S*|ApiServer\S*) pid=\d+\)\s*"
    r"(?:[A-Z]+ [\d-]+ [\d:]+ \[\S+\] )?",
    re.MULTILINE,
)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")

# Searched in order over the whole log: the cause stands far above the last lines.
_CAUSES: tuple[tuple[Cause, str], ...] = (
    (Cause.BAD_FLAG, r"error: (?:argument .+|unrecognized arguments.+|ambiguous option.+)"),
    (Cause.KV_TOO_SMALL, r"To serve at least one request with the model's max seq len .+"),
    (Cause.KV_TOO_SMALL, r"Cannot auto-fit max_model_len.*"),
    (Cause.KV_TOO_SMALL, r"No available memory for the cache blocks.*"),
    (Cause.OUT_OF_MEMORY, r"Free memory on device .*is less than desired.*"),
    (Cause.OUT_OF_MEMORY, r"Available memory on node \d+ .*is less than (?:desired|requested).*"),
    (Cause.OUT_OF_MEMORY, r"torch\.(?:cuda\.)?OutOfMemoryError.*"),
    (Cause.OUT_OF_MEMORY, r"CUDA (?:error: )?out of memory.*"),
    (Cause.OUT_OF_MEMORY, r"out of memory occurred when warming up sampler.*"),
    (Cause.OUT_OF_MEMORY, r"DefaultCPUAllocator: can't allocate memory.*"),
    (Cause.UNSUPPORTED, r"Bfloat16 is only supported on GPUs with compute capability.*"),
    (Cause.UNSUPPORTED, r".*not supported for the current GPU\. Minimum capability.*"),
    (Cause.UNSUPPORTED, r"No valid attention backend found.*"),
    (Cause.UNSUPPORTED, r"Selected backend .* is not valid.*"),
    (Cause.UNSUPPORTED, r"No common block size for .*"),
    (Cause.UNSUPPORTED, r"Quantization method specified in the model config.*"),
    (Cause.UNSUPPORTED, r"Unknown quantization method.*"),
    (Cause.UNSUPPORTED, r"Cannot find the config file for .*"),
    (Cause.UNSUPPORTED, r".*must be divisible by tensor parallel size.*"),
    (Cause.UNSUPPORTED, r"World size \(\d+\) is larger than the number of available GPUs.*"),
    (Cause.UNSUPPORTED, r"_C::static_scaled_fp8_quant\(\) expected.*"),
    (Cause.BAD_FLAG, r"Value error, .+"),
    (Cause.BAD_FLAG, r"Input should be .+"),
    (Cause.BAD_FLAG, r"User-specified max_model_len .+"),
    (Cause.BAD_FLAG, r"max_num_batched_tokens \(\d+\) (?:must be|is smaller).+"),
)
_KILLED = {-9, 137}


def plan(
    point: Point,
    *,
    space: SearchSpace,
    spec: EngineSpec,
    model: ModelProfile,
    variants: Mapping[str, ModelProfile],
    hardware: Hardware,
    port: int,
    start_deadline_s: float,
) -> LaunchPlan:
    """The launch of a point; parameters at their defaults emit no flag.

    `generation-config: vllm` keeps the model folder's own sampling defaults out of a measurement.
    """
    changed = space.changed(point)
    variant = changed.pop("variant", "base")
    threads = changed.pop("threads", "auto")
    served = model if variant == "base" else variants[str(variant)]
    settings: dict[str, Value] = {"model": served.path, **space.fixed, **changed}
    deploy_env: dict[str, str] = dict(CPU_ENV) if spec.device == "cpu" else {}
    if threads != "auto":
        deploy_env[THREADS_ENV] = core_list(hardware.cpu.core_ids)
    env = {**QUIET, **deploy_env}
    if hardware.gpus:
        # NVML counts in bus order, CUDA by speed unless told otherwise.
        env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        used = hardware.gpus[: world_size({**space.fixed, **point})]
        env["CUDA_VISIBLE_DEVICES"] = ",".join(str(gpu.index) for gpu in used)
    trial_only: dict[str, Value] = {
        "host": "127.0.0.1",
        "port": port,
        "served_model_name": SERVED_MODEL,
        "generation_config": "vllm",
        "disable_uvicorn_access_log": True,
    }
    flags = {name: value for name, value in settings.items() if name != "model"}
    return LaunchPlan(
        argv=(*spec.command, "serve", served.path, *argv({**flags, **trial_only})),
        env=env,
        settings=settings,
        deploy_env=deploy_env,
        port=port,
        served_model=SERVED_MODEL,
        start_deadline_s=start_deadline_s,
    )


def unfit(
    point: Point, *, space: SearchSpace, hardware: Hardware, variants: Mapping[str, ModelProfile]
) -> str | None:
    """Why a point cannot run although each of its levels can; None when nothing speaks against it."""
    if rule := space.broken_rule(point):
        return f"{rule.left} must be at least {rule.right}: {rule.why}"
    world = world_size({**space.fixed, **point})
    if hardware.gpus and world > len(hardware.gpus):
        return f"needs {world} GPUs, {len(hardware.gpus)} are in use"
    variant = variants.get(str(point.get("variant", "base")))
    if variant and variant.quantization and str(point.get("quantization", "none")) != "none":
        return f"variant {point['variant']} is quantised already ({variant.quantization})"
    return None


def argv(settings: Mapping[str, Value]) -> tuple[str, ...]:
    """Long options: `--name value`, `--name` for true, `--no-name` for false."""
    words: list[str] = []
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if value is True:
            words.append(f"--{flag}")
        elif value is False:
            words.append(f"--no-{flag}")
        else:
            words += [f"--{flag}", str(value)]
    return tuple(words)


def core_list(cores: tuple[int, ...]) -> str:
    """'0-1' or '0-3,8-11', the form that VLLM_CPU_OMP_THREADS_BIND takes."""
    spans: list[list[int]] = []
    for core in sorted(cores):
        if spans and core == spans[-1][1] + 1:
            spans[-1][1] = core
        else:
            spans.append([core, core])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in spans)


def diagnose(exit_code: int | None, log: str) -> Infeasible | None:
    """The cause that the log names; None when it names none. Never call it after our own stop."""
    text = _PREFIX.sub("", _ANSI.sub("", log))
    for cause, pattern in _CAUSES:
        if match := re.search(pattern, text):
            said = match.group(0).partition(" [type=")[0]  # pydantic repeats its input after it
            return Infeasible(cause=cause, evidence=said.strip()[:400])
    if exit_code in _KILLED:
        return Infeasible(
            cause=Cause.OUT_OF_MEMORY,
            evidence="killed by SIGKILL without a word: the kernel does that when memory runs out",
        )
    return None


def _number(pattern: str, text: str) -> float | None:
    match = re.search(pattern, text)
    return float(match.group(1).replace(",", "")) if match else None


def facts(log: str, *, start_s: float) -> StartFacts:
    """KV tokens, memory and compile time as the engine logged them."""
    tokens = _number(r"(?:GPU|CPU) KV cache size: ([\d,]+) tokens", log)
    return StartFacts(
        start_s=start_s,
        kv_tokens=None if tokens is None else int(tokens),
        max_concurrency=_number(r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x", log),
        weights_gib=_number(r"Model loading took ([\d.]+) GiB", log),
        kv_gib=_number(r"Available KV cache memory: (-?[\d.]+) GiB", log),
        compile_s=_number(r"torch\.compile took ([\d.]+) s", log),
    )


def precision(point: Point) -> str:
    """'base' or the settings that change what is computed, e.g. 'variant=int8 kv_cache_dtype=fp8'."""
    plain = {"base", "auto", "none"}
    words = [f"{name}={point[name]}" for name in PRECISION if name in point and str(point[name]) not in plain]
    return " ".join(words) or "base"


def config_file(plan: LaunchPlan, notes: tuple[str, ...]) -> str:
    """YAML for `vllm serve --config`.

    Dashed keys, because an underscore key loses its negation without a word; `no-x: true` instead of
    `x: false`, which vLLM 0.26 drops; plain integers; strings quoted as JSON, which YAML reads too.
    """
    lines = [*(f"# {note}" if note else "#" for note in notes)]
    for name, value in plan.settings.items():
        key = name.replace("_", "-")
        if value is False:
            key, value = f"no-{key}", True  # noqa: PLW2901  the negative form is another key
        lines.append(f"{key}: {json.dumps(value, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


def deploy_command(plan: LaunchPlan, spec: EngineSpec) -> str:
    """Environment and command on one line, safe to paste; `--config FILE` goes behind it."""
    env = [f"{name}={shlex.quote(value)}" for name, value in plan.deploy_env.items()]
    return " ".join([*env, *map(shlex.quote, spec.command), "serve"])
