"""The scripted engine as an installation that can be found, asked for its version and launched."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from autotune.testing.script import Script

_ROOT = Path(__file__).resolve().parents[2]

_VLLM = """\
#!/bin/sh
export PYTHONPATH={root}${{PYTHONPATH:+:$PYTHONPATH}}
{script}exec {python} -P -m autotune.testing "$@"
"""

_PYTHON = """\
#!/bin/sh
case "$1 $2" in
  "-m vllm.entrypoints.cli.main") shift 2; exec {vllm} "$@" ;;
  "-m vllm.entrypoints.openai.api_server") shift 2; exec {vllm} serve "$@" ;;
esac
export PYTHONPATH={lib}${{PYTHONPATH:+:$PYTHONPATH}}
exec {python} "$@"
"""


def install(folder: Path, *, script: Script | None = None) -> Path:
    """Write `folder/bin/vllm` and a `folder/bin/python` that has it; return the former.

    The wrapper exports `script`; without one the caller's AUTOTUNE_SCRIPT counts. Installing again
    changes the script of later launches. That python runs `-m vllm.entrypoints.cli.main` and finds
    the metadata of a distribution called vllm; anything else goes to the real interpreter.
    """
    vllm, lib = folder / "bin" / "vllm", folder / "lib"
    for old in lib.glob("vllm-*.dist-info"):
        shutil.rmtree(old)
    version = (script or Script()).version
    metadata = lib / f"vllm-{version}.dist-info" / "METADATA"
    for path in (vllm, metadata):
        path.parent.mkdir(parents=True, exist_ok=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    python = shlex.quote(sys.executable)
    exported = "" if script is None else f"export AUTOTUNE_SCRIPT={shlex.quote(script.json())}\n"
    texts = {
        vllm: _VLLM.format(root=shlex.quote(str(_ROOT)), script=exported, python=python),
        vllm.with_name("python"): _PYTHON.format(
            vllm=shlex.quote(str(vllm)), lib=shlex.quote(str(lib)), python=python
        ),
    }
    for path, text in texts.items():
        path.write_text(text)
        path.chmod(0o755)
    return vllm
