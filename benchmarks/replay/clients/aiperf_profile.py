"""`aiperf profile` with a fixed schedule."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clients.contract import OUTPUT_TOKENS, PROMPT_TOKENS, Ask, Told, installed

TRACE, REPORT = "aiperf.jsonl", "profile_export.jsonl"
PROMPT = " word" * PROMPT_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class Aiperf:
    """aiperf with one worker process, what its own rule gives a single core."""

    python: Path
    name: str = "aiperf"

    def version(self) -> str | None:
        """The installed version; None when the client is not installed."""
        return installed(self.python, "aiperf")

    def argv(self, ask: Ask) -> Sequence[str]:
        """The recorded times, no telemetry, counts from the server, every request kept in the report.

        Its trace says the prompts: to synthesise them, aiperf loads the tokenizer in processes of its own,
        which take a folder for the name of a hub.
        """
        lines = (
            json.dumps(
                {"timestamp": round(due_s * 1e3, 3), "text_input": PROMPT, "output_length": OUTPUT_TOKENS}
            )
            for due_s in ask.due_s
        )
        (ask.folder / TRACE).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return (
            str(self.python.with_name("aiperf")), "profile",
            "--model", ask.model, "--url", ask.url, "--endpoint-type", "completions", "--streaming",
            "--tokenizer", str(ask.tokenizer), "--use-server-token-count",
            "--input-file", str(ask.folder / TRACE), "--custom-dataset-type", "mooncake_trace",
            "--fixed-schedule",
            "--random-seed", str(ask.seed), "--workers-max", "1", "--record-processors", "1",
            "--ui", "none", "--no-gpu-telemetry", "--no-server-metrics",
            "--artifact-dir", str(ask.folder), "--export-level", "records",
        )  # fmt: skip

    def env(self, ask: Ask) -> Mapping[str, str]:  # noqa: ARG002  the contract's signature
        """Not HF_HUB_OFFLINE: with it a folder is taken for the name of a hub."""
        return {}

    def read(self, ask: Ask) -> Told:
        """Starts and first tokens of completed requests; others count as failed."""
        found = sorted(ask.folder.rglob(REPORT))
        if not found:
            raise FileNotFoundError(f"no {REPORT}")
        rows, failed = [], 0
        for line in found[0].read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            ttft = record["metrics"].get("time_to_first_token")
            failed += bool(record.get("error"))
            rows.append((record["metadata"]["request_start_ns"] / 1e9, ttft and ttft["value"] / 1e3))
        rows.sort(key=lambda row: row[0])
        return Told(
            sent_s=tuple(start for start, _ in rows), ttft_s=tuple(ttft for _, ttft in rows), failed=failed
        )
