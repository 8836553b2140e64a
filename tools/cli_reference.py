"""Make docs/reference/cli.md from the command's own --help.

.venv/bin/python tools/cli_reference.py > docs/reference/cli.md
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

COMMANDS = ("", "run", "resume", "report", "doctor")


def reference() -> str:
    """The page: one block for each command, at 80 columns."""
    command = Path(sys.executable).with_name("autotune")
    environ = {**os.environ, "COLUMNS": "80", "TERMINAL_WIDTH": "80", "NO_COLOR": "1"}
    blocks = ["# Command line\n\nMade from `--help` by `tools/cli_reference.py`.\n"]
    for name in COMMANDS:
        words = [name] if name else []
        said = subprocess.run(
            [command, *words, "--help"], capture_output=True, text=True, check=True, env=environ
        )
        title = " ".join(["autotune", *words])
        blocks.append(f"## {title}\n\n```\n{said.stdout.strip()}\n```\n")
    return "\n".join(blocks)


if __name__ == "__main__":
    print(reference(), end="")
