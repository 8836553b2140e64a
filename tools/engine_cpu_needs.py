"""What this machine lacks for environments and for vLLM on a CPU, as Debian packages, one a line.

    apt-get install $(python3.11 tools/engine_cpu_needs.py)

Run it with the interpreter that will make the environments. Exits with 1 when something is missing.
"""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"


def loads(library: str) -> bool:
    """True when the dynamic linker finds the library."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def lacking() -> Iterator[tuple[str, str]]:
    """Each missing package and what it is for."""
    if importlib.util.find_spec("ensurepip") is None:
        yield f"{_PYTHON}-venv", "python -m venv puts pip into an environment"
    if shutil.which("g++") is None:
        yield "g++", "torch.compile builds its CPU kernels with it"
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        yield f"{_PYTHON}-dev", "those kernels include Python.h"
    if not loads("libnuma.so.1"):
        yield "libnuma1", "vLLM's CPU kernels are linked against it"


def main() -> None:
    """Print the packages, and the reasons beside them on stderr."""
    missing = dict(lacking())
    for package, reason in missing.items():
        print(package)
        print(f"missing: {package}: {reason}", file=sys.stderr)
    raise SystemExit(1 if missing else 0)


if __name__ == "__main__":
    main()
