"""A model's shapes from config.json and the headers of its safetensors files; no weight is read."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.domain.hardware import ModelProfile
from autotune.errors import InputError

_NESTED = ("text_config", "language_config", "llm_config")  # the language part of multimodal models
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_HIDDEN = ("hidden_size", "n_embd", "d_model")
_HEADS = ("num_attention_heads", "n_head", "n_heads")
_KV_HEADS = ("num_key_value_heads", "n_head_kv", "num_kv_heads")
# Source: `derive_max_model_len_and_key` in vllm/transformers_utils/model_arch_config_convertor.py
_POSITIONS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
# These leave max_position_embeddings as it is; others multiply it by their factor.
# Source: `_get_and_verify_max_len` in vllm/config/model.py
_UNSCALED_ROPE = frozenset(
    {"default", "su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling"}
)
_DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
# Companions of quantised weights, which are no parameters of the model.
_COMPANIONS = ("scale", "scales", "scale_inv", "scale_2", "zero_point", "qzeros", "g_idx", "weight_shape")
_PACKED = ("qweight", "weight_packed", "_blocks")
_HEADER_LIMIT_BYTES = 100_000_000  # of the safetensors format
_AGAIN = "download the model again; a Git LFS pointer is a text file of some 130 bytes"


def model_profile(path: str) -> ModelProfile:
    """The profile of a model folder, or of a hub id found in the local Hugging Face cache.

    Raises `InputError` for a model that is not there or that does not say its shapes. MLA models
    keep one compressed vector per token, told here as one KV head of half its size.
    """
    folder = _folder(path)
    whole = _Config(folder / "config.json", _read_json(folder / "config.json"))
    text = next((whole.part(key) for key in _NESTED if whole.part(key).data), whole)
    tensors = _tensors(folder)
    quantization = whole.part("quantization_config").data or text.part("quantization_config").data
    heads, hidden = text.integer(*_HEADS), text.integer(*_HIDDEN)
    kv_heads = text.integer(*_KV_HEADS, otherwise=heads)
    head_size = text.integer("head_dim", otherwise=max(1, hidden // heads))
    latent = text.data.get("kv_lora_rank")
    if isinstance(latent, int) and latent > 0:
        kv_heads, head_size = 1, (latent + text.integer("qk_rope_head_dim", otherwise=0)) // 2
    bits = _weight_bits(quantization)
    return ModelProfile(
        name=path if "/" in path and not Path(path).expanduser().exists() else folder.name,
        path=str(folder),
        architecture=_architecture(whole),
        dtype=_dtype(text, whole, tensors),
        quantization=_method(folder, quantization),
        parameters=None if tensors is None else sum(tensor.parameters(bits) for tensor in tensors),
        weights_bytes=None if tensors is None else sum(tensor.nbytes for tensor in tensors),
        layers=text.integer(*_LAYERS),
        hidden_size=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        vocab_size=text.integer("vocab_size"),
        max_position=_max_position(text),
    )


@dataclass(frozen=True, slots=True)
class _Config:
    """A mapping of config.json, and the file for the errors."""

    file: Path
    data: Mapping[str, Any]

    def part(self, key: str) -> _Config:
        """A nested mapping; an empty one when it is absent."""
        inner = self.data.get(key)
        return _Config(self.file, inner if isinstance(inner, dict) else {})

    def integer(self, *names: str, otherwise: int | None = None) -> int:
        """The first of these keys that is set; it must be a positive integer."""
        for name in names:
            value = self.data.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(
                    f"{self.file}: {name} is {value!r}, not a positive integer",
                    hint="take config.json from the model's own repository",
                )
            return value
        if otherwise is None:
            raise InputError(
                f"{self.file}: lacks {names[0]}",
                hint="autotune needs a text-generation model's own config.json",
            )
        return otherwise


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int

    def parameters(self, bits: int | None) -> int:
        """Weights in this tensor: several to an element where they are packed, none in scales."""
        if self.name.endswith(_COMPANIONS):
            return 0
        packed = self.name.endswith(_PACKED) or (self.dtype == "U8" and self.name.endswith("weight"))
        if packed:
            return self.nbytes * 8 // (bits or 4)
        return math.prod(self.shape)


def _folder(path: str) -> Path:
    """The model's folder: the one given, or the newest snapshot of a hub id in the local cache."""
    given = Path(path).expanduser()
    if given.is_dir():
        return given.absolute()
    if given.exists():
        raise InputError(f"model {path}: is a file", hint="give the folder that holds config.json")
    cache = _hub_cache()
    name = path.strip("/")
    if path[:1] in "./~" or name.count("/") != 1:
        raise InputError(
            f"model {path}: no such folder", hint="give a folder with config.json, or a hub id like org/name"
        )
    repository = cache / f"models--{name.replace('/', '--')}"
    snapshot = _snapshot(repository)
    if snapshot is None:
        raise InputError(
            f"model {path}: no such folder, and not in the local cache {cache}",
            hint=f"download it first: hf download {name}",
        )
    return snapshot.absolute()


