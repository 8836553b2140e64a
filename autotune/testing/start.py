"""A start as the log tells it, and the ways in which it fails, in vLLM's own words.

Source of the texts: vllm/config/{model,scheduler}.py, vllm/v1/core/kv_cache_utils.py and
vllm/v1/engine/{core,utils}.py of 0.32; the out-of-memory line is PyTorch's.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping

from autotune.testing.model import Shape
from autotune.testing.script import Fault, Kind, Script
from autotune.testing.settings import Settings

_OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacity of "
    "139.80 GiB of which 1.20 GiB is free. Including non-PyTorch memory, this process has 138.58 GiB memory "
    "in use. Of the allocated memory 136.90 GiB is allocated by PyTorch, and 312.45 MiB is reserved by "
    "PyTorch but unallocated."
)
_CRASH = "AssertionError: layout of group 3"
_FAILED = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"


class StartError(Exception):
    """The start is over; exit 1. `process` is where vLLM meets the cause."""

    def __init__(self, process: str, cause: str) -> None:
        super().__init__(cause)
        self.process, self.cause = process, cause


def log(process: str, text: str, *, level: str = "INFO") -> None:
    """One line of the engine's log on stdout."""
    stamp = time.strftime("%m-%d %H:%M:%S")
    sys.stdout.write(f"({process} pid={os.getpid()}) {level} {stamp} [engine.py:1] {text}\n")
    sys.stdout.flush()


def log_failure(error: StartError) -> None:
    """The cause as a traceback; behind one of the engine, the line of the server that ends every log."""
    trace = f'Traceback (most recent call last):\n  File "engine.py", line 1, in start\n{error.cause}'
    if error.process == "EngineCore":
        log("EngineCore", "EngineCore failed to start.", level="ERROR")
        for line in trace.splitlines():
            log("EngineCore", line, level="ERROR")
        trace = f"Traceback (most recent call last):\n{_FAILED}"
    for line in trace.splitlines():
        sys.stderr.write(f"(APIServer pid={os.getpid()}) {line}\n")


def kv_bytes(settings: Settings, script: Script) -> int:
    """Size of the KV pool."""
    return int(settings.options.get("kv_cache_memory_bytes", script.kv_bytes))


def check(settings: Settings, script: Script, faults: Mapping[Kind, Fault]) -> tuple[Shape, int, int]:
    """The model's shape, its length limit and the KV tokens; raises `StartError` in vLLM's order."""
    options, model = settings.options, settings.options["model"]
    try:
        shape = Shape.read(settings)
    except FileNotFoundError as error:
        text = "Repo id must be in the form 'repo_name' or 'namespace/repo_name'"
        cause = f"huggingface_hub.errors.HFValidationError: {text}: '{model}'."
        raise StartError("APIServer", cause) from error
    limit = options.get("max_model_len", str(shape.max_position))
    fitted = limit in ("auto", "-1") and "kv_too_small" not in faults
    length = shape.max_position if limit in ("auto", "-1") else int(limit)
    _check_options(settings, shape, length, refuse="bad_flag" in faults)
    if "oom" in faults:
        raise StartError("EngineCore", _OOM)
    if "crash" in faults:
        raise StartError("EngineCore", _CRASH)
    size, block = kv_bytes(settings, script), settings.number("block_size")
    if "kv_too_small" in faults:
        size = min(size, length * shape.kv_bytes // 2)
    tokens = size // shape.kv_bytes // block * block
    if fitted and tokens:
        length = min(length, tokens)
    if tokens < length:
        cause = (
            f"ValueError: To serve at least one request with the model's max seq len ({length}), "
            f"({length * shape.kv_bytes / 2**30:.2f} GiB KV cache is needed, which is larger than the "
            f"available KV cache memory ({size / 2**30:.2f} GiB). Based on the available memory, the "
            f"estimated maximum model length is {tokens}. Try increasing `gpu_memory_utilization` (which "
            "also controls CPU memory on the CPU backend) or decreasing `max_model_len` when "
            "initializing the engine."
        )
        raise StartError("EngineCore", cause)
    return shape, length, tokens


def _check_options(settings: Settings, shape: Shape, length: int, *, refuse: bool) -> None:
    """Refuse what pydantic refuses before an engine process exists."""
    seqs, tokens = settings.number("max_num_seqs"), settings.number("max_num_batched_tokens")
    ranks = settings.number("tensor_parallel_size")
    if length > shape.max_position:
        _invalid(
            "ModelConfig",
            f"User-specified max_model_len ({length}) is greater than the derived max_model_len "
            f"(max_position_embeddings={shape.max_position} or model_max_length=None in config.json).",
        )
    if shape.heads % ranks:
        _invalid(
            "VllmConfig",
            f"Total number of attention heads ({shape.heads}) must be divisible by tensor parallel size "
            f"({ranks}).",
        )
    if settings.options["enable_chunked_prefill"] == "false" and tokens < length:
        _invalid(
            "SchedulerConfig",
            f"max_num_batched_tokens ({tokens}) is smaller than max_model_len ({length}). This effectively "
            "limits the maximum sequence length to max_num_batched_tokens and makes vLLM reject longer "
            "sequences. Please increase max_num_batched_tokens or decrease max_model_len.",
        )
    if refuse or tokens < seqs:
        _invalid(
            "SchedulerConfig",
            f"max_num_batched_tokens ({tokens}) must be greater than or equal to max_num_seqs ({seqs}).",
        )


def _invalid(config: str, text: str) -> None:
    tail = "[type=value_error, input_value=ArgsKwargs((), {}), input_type=ArgsKwargs]"
    head = f"pydantic_core._pydantic_core.ValidationError: 1 validation error for {config}"
    raise StartError("APIServer", f"{head}\n  Value error, {text} {tail}")
