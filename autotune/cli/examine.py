"""`doctor`: what this machine offers and lacks, and what that means for a run."""

from __future__ import annotations

import sys

import msgspec
from rich.console import Console
from rich.text import Text

from autotune.cli.settle import DEFAULT_PORTS, gpu_indexes
from autotune.errors import ExitCode
from autotune.probe import findings

STYLES = {"ok": "green", "warn": "yellow", "bad": "red"}


def examine(engine_python: str | None, gpus: str | None, *, as_json: bool) -> int:
    """Print the findings; 0 when nothing stands in the way of a run, else 3."""
    found = findings(engine_python=engine_python, gpus=gpu_indexes(gpus), ports=DEFAULT_PORTS)
    if as_json:
        sys.stdout.write(msgspec.json.encode({"findings": found}).decode() + "\n")
    else:
        console = Console(highlight=False)
        for finding in found:
            status = Text(f"{finding.status:<5}", style=STYLES[finding.status])
            console.print(status + Text(f"{finding.subject}: {finding.meaning}"))
    return ExitCode.SETUP if any(finding.status == "bad" for finding in found) else ExitCode.FOUND