def _hub_cache() -> Path:
    """Where huggingface_hub keeps downloads. Source: huggingface_hub/constants.py."""
    if cache := os.environ.get("HF_HUB_CACHE"):
        return Path(cache).expanduser()
    if home := os.environ.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "huggingface" / "hub"


def _snapshot(repository: Path) -> Path | None:
    """The snapshot that refs/main names, else the newest one; None without any."""
    snapshots = repository / "snapshots"
    try:
        named = snapshots / (repository / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        named = snapshots
    if named != snapshots and named.is_dir():
        return named
    found = [folder for folder in snapshots.glob("*") if folder.is_dir()]
    return max(found, key=lambda folder: folder.stat().st_mtime, default=None)


def _read_json(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(
            f"{file}: no such file", hint="a model folder holds config.json in Hugging Face's format"
        ) from error
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}", hint="check its permissions") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: is not JSON: {error}", hint=_AGAIN) from error
    if not isinstance(data, dict):
        raise InputError(f"{file}: is no JSON object", hint=_AGAIN)
    return data


def _architecture(config: _Config) -> str:
    names = config.data.get("architectures")
    name = names[0] if isinstance(names, list) and names else config.data.get("model_type")
    if not isinstance(name, str):
        raise InputError(
            f"{config.file}: lacks architectures",
            hint="autotune needs a text-generation model's own config.json",
        )
    return name


def _dtype(text: _Config, whole: _Config, tensors: list[_Tensor] | None) -> str:
    """The dtype that config.json names, else the one that most weights have, else 'auto'."""
    for config in (text, whole):
        for key in ("dtype", "torch_dtype"):
            if isinstance(name := config.data.get(key), str):
                return name.removeprefix("torch.")
    sizes: Counter[str] = Counter()
    for tensor in tensors or ():
        sizes[tensor.dtype] += tensor.nbytes
    return _DTYPES.get(sizes.most_common(1)[0][0], "auto") if sizes else "auto"


def _method(folder: Path, quantization: Mapping[str, Any]) -> str | None:
    """The quantisation method of the checkpoint. ModelOpt keeps it in a file of its own."""
    if method := quantization.get("quant_method"):
        return str(method)
    return "modelopt" if (folder / "hf_quant_config.json").exists() else None


def _weight_bits(quantization: Mapping[str, Any]) -> int | None:
    """Bits of a packed weight, as the quantisation methods write it; None when they do not."""
    groups = quantization.get("config_groups")
    for group in groups.values() if isinstance(groups, dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        if isinstance(weights, dict) and isinstance(bits := weights.get("num_bits"), int) and bits > 0:
            return bits
    bits = quantization.get("bits", quantization.get("w_bit"))
    return bits if isinstance(bits, int) and bits > 0 else None


def _max_position(text: _Config) -> int:
    """The longest sequence that vLLM derives for the model.

    Source: `_get_and_verify_max_len` in vllm/config/model.py; Gemma 3 writes the scaled value.
    """
    known = [text.integer(name) for name in _POSITIONS if text.data.get(name) is not None]
    longest = min(known) if known else text.integer(_POSITIONS[0])
    rope = text.part("rope_scaling").data or text.part("rope_parameters").data
    kind, factor = rope.get("rope_type", rope.get("type", "default")), rope.get("factor")
    scaled = kind not in _UNSCALED_ROPE and "gemma3" not in str(text.data.get("model_type", ""))
    return int(longest * factor) if scaled and isinstance(factor, int | float) else longest


def _tensors(folder: Path) -> list[_Tensor] | None:
    """Every tensor of the safetensors files, None for a folder without them."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        shards = _read_json(index).get("weight_map")
        if not isinstance(shards, dict) or not shards:
            raise InputError(f"{index}: names no weights", hint=_AGAIN)
        files = [folder / Path(str(name)).name for name in sorted(set(map(str, shards.values())))]
    else:
        files = sorted(folder.glob("model*.safetensors")) or sorted(folder.glob("*.safetensors"))
    return [tensor for file in files for tensor in _header(file)] if files else None


def _header(file: Path) -> list[_Tensor]:
    """The tensors of one file. Format: 8 bytes of length, little-endian, then that much JSON."""
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 2 <= length <= _HEADER_LIMIT_BYTES:
                raise InputError(f"{file}: is no safetensors file", hint=_AGAIN)
            entries = json.loads(stream.read(length))
        size = file.stat().st_size
    except FileNotFoundError as error:
        raise InputError(f"{file}: is missing, but the index names it", hint=_AGAIN) from error
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}", hint="check its permissions") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: is no safetensors file", hint=_AGAIN) from error
    try:
        tensors = [
            _Tensor(
                name=name,
                dtype=str(entry["dtype"]),
                shape=tuple(int(side) for side in entry["shape"]),
                nbytes=int(entry["data_offsets"][1]) - int(entry["data_offsets"][0]),
            )
            for name, entry in entries.items()
            if name != "__metadata__"
        ]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{file}: has a garbled header", hint=_AGAIN) from error
    needed = 8 + length + sum(tensor.nbytes for tensor in tensors)
    if size < needed:
        raise InputError(f"{file}: is cut off, {size:,} of {needed:,} bytes", hint=_AGAIN)
    return tensors
