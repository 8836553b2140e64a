"""Why a level provably cannot run on this machine with this model: one check for each setting.

Sources: platform and kernel tables of vLLM 0.32 (vllm/platforms/cuda.py, vllm/v1/attention/backends,
vllm/model_executor/layers/quantization, vllm/config/model.py, vllm/config/parallel.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autotune.domain.hardware import Gpu, Hardware, ModelProfile
from autotune.domain.launch import Device
from autotune.domain.space import Value
from autotune.space.known import BASE_VARIANT
from autotune.units import show_bytes

_WEIGHTS_NEED: Mapping[str, tuple[int, int]] = {
    "fp8": (7, 5),
    "fp8_per_tensor": (7, 5),
    "fp8_per_block": (7, 5),
    "fp8_per_channel": (7, 5),
    "torchao": (7, 5),
    "mxfp8": (10, 0),
    "nvfp4_per_token": (10, 0),
}
_KV_NEEDS: Mapping[str, tuple[int, int]] = {
    "fp8": (8, 9),
    "fp8_e4m3": (8, 9),
    "fp8_e5m2": (8, 0),
    "nvfp4": (10, 0),
}
_OF_A_CHECKPOINT = frozenset(
    {
        "auto_awq",
        "auto_gptq",
        "awq",
        "awq_marlin",
        "compressed-tensors",
        "gptq",
        "gptq_marlin",
        "modelopt",
        "modelopt_fp4",
        "modelopt_mxfp8",
        "moe_wna16",
        "mxfp4",
        "quark",
    }
)
PARALLEL = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What a level is judged against; `least_parallel` is the smallest size offered of each kind."""

    device: Device
    hardware: Hardware
    model: ModelProfile
    variants: frozenset[str]
    longest_model_len: int
    least_parallel: Mapping[str, int]

    @property
    def weakest(self) -> Gpu:
        """The GPU with the lowest compute capability; a cuda site has at least one."""
        return min(self.hardware.gpus, key=lambda gpu: gpu.compute_capability)


def unfit(name: str, level: Value, site: Site) -> str | None:
    """The reason why `name` = `level` cannot run at this site, None when nothing is known against it."""
    check = _CHECKS.get(name)
    return None if check is None else check(level, site)


def _capability(needed: tuple[int, int] | None, site: Site) -> str | None:
    if needed is None or site.weakest.compute_capability >= needed:
        return None
    major, minor = site.weakest.compute_capability
    return f"needs compute capability {needed[0]}.{needed[1]}, {site.weakest.name} has {major}.{minor}"


def _quantization(level: Value, site: Site) -> str | None:
    if level == "none":
        return None
    if site.model.quantization is not None:
        return f"the checkpoint is quantised already ({site.model.quantization})"
    if level in _OF_A_CHECKPOINT:
        return "needs a checkpoint quantised this way; give that one as a variant"
    if site.device == "cpu":
        lacks = str(level).startswith("fp8") and "amx_tile" not in site.hardware.cpu.isa
        return "its CPU kernels need AMX, which this processor lacks" if lacks else None
    return _capability(_WEIGHTS_NEED.get(str(level)), site)


def _kv_cache_dtype(level: Value, site: Site) -> str | None:
    if site.device == "cuda":
        return _capability(_KV_NEEDS.get(str(level)), site)
    if not str(level).startswith("fp8"):
        return None
    if not {"avx512f", "amx_tile"} & set(site.hardware.cpu.isa):
        return "needs AVX-512 or AMX, which this processor lacks"
    if site.model.head_size % 32:
        return f"needs a head size that 32 divides, the model's is {site.model.head_size}"
    return None


def _dtype(level: Value, site: Site) -> str | None:
    if site.device == "cuda" and level == "bfloat16":
        return _capability((8, 0), site)
    return None


def _world(name: str, level: Value, site: Site) -> str | None:
    world = int(level)
    for other, least in site.least_parallel.items():
        world *= 1 if other == name else least
    if site.device == "cuda":
        there, what = len(site.hardware.gpus), "GPU"
    else:
        there, what = site.hardware.cpu.cores, "core"
    return None if world <= there else f"needs {world} {what}s, the run has {there}"


def _tensor_parallel_size(level: Value, site: Site) -> str | None:
    if site.model.heads % int(level):
        return f"the model's {site.model.heads} attention heads do not divide by {level}"
    return _world("tensor_parallel_size", level, site)


def _pipeline_parallel_size(level: Value, site: Site) -> str | None:
    if site.model.layers < int(level):
        return f"the model has {site.model.layers} layers"
    return _world("pipeline_parallel_size", level, site)


def _data_parallel_size(level: Value, site: Site) -> str | None:
    return _world("data_parallel_size", level, site)


def _gpu_memory_utilization(level: Value, site: Site) -> str | None:
    """The engine asks for a share of the whole card and refuses to start when less is free."""
    gpus = site.hardware.gpus if site.device == "cuda" else ()
    if not gpus or any(float(level) * gpu.memory_bytes <= gpu.free_bytes for gpu in gpus):
        return None
    roomiest = max(gpus, key=lambda gpu: gpu.free_bytes)
    asked = float(level) * roomiest.memory_bytes
    return f"asks for {show_bytes(asked)} of GPU {roomiest.index}, {show_bytes(roomiest.free_bytes)} are free"


def _threads(level: Value, site: Site) -> str | None:
    if level == "all" and site.hardware.cpu.cores == 1:
        return "there is one core, so that it is the same as auto"
    return None


def _block_size(level: Value, site: Site) -> str | None:
    multiple = 32 if site.device == "cpu" else 16
    return f"no attention kernel takes it: {multiple} must divide it" if int(level) % multiple else None


def _long_prefill_token_threshold(level: Value, site: Site) -> str | None:
    if int(level) <= site.longest_model_len:
        return None
    return f"is above the longest sequence the engine takes, {site.longest_model_len:,} tokens"


def _variant(level: Value, site: Site) -> str | None:
    if level == BASE_VARIANT or level in site.variants:
        return None
    return "no variant of this name was given to the run"


_CHECKS: Mapping[str, Callable[[Value, Site], str | None]] = {
    "block_size": _block_size,
    "data_parallel_size": _data_parallel_size,
    "dtype": _dtype,
    "gpu_memory_utilization": _gpu_memory_utilization,
    "kv_cache_dtype": _kv_cache_dtype,
    "long_prefill_token_threshold": _long_prefill_token_threshold,
    "pipeline_parallel_size": _pipeline_parallel_size,
    "quantization": _quantization,
    "tensor_parallel_size": _tensor_parallel_size,
    "threads": _threads,
    "variant": _variant,
}
