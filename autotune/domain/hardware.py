"""What the engine runs on, and what it serves, as far as planning needs to know."""

from __future__ import annotations

from dataclasses import dataclass

INSTRUCTION_SETS = ("avx2", "avx512f", "avx512_bf16", "amx_tile")
"""Those that decide what vLLM can run on a CPU, and how fast, as Linux calls them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One NVIDIA device as NVML reports it."""

    index: int
    uuid: str
    name: str
    memory_bytes: int
    free_bytes: int
    compute_capability: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """The processor of the machine; `cores` are those this process may use."""

    name: str
    cores: int
    core_ids: tuple[int, ...]
    memory_bytes: int
    available_bytes: int
    isa: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The machine: its processor and the GPUs the run may use (none: the CPU serves)."""

    cpu: Cpu
    gpus: tuple[Gpu, ...]
    driver: str | None

    def __str__(self) -> str:
        if self.gpus:
            return f"{len(self.gpus)} × {self.gpus[0].name}"
        return f"{self.cpu.name}, {self.cpu.cores} cores"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfile:
    """Shapes from config.json and the safetensors headers; no weight is loaded.

    `parameters` and `weights_bytes` are None for a folder without weights.
    """

    name: str
    path: str
    architecture: str
    dtype: str
    quantization: str | None
    parameters: int | None
    weights_bytes: int | None
    layers: int
    hidden_size: int
    heads: int
    kv_heads: int
    head_size: int
    vocab_size: int
    max_position: int

    def kv_bytes_per_token(self, element_bytes: float) -> float:
        """Keys and values of all layers: 2 · layers · KV heads · head size · bytes.

        Source: page size of `FullAttentionSpec` in vllm/v1/kv_cache_interface.py.
        """
        return 2 * self.layers * self.kv_heads * self.head_size * element_bytes
