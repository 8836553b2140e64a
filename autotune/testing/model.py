"""The model folder: what the engine reads of it, and a tiny one for tests."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.testing.settings import Settings

# SmolLM2-135M-Instruct: small, real, and what the CPU measurements of this project were made with.
_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 576,
    "head_dim": 64,
    "intermediate_size": 1536,
    "max_position_embeddings": 8192,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "num_hidden_layers": 30,
    "rms_norm_eps": 1e-05,
    "rope_theta": 100000.0,
    "tie_word_embeddings": True,
    "vocab_size": 49152,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def write_model(folder: Path, **changes: Any) -> Path:
    """Write a Hugging Face folder shaped like SmolLM2-135M with one real tensor, and return it.

    `changes` go into config.json; None removes a key. The name of the folder is free, so that a
    script can tell precisions by it (`model=*w8a8`).
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = {key: value for key, value in (_CONFIG | changes).items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    size = int(config.get("hidden_size", 576))
    tensor = {"dtype": "BF16", "shape": [size], "data_offsets": [0, 2 * size]}
    header = json.dumps({"__metadata__": {"format": "pt"}, "model.norm.weight": tensor}).encode()
    header += b" " * (-len(header) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(2 * size))
    return folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the engine needs of config.json; `kv_bytes` is per token of KV cache."""

    heads: int
    vocab: int
    max_position: int
    kv_bytes: int

    @classmethod
    def read(cls, settings: Settings) -> Shape:
        """The shape of the served model; a hub id that is not a folder has SmolLM2's.

        Raises `FileNotFoundError` for a path without config.json.
        """
        path = Path(settings.options["model"], "config.json")
        hub_id = not path.exists() and settings.options["model"][:1] not in ("/", ".")
        config = _CONFIG if hub_id else json.loads(path.read_text())
        heads = config["num_attention_heads"]
        kv_heads = config.get("num_key_value_heads", heads)
        head = config.get("head_dim") or config["hidden_size"] // heads
        element = 1 if settings.options["kv_cache_dtype"].startswith(("fp8", "int8")) else 2
        return cls(
            heads=heads,
            vocab=config["vocab_size"],
            max_position=config["max_position_embeddings"],
            kv_bytes=2 * config["num_hidden_layers"] * kv_heads * head * element,
        )
