"""What vLLM can be told: settings that may be varied, settings that may only be fixed, refused names.

Source: `vllm serve --help=all` of 0.26.0 and 0.32.0; constraints and what an unset option becomes:
vllm/engine/arg_utils.py and vllm/config/*.py of the same versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from autotune.domain.launch import Device
from autotune.domain.space import Value

ENGINE_DEFAULT: Final = "engine"
"""Written as a default: whatever the engine does here when the setting is left out."""

BASE_VARIANT: Final = "base"
"""The level of `variant` that stands for the model the run was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tunable:
    """A setting that may be varied.

    `default` is what vLLM does without it, None where that depends on the machine, the model or
    another setting. `sized` ones may be written with a suffix (8K). `device` binds it to one device.
    """

    kind: type[Value]
    default: Value | None = None
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    sized: bool = False
    device: Device | None = None


VLLM: Mapping[str, Tunable] = {
    # how much runs in a step
    "max_num_seqs": Tunable(kind=int, low=1),
    "max_num_batched_tokens": Tunable(kind=int, low=1, sized=True),
    "max_num_scheduled_tokens": Tunable(kind=int, low=1),
    "max_num_active_seqs": Tunable(kind=int, low=1),  # since 0.32
    "long_prefill_token_threshold": Tunable(kind=int, default=0, low=0),
    "long_prefill_token_threshold_adaptive": Tunable(kind=bool, default=False),  # since 0.32
    "scheduling_policy": Tunable(kind=str, default="fcfs", choices=("fcfs", "priority")),
    "scheduler_reserve_full_isl": Tunable(kind=bool, default=True),
    "watermark": Tunable(kind=float, default=0.0, low=0, high=0.99),
    "async_scheduling": Tunable(kind=bool),
    "prefill_schedule_interval": Tunable(kind=int, default=1, low=1),
    # memory and KV cache
    "gpu_memory_utilization": Tunable(kind=float, default=0.92, low=0.01, high=1),
    "block_size": Tunable(kind=int, low=1),
    "kv_cache_dtype": Tunable(kind=str, default="auto"),
    "enable_prefix_caching": Tunable(kind=bool, default=True),
    "prefix_caching_hash_algo": Tunable(kind=str, default="sha256"),
    "cpu_offload_gb": Tunable(kind=float, default=0.0, low=0),
    "kv_offloading_size": Tunable(kind=float, low=0),
    # numbers and kernels
    "dtype": Tunable(kind=str, default="auto"),
    "quantization": Tunable(kind=str, default="none"),
    "attention_backend": Tunable(kind=str, default="auto"),
    "moe_backend": Tunable(kind=str, default="auto"),
    "linear_backend": Tunable(kind=str, default="auto"),
    "enforce_eager": Tunable(kind=bool, default=False),
    "optimization_level": Tunable(kind=int, default=2, low=0, high=3),
    "max_cudagraph_capture_size": Tunable(kind=int, low=1),
    # parallelism
    "tensor_parallel_size": Tunable(kind=int, default=1, low=1),
    "pipeline_parallel_size": Tunable(kind=int, default=1, low=1),
    "data_parallel_size": Tunable(kind=int, default=1, low=1),
    "decode_context_parallel_size": Tunable(kind=int, default=1, low=1),
    "enable_expert_parallel": Tunable(kind=bool, default=False),
    "all2all_backend": Tunable(kind=str, default="allgather_reducescatter"),
    "disable_custom_all_reduce": Tunable(kind=bool, default=False),
    # the server
    "api_server_count": Tunable(kind=int, low=1),
    "renderer_num_workers": Tunable(kind=int, default=1, low=1),
    # not flags: VLLM_CPU_OMP_THREADS_BIND (all: every core we may use), and the weights
    "threads": Tunable(kind=str, default="auto", choices=("auto", "all"), device="cpu"),
    "variant": Tunable(kind=str, default=BASE_VARIANT),
}

