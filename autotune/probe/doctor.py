"""A look at the machine before a run: what is in order, what will hurt, what is missing."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autotune.domain.hardware import Hardware
from autotune.errors import AutotuneError
from autotune.probe.installed import engine
from autotune.probe.machine import free_port, hardware
from autotune.units import show_bytes

_MEMORY_BYTES = 6 * 2**30  # 2.8 GB for a model of 135 M on the CPU, the rest for replay and tables
_DISK_BYTES = 2 * 2**30
_SHM_BYTES = 2**30  # containers come with 64 MiB
_OPEN_FILES = 4096  # every stream of a replay holds one, and so does the server's side of it
_SHM = Path("/dev/shm")  # noqa: S108  not a temporary file: the mount that worker processes share


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing looked at: whether it is in order, and what that means for a run."""

    status: Literal["ok", "warn", "bad"]
    subject: str
    meaning: str


def findings(
    *,
    gpus: tuple[int, ...] | None = None,
    engine_python: str | None = None,
    ports: tuple[int, int] = (8100, 8199),
    folder: Path = Path(),
) -> tuple[Finding, ...]:
    """All that a run would need, looked at with the same probes; errors become `bad` findings.

    `folder` is where the run would write.
    """
    return tuple(_look(gpus, engine_python, ports, folder))


def _look(
    gpus: tuple[int, ...] | None, engine_python: str | None, ports: tuple[int, int], folder: Path
) -> Iterator[Finding]:
    machine: Hardware | None = None
    try:
        machine = hardware(gpus)
    except AutotuneError as error:
        yield _bad("GPUs", error)
        machine = hardware(())
        gpus_present = True  # unknown; the engine is judged for itself
    else:
        gpus_present = bool(machine.gpus)
        yield from _gpus(machine)
    yield _cores(machine)
    yield _memory(machine)
    yield _tried("engine", lambda: _engine(engine_python, gpus_present=gpus_present))
    yield _tried("port", lambda: f"{free_port(ports)} of {ports[0]}-{ports[1]} is free")
    yield _open_files()
    yield _disk(folder)
    yield _shared_memory()


def _tried(subject: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(status="ok", subject=subject, meaning=look())
    except AutotuneError as error:
        return _bad(subject, error)


def _bad(subject: str, error: AutotuneError) -> Finding:
    meaning = f"{error.message}; {error.hint}" if error.hint else error.message
    return Finding(status="bad", subject=subject, meaning=meaning)


def _engine(engine_python: str | None, *, gpus_present: bool) -> str:
    spec = engine(engine_python, gpus_present=gpus_present)
    return f"{spec.name} {spec.version} for {spec.device}: {' '.join(spec.command)}"


def _gpus(machine: Hardware) -> Iterator[Finding]:
    if not machine.gpus:
        yield Finding(status="ok", subject="GPUs", meaning="none: the CPU serves")
    for gpu in machine.gpus:
        free = f"{show_bytes(gpu.free_bytes)} of {show_bytes(gpu.memory_bytes)} free"
        meaning = f"{gpu.name}, {free}"
        if gpu.free_bytes < 0.92 * gpu.memory_bytes:  # what vLLM asks for when left alone
            meaning += "; another process holds memory that vLLM wants"
            yield Finding(status="warn", subject=f"GPU {gpu.index}", meaning=meaning)
        else:
            yield Finding(status="ok", subject=f"GPU {gpu.index}", meaning=meaning)


def _cores(machine: Hardware) -> Finding:
    cpu = machine.cpu
    if cpu.cores == 1:
        meaning = f"{cpu.name}, one core: the load generator and the engine will disturb each other"
        return Finding(status="warn", subject="CPU", meaning=meaning)
    isa = f", {' '.join(cpu.isa)}" if cpu.isa else ""
    slow = "" if machine.gpus or "avx512_bf16" in cpu.isa else "; no avx512_bf16: bfloat16 is slow here"
    return Finding(status="ok", subject="CPU", meaning=f"{cpu.name}, {cpu.cores} cores{isa}{slow}")


def _memory(machine: Hardware) -> Finding:
    cpu = machine.cpu
    meaning = f"{show_bytes(cpu.available_bytes)} of {show_bytes(cpu.memory_bytes)} free"
    if cpu.available_bytes >= _MEMORY_BYTES:
        return Finding(status="ok", subject="memory", meaning=meaning)
    meaning += "; below 6 GiB an engine may not start, or be killed while it loads"
    return Finding(status="warn", subject="memory", meaning=meaning)


def _open_files() -> Finding:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or limit >= _OPEN_FILES:
        meaning = "no limit" if limit == resource.RLIM_INFINITY else f"up to {limit}"
        return Finding(status="ok", subject="open files", meaning=meaning)
    meaning = f"up to {limit}: every stream holds one; raise it with ulimit -n {_OPEN_FILES}"
    return Finding(status="warn", subject="open files", meaning=meaning)


def _disk(folder: Path) -> Finding:
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Finding(status="bad", subject="disk", meaning=f"{folder}: {error.strerror}")
    meaning = f"{show_bytes(free)} free in {folder.absolute()}"
    if free >= _DISK_BYTES:
        return Finding(status="ok", subject="disk", meaning=meaning)
    return Finding(status="warn", subject="disk", meaning=f"{meaning}; engine logs and stamps may fill it")


def _shared_memory() -> Finding:
    try:
        total = shutil.disk_usage(_SHM).total
    except OSError:
        meaning = f"there is no {_SHM}: engines with worker processes do not start"
        return Finding(status="warn", subject="shared memory", meaning=meaning)
    if total >= _SHM_BYTES:
        return Finding(status="ok", subject="shared memory", meaning=f"{show_bytes(total)} in {_SHM}")
    meaning = f"{show_bytes(total)} in {_SHM}: too little for several workers; docker run --shm-size=8g"
    return Finding(status="warn", subject="shared memory", meaning=meaning)
