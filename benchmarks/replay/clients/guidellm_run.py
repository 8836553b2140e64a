"""`guidellm run` with its replay profile, which sends at the recorded times."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clients.contract import Ask, Told, installed

REPORT = "guidellm.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guidellm:
    """guidellm with one worker process: its ten by default would share one core."""

    python: Path
    name: str = "guidellm"

    def version(self) -> str | None:
        """The installed version; None when the client is not installed."""
        return installed(self.python, "guidellm")

    def argv(self, ask: Ask) -> Sequence[str]:
        """The trace as lengths and times, loaded before the run; every request kept in the report."""
        return (
            str(self.python.with_name("guidellm")), "run", "--disable-console-interactive",
            "--backend",
            f"kind=openai_http,target={ask.url},model={ask.model},request_format=/v1/completions",
            "--profile", "kind=replay,schedule_turn=timestamp",
            "--tokenizer", f"kind=huggingface_auto,model={ask.tokenizer}",
            "--data", f"kind=trace_synthetic,source.kind=json_file,source.path={ask.trace},time_scale=0.001",
            "--data-loader", f"kind=pytorch,samples={len(ask.due_s)}",
            "--seed", f"kind=static,value={ask.seed}",
            "--output", f"kind=json,path={ask.folder / REPORT}",
        )  # fmt: skip

    def env(self, ask: Ask) -> Mapping[str, str]:  # noqa: ARG002  the contract's signature
        """One worker; nothing may ask a hub."""
        return {"GUIDELLM__MAX_WORKER_PROCESSES": "1", "HF_HUB_OFFLINE": "1"}

    def read(self, ask: Ask) -> Told:
        """Due times, starts (wall clock) and first tokens of completed requests; others count as failed."""
        report = json.loads((ask.folder / REPORT).read_text(encoding="utf-8"))
        requests = report["benchmarks"][0]["requests"]
        rows = sorted(
            (
                float(one["info"]["timings"]["targeted_start"]),
                float(one["request_start_time"]),
                one["time_to_first_token_ms"],
            )
            for one in requests["successful"]
        )
        return Told(
            due_s=tuple(due for due, _, _ in rows),
            sent_s=tuple(start for _, start, _ in rows),
            ttft_s=tuple(None if ttft is None else ttft / 1e3 for _, _, ttft in rows),
            failed=len(requests["errored"]) + len(requests["incomplete"]),
        )