VLLM_FIXED_ONLY: Mapping[str, str] = {
    # name → why it is not varied, empty where the name says so
    "kv_cache_memory_bytes": "more is never worse, so there is nothing to search",
    "max_model_len": "it decides which requests are accepted, not how fast they are",
    "num_gpu_blocks_override": "more is never worse, so there is nothing to search",
    "enable_chunked_prefill": "off is not supported by the models that have it on",
    "performance_mode": "it changes what an unset max_num_seqs means, so a point would hide what runs",
    "chat_template": "",
    "code_revision": "",
    "compilation_config": "",
    "config_format": "",
    "disable_cascade_attn": "",
    "distributed_executor_backend": "",
    "download_dir": "",
    "enable_auto_tool_choice": "",
    "enable_lora": "",
    "generation_config": "",
    "hf_overrides": "",
    "kv_offloading_backend": "",
    "language_model_only": "",
    "limit_mm_per_prompt": "",
    "load_format": "",
    "max_logprobs": "",
    "max_lora_rank": "",
    "max_loras": "",
    "mm_processor_cache_gb": "",
    "model_impl": "",
    "numa_bind": "",
    "reasoning_parser": "",
    "revision": "",
    "seed": "",
    "speculative_config": "",
    "tokenizer": "",
    "tokenizer_mode": "",
    "tokenizer_revision": "",
    "tool_call_parser": "",
    "trust_remote_code": "",
}

VLLM_FIXED_SIZES = frozenset({"kv_cache_memory_bytes", "max_model_len"})

_OURS = "autotune sets it for every trial; leave it out"
VLLM_REFUSED: Mapping[str, str] = {
    # name → what to write instead; old names, names of other engines, and settings that are ours
    "batch_wait_timeout_ms": "vLLM batches every step and waits for nothing; leave it out",
    "calculate_kv_scales": "gone in vLLM 0.32; leave it out",
    "device_memory_utilization": "write gpu_memory_utilization, the name that all versions know",
    "enable_block_reuse": "write enable_prefix_caching",
    "enable_kv_cache_reuse": "write enable_prefix_caching",
    "kv_cache_free_gpu_memory_fraction": "write gpu_memory_utilization, which is a share of the whole card",
    "free_gpu_memory_fraction": "write gpu_memory_utilization, which is a share of the whole card",
    "max_batch_size": "write max_num_seqs",
    "max_long_partial_prefills": "gone in vLLM 0.32; write long_prefill_token_threshold",
    "max_num_partial_prefills": "gone in vLLM 0.32; write long_prefill_token_threshold",
    "max_num_tokens": "write max_num_batched_tokens",
    "num_scheduler_steps": "gone from vLLM; leave it out",
    "preemption_mode": "gone from vLLM, which always recomputes; leave it out",
    "prefill_chunk_size": "write long_prefill_token_threshold (cap per request) or max_num_batched_tokens",
    "swap_space": "gone from vLLM, which never swaps; leave it out",
    "use_v2_block_manager": "gone from vLLM; leave it out",
    "max_num_queued_reqs": "refused requests would look like speed; leave it out",
    "max_num_queued_tokens": "refused requests would look like speed; leave it out",
    "stream_interval": "above 1 it falsifies the ITL that a client sees; leave it out",
    "disable_log_stats": "it removes the metrics that a trial reads; leave it out",
    "api_key": _OURS,
    "config": _OURS,
    "host": _OURS,
    "model": _OURS,
    "port": _OURS,
    "served_model_name": _OURS,
    "uds": _OURS,
}


def refuse_fixed(name: str) -> tuple[str, str] | None:
    """Why a setting cannot be part of every launch, and what to do instead; None when it can."""
    if name in VLLM_REFUSED:
        return f"{name} cannot be used", VLLM_REFUSED[name]
    if name in {"variant", "threads"}:
        return f"{name} is no option of the engine", "vary it in a search space, or begin with it by a preset"
    if name in VLLM or name in VLLM_FIXED_ONLY:
        return None
    near = get_close_matches(name, [*VLLM, *VLLM_FIXED_ONLY], n=1)
    return f"unknown option {name}", f"did you mean {near[0]}?" if near else "see `vllm serve --help=all`"
