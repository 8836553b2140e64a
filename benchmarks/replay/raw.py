"""`raw.json`: one row a trial, written after every one of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from figures import SHARES, Figures, p99

NAME = "raw.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all trials of one session share."""

    machine: dict[str, str | int]
    versions: dict[str, str | None]
    seconds: float
    lead_s: float
    seed: int
    server_core: int
    client_core: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One trial; without figures `reason` says why there are none."""

    client: str
    streams: int
    repeat: int
    two_cores: bool
    figures: Figures | None
    reason: str | None

    @property
    def error(self) -> float | None:
        """TTFT p99 over the truth, less one; None without figures."""
        return self.figures.ttft_p99_error if self.figures else None

    def line(self) -> str:
        """For whoever waits at the terminal."""
        head = f"{self.client:>20} {self.streams:>4} streams, repeat {self.repeat}"
        one = self.figures
        if one is None:
            return f"{head}: {self.reason}"
        return (
            f"{head}: TTFT p99 {_show(p99(one.ttft_ms))} of {_show(p99(one.truth_ms))} ms, "
            f"send error p99 {_show(p99(one.send_error_ms))} ms, "
            f"{_show(one.cpu_us_per_event_in_load)} µs/event, "
            f"{one.offered_rps:.0f} of {one.asked_rps:.0f} requests/s, {one.peak_rss_mib:.0f} MiB"
        )


def _show(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def write_raw(setting: Setting, records: Sequence[Record], folder: Path) -> None:
    """Replace `raw.json` as a whole."""
    trials = ",\n".join(json.dumps(asdict(one), ensure_ascii=False) for one in records)
    head = json.dumps({"setting": asdict(setting), "quantiles_at": SHARES}, ensure_ascii=False)
    path = folder / NAME
    part = path.with_suffix(".part")
    part.write_text(f'{head[:-1]},\n"trials": [\n{trials}\n]}}\n', encoding="utf-8")
    part.replace(path)


def read_raw(folder: Path) -> tuple[Setting, tuple[Record, ...]]:
    """What `write_raw` wrote."""
    body: dict[str, Any] = json.loads((folder / NAME).read_text(encoding="utf-8"))
    records = tuple(
        Record(**{**one, "figures": one["figures"] and Figures(**_tuples(one["figures"]))})
        for one in body["trials"]
    )
    return Setting(**body["setting"]), records


def _tuples(figures: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(one) if isinstance(one, list) else one for name, one in figures.items()}
