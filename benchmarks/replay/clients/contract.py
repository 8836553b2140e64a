"""What every client is asked, and what it tells afterwards."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

PROMPT_TOKENS = 16
OUTPUT_TOKENS = 64
TTFT_S = 0.050
GAP_S = 0.010
STREAM_S = TTFT_S + (OUTPUT_TOKENS - 1) * GAP_S
"""How long the server streams one answer: 0.68 s."""
TRACE = "trace.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One load: where it goes, when each request is due, and where the client may write."""

    url: str
    model: str
    tokenizer: Path
    due_s: tuple[float, ...]
    seed: int
    folder: Path

    @property
    def trace(self) -> Path:
        """The schedule as a file that all clients read."""
        return self.folder / TRACE


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a client reported, request by request, in order of the due times, or of the sends.

    `sent_s` are its own stamps of the send, on a clock of its own choice; `ttft_s` is as it defines it, None
    for a request without a first token. `due_s` holds the due times on the same clock, None where the client
    does not say when its schedule began.
    """

    sent_s: tuple[float, ...]
    ttft_s: tuple[float | None, ...]
    failed: int
    due_s: tuple[float, ...] | None = None


class Client(Protocol):
    """One client as a command; reading its report raises `LookupError`, `OSError` or `ValueError`."""

    @property
    def name(self) -> str:
        """What tables call it."""

    def version(self) -> str | None:
        """The installed version; None when the client is not installed."""

    def argv(self, ask: Ask) -> Sequence[str]:
        """The command line that sends this load."""

    def env(self, ask: Ask) -> Mapping[str, str]:
        """Variables added to the environment."""

    def read(self, ask: Ask) -> Told:
        """What the finished command has left in the folder."""


def draw(*, rate_rps: float, seconds: float, seed: int) -> tuple[float, ...]:
    """Poisson arrivals in [0, seconds), the first at 0, in whole microseconds."""
    random_ = random.Random(f"{seed}/{rate_rps:.3f}")  # noqa: S311  a schedule hides nothing
    due_s = [0.0]
    while (following := due_s[-1] + random_.expovariate(rate_rps)) < seconds:
        due_s.append(following)
    return tuple(round(one, 6) for one in due_s)


def write_trace(ask: Ask) -> None:
    """The schedule in the layout of the Mooncake traces, which all clients read: milliseconds, one block."""
    lines = (
        json.dumps(
            {
                "timestamp": round(due_s * 1e3, 3),
                "input_length": PROMPT_TOKENS,
                "output_length": OUTPUT_TOKENS,
                "hash_ids": [index],
            }
        )
        for index, due_s in enumerate(ask.due_s)
    )
    ask.trace.write_text("\n".join(lines) + "\n", encoding="utf-8")


def installed(python: Path, package: str) -> str | None:
    """The version of `package` beside an interpreter, read from its metadata; None when it is not there."""
    for folder in sorted(python.parent.parent.glob("lib/python3*/site-packages")):
        for found in folder.glob(f"{package}-*.dist-info"):
            return found.name.removeprefix(f"{package}-").removesuffix(".dist-info")
    return None
