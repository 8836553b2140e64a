"""The command: parse, print, exit codes. Heavy imports live inside the command that needs them."""

from autotune.cli.app import main

__all__ = ["main"]
