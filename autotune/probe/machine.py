"""Processor, GPUs and ports of this machine."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import psutil

from autotune.domain.hardware import INSTRUCTION_SETS, Cpu, Gpu, Hardware
from autotune.errors import SetupError

_CPUINFO = Path("/proc/cpuinfo")


def hardware(gpus: tuple[int, ...] | None) -> Hardware:
    """The machine with the GPUs of these NVML indexes; None takes all visible ones, () none.

    Visible means named by CUDA_VISIBLE_DEVICES, or all when that is unset. A machine without driver
    has no GPUs; asking for one there, or for an index that is absent, raises `SetupError`, and so
    does a driver that does not answer.
    """
    found, driver = ((), None) if gpus == () else _gpus(gpus)
    return Hardware(cpu=_cpu(), gpus=found, driver=driver)


def free_port(ports: tuple[int, int], avoid: Collection[int] = ()) -> int:
    """The first port of the inclusive range, not in `avoid`, that a server could bind on 127.0.0.1.

    Raises `SetupError` when there is none. With SO_REUSEADDR, as servers set it, a bind still fails while
    anything listens there, but not for the lingering connections of a stopped server.
    """
    low, high = ports
    for port in range(low, high + 1):
        if port in avoid:
            continue
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                probe.listen(1)
            except OSError:
                continue
            return port
    raise SetupError(
        f"no free port in {low}-{high}", hint="stop what listens there, or give another range of ports"
    )


def _cpu() -> Cpu:
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    fields: dict[str, str] = {}  # of the first processor: all have the same
    for line in text.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    flags = fields.get("flags", "").split()
    memory = psutil.virtual_memory()
    core_ids = tuple(sorted(os.sched_getaffinity(0)))
    return Cpu(
        name=fields.get("model name") or platform.processor() or platform.machine(),
        cores=len(core_ids),
        core_ids=core_ids,
        memory_bytes=memory.total,
        available_bytes=memory.available,
        isa=tuple(flag for flag in INSTRUCTION_SETS if flag in flags),
    )


def _gpus(wanted: tuple[int, ...] | None) -> tuple[tuple[Gpu, ...], str | None]:
    try:
        import pynvml  # noqa: PLC0415  the CPU path needs no NVML
    except ImportError:
        return _without_driver(wanted, "the package nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded) as error:
        return _without_driver(wanted, f"there is no NVIDIA driver ({error})")
    except pynvml.NVMLError as error:
        raise _silent(error) from error
    try:
        count = pynvml.nvmlDeviceGetCount()
        if wanted is None:
            indexes = _visible(pynvml, count, os.environ.get("CUDA_VISIBLE_DEVICES"))
        else:
            indexes = list(dict.fromkeys(wanted))
            _refuse_absent(indexes, count)
        found = tuple(_gpu(pynvml, index) for index in indexes)
        return found, _text(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError as error:
        raise _silent(error) from error
    finally:
        pynvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return Gpu(
        index=index,
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        name=_text(nvml.nvmlDeviceGetName(handle)),
        memory_bytes=int(memory.total),
        free_bytes=int(memory.free),
        compute_capability=(int(major), int(minor)),
    )


def _visible(nvml: Any, count: int, named: str | None) -> Sequence[int]:
    """The NVML indexes that CUDA_VISIBLE_DEVICES names, by number in bus order or by UUID.

    Like CUDA, stops at the first entry that names no device.
    """
    if named is None:
        return range(count)
    uuids = [_text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index))) for index in range(count)]
    indexes: list[int] = []
    for entry in (part.strip() for part in named.split(",")):
        if entry.startswith("MIG-"):
            raise SetupError(
                f"CUDA_VISIBLE_DEVICES names a slice of a GPU, {entry}",
                hint="autotune measures whole GPUs: name one by index or UUID, or switch MIG off",
            )
        if entry.startswith("GPU-"):
            matching = [index for index, uuid in enumerate(uuids) if uuid.startswith(entry)]
        else:
            matching = [int(entry)] if entry.isdecimal() and int(entry) < count else []
        if not matching or matching[0] in indexes:
            break
        indexes.append(matching[0])
    return indexes


def free_gpu_bytes(gpus: Sequence[Gpu]) -> tuple[int, ...]:
    """Free memory of each GPU now; () without GPUs. Raises `SetupError` when the driver does not answer."""
    if not gpus:
        return ()
    import pynvml  # noqa: PLC0415  as above

    try:
        pynvml.nvmlInit()
        try:
            handles = [pynvml.nvmlDeviceGetHandleByIndex(gpu.index) for gpu in gpus]
            return tuple(int(pynvml.nvmlDeviceGetMemoryInfo(handle).free) for handle in handles)
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise _silent(error) from error


def _without_driver(wanted: tuple[int, ...] | None, why: str) -> tuple[tuple[Gpu, ...], None]:
    if wanted:
        raise SetupError(
            f"GPU {', '.join(map(str, wanted))} was asked for, but {why}",
            hint="use --gpus none to serve on the CPU, or install the NVIDIA driver",
        )
    return (), None


def _refuse_absent(indexes: Sequence[int], count: int) -> None:
    absent = [index for index in indexes if not 0 <= index < count]
    if absent:
        there = ", ".join(map(str, range(count))) or "none"
        raise SetupError(
            f"GPU {', '.join(map(str, absent))} is not there; this machine has: {there}",
            hint=f"use --gpus with some of {there}" if count else "use --gpus none to serve on the CPU",
        )


def _silent(error: Exception) -> SetupError:
    return SetupError(
        f"the NVIDIA driver does not answer: {error}",
        hint="see whether nvidia-smi works for this user, or use --gpus none to serve on the CPU",
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
