"""An int8 copy of a Llama model folder: round to nearest, numpy only, no calibration data.

    python tools/quantize_int8.py models/smollm2-135m models/smollm2-135m-w8a8

Weights of the linear layers become int8 with one scale for each output channel, activations int8 with one
scale for each token, found while serving ("w8a8"). The copy is in the compressed-tensors format, which
vLLM knows by config.json without a flag. A whole folder is left as it is.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
from model_folder import Tensor, appearing, is_whole, read_tensors, write_json, write_tensors

_LINEAR = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
_INT8 = {"num_bits": 8, "type": "int", "symmetric": True}

# Source: `QuantizationConfig` in src/compressed_tensors/quantization/quant_config.py of compressed-tensors.
QUANTIZATION = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {**_INT8, "strategy": "channel", "dynamic": False},
            "input_activations": {**_INT8, "strategy": "token", "dynamic": True},
            "output_activations": None,
        }
    },
}


def quantized(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """The tensors that stand for this one: int8 rows and their scales, or itself if it is no linear weight.

    The scale puts the largest magnitude of a row at 127; −128 stays unused, so that zero maps to zero.
    """
    layer, _, kind = name.rpartition(".")
    if kind != "weight" or layer.rpartition(".")[2] not in _LINEAR:
        return {name: tensor}
    values = tensor.float32()
    scale = np.maximum(np.abs(values).max(axis=1, keepdims=True), 1e-8) / 127.0
    rows = np.clip(np.rint(values / scale), -127, 127).astype(np.int8)
    return {
        name: Tensor(dtype="I8", values=rows),
        f"{name}_scale": Tensor(dtype="F32", values=scale.astype(np.float32)),
    }


def main() -> None:
    """Read the arguments and make the copy."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("model", type=Path, help="a model folder in bfloat16, float16 or float32")
    parser.add_argument("out", type=Path, help="the folder to make")
    arguments = parser.parse_args()
    model, out = arguments.model, arguments.out
    if is_whole(out):
        print(f"{out}: already there")
        return
    if not is_whole(model):
        raise SystemExit(f"{model} is not a model folder: it needs config, tokenizer and model.safetensors")
    with appearing(out) as part:
        tensors: dict[str, Tensor] = {}
        for name, tensor in read_tensors(model / "model.safetensors").items():
            tensors |= quantized(name, tensor)
        size = write_tensors(part / "model.safetensors", tensors)
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        write_json(part / "config.json", {**config, "quantization_config": QUANTIZATION})
        for file in model.iterdir():
            if file.is_file() and file.name not in {"model.safetensors", "config.json"}:
                shutil.copy2(file, part / file.name)
    print(f"{out}: int8 weights and activations, {size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
