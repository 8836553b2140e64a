"""autotune's own replay, from the checkout that this file stands in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clients.contract import OUTPUT_TOKENS, PROMPT_TOKENS, Ask, Told

REQUEST, REPORT = "ours.request.json", "ours.json"
ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """`autotune.replay`, driven by `ours_send.py` in a process of its own."""

    python: Path
    workers: int | None = None
    """Client processes; None leaves the number to the replay."""

    @property
    def name(self) -> str:
        """What tables call it."""
        return "autotune" if self.workers is None else f"autotune, {self.workers} workers"

    def version(self) -> str | None:
        """The version of the checkout."""
        text = (ROOT / "autotune" / "__init__.py").read_text(encoding="utf-8")
        return text.partition('__version__ = "')[2].partition('"')[0] or None

    def argv(self, ask: Ask) -> Sequence[str]:
        """The sender as a script; its job goes by file and is written here."""
        body = {
            "url": ask.url, "model": ask.model, "seed": ask.seed, "due_s": ask.due_s,
            "prompt_tokens": PROMPT_TOKENS, "output_tokens": OUTPUT_TOKENS,
            "workers": self.workers,
        }  # fmt: skip
        (ask.folder / REQUEST).write_text(json.dumps(body), encoding="utf-8")
        sender = Path(__file__).with_name("ours_send.py")
        return (str(self.python), str(sender), str(ask.folder / REQUEST), str(ask.folder / REPORT))

    def env(self, ask: Ask) -> Mapping[str, str]:  # noqa: ARG002  the contract's signature
        """The checkout goes first, whatever else is installed."""
        return {"PYTHONPATH": str(ROOT)}

    def read(self, ask: Ask) -> Told:
        """Due, sent and first-token stamps; TTFT counts from the due time."""
        rows = json.loads((ask.folder / REPORT).read_text(encoding="utf-8"))["rows"]
        rows.sort(key=lambda row: row[0])
        return Told(
            due_s=tuple(due / 1e9 for due, *_ in rows),
            sent_s=tuple((due if sent is None else sent) / 1e9 for due, sent, *_ in rows),
            ttft_s=tuple(None if first is None else (first - due) / 1e9 for due, _, first, _ in rows),
            failed=sum(not finished for *_, finished in rows),
        )
