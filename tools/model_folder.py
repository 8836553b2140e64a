"""Model folders on disk: safetensors with numpy alone, and folders that appear whole or not at all."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_STORED_AS = {"BF16": np.uint16, "F16": np.float16, "F32": np.float32}  # numpy has no bfloat16: its bits


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """Values and their safetensors type name; BF16 values are held as their bits in uint16."""

    dtype: str
    values: npt.NDArray[Any]

    def float32(self) -> npt.NDArray[np.float32]:
        """The values widened to float32, exactly."""
        if self.dtype == "BF16":
            return (self.values.astype(np.uint32) << 16).view(np.float32)
        return self.values.astype(np.float32)


def bfloat16(values: npt.NDArray[np.float32]) -> Tensor:
    """The values rounded to the nearest bfloat16, ties to even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return Tensor(dtype="BF16", values=((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file.

    Source: the format's own description in README.md of huggingface/safetensors: eight bytes with
    the header's length, a JSON header with offsets counted from its end, then the values.
    """
    raw = path.read_bytes()
    start = 8 + int(struct.unpack("<Q", raw[:8])[0])
    tensors = {}
    for name, entry in json.loads(raw[8:start]).items():
        if name != "__metadata__":
            low, high = entry["data_offsets"]
            values = np.frombuffer(raw[start + low : start + high], dtype=_STORED_AS[entry["dtype"]])
            tensors[name] = Tensor(dtype=entry["dtype"], values=values.reshape(entry["shape"]))
    return tensors


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> int:
    """Write a safetensors file, tensors in the order of their names; returns the bytes of all values."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in sorted(tensors.items()):
        start, end = end, end + tensor.values.nbytes
        header[name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.values.shape),
            "data_offsets": [start, end],
        }
    blob = json.dumps(header, separators=(",", ":")).encode()
    blob += b" " * (-len(blob) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(blob)) + blob)
        for _, tensor in sorted(tensors.items()):
            file.write(np.ascontiguousarray(tensor.values).tobytes())
    return end


def write_json(path: Path, value: object) -> None:
    """Write readable JSON that ends with a newline."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def is_whole(folder: Path) -> bool:
    """True when config and tokenizer exist and the weights file is as long as its header says."""
    weights = folder / "model.safetensors"
    if not all((folder / name).is_file() for name in ("config.json", "tokenizer.json", weights.name)):
        return False
    with weights.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        entries = json.loads(file.read(length))
    end = max(entry["data_offsets"][1] for name, entry in entries.items() if name != "__metadata__")
    return weights.stat().st_size == 8 + int(length) + int(end)


@contextmanager
def appearing(folder: Path) -> Iterator[Path]:
    """A folder to fill, which gets its name when the block ends well.

    An interrupted start leaves `NAME.part`, which the next one replaces. A folder that has the name
    already and is not whole is not ours to delete: ends the script with what to do.
    """
    if folder.exists():
        raise SystemExit(f"{folder} exists and is not a whole model: move it away and start again")
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    yield part
    part.rename(folder)
