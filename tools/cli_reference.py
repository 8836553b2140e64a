"""Make docs/reference/cli.md from the command's own --help.

.venv/bin/python tools/cli_reference.py > docs/reference/cli.md
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

COMMAND = Path(sys.executable).with_name("autotune")
ENVIRON = {**os.environ, "COLUMNS": "80", "TERMINAL_WIDTH": "80", "NO_COLOR": "1"}


def reference() -> str:
    """The page: one block for each command and sub-command, at 80 columns."""
    blocks = ["# Command line\n\nMade from `--help` by `tools/cli_reference.py`.\n"]
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        words = waiting.pop(0)
        said = subprocess.run(
            [COMMAND, *words, "--help"], capture_output=True, text=True, check=True, env=ENVIRON
        ).stdout.strip()
        blocks.append(f"## {' '.join(['autotune', *words])}\n\n```\n{said}\n```\n")
        waiting = [(*words, name) for name in _commands(said)] + waiting
    return "\n".join(blocks)


def _commands(said: str) -> list[str]:
    """The names under `Commands:`, in the order in which they are shown."""
    _, _, listed = said.partition("\nCommands:\n")
    return re.findall(r"^  ([a-z-]+)", listed, re.MULTILINE)


if __name__ == "__main__":
    print(reference(), end="")
