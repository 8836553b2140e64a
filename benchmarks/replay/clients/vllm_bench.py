"""`vllm bench serve` with its `timed_trace` data set, which sends at the recorded times."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clients.contract import PROMPT_TOKENS, Ask, Told, installed

REPORT = "vllm.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmBench:
    """vLLM's benchmark client; it needs no engine, only vLLM's environment."""

    python: Path
    name: str = "vllm bench serve"

    def version(self) -> str | None:
        """The installed version; None when the client is not installed."""
        return installed(self.python, "vllm")

    def argv(self, ask: Ask) -> Sequence[str]:
        """The recorded times as they are, no ready check, and every request's own figures kept."""
        return (
            str(self.python.with_name("vllm")), "bench", "serve",
            "--backend", "openai", "--base-url", ask.url, "--endpoint", "/v1/completions",
            "--model", ask.model, "--tokenizer", str(ask.tokenizer),
            "--dataset-name", "timed_trace", "--dataset-path", str(ask.trace),
            "--timed-trace-sec-multiplier", "0.001", "--timed-trace-chunk-hash-size", str(PROMPT_TOKENS),
            "--num-prompts", str(len(ask.due_s)), "--seed", str(ask.seed),
            "--ready-check-timeout-sec", "0", "--disable-tqdm",
            "--save-result", "--save-detailed", "--result-dir", str(ask.folder), "--result-filename", REPORT,
        )  # fmt: skip

    def env(self, ask: Ask) -> Mapping[str, str]:  # noqa: ARG002  the contract's signature
        """Nothing may ask a hub; block contents follow from the hash seed."""
        return {"HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0", "VLLM_NO_USAGE_STATS": "1"}

    def read(self, ask: Ask) -> Told:
        """Starts and first tokens; its `perf_counter` stamps are seconds, a TTFT of 0 means none."""
        report = json.loads((ask.folder / REPORT).read_text(encoding="utf-8"))
        rows = sorted(zip(report["start_times"], report["ttfts"], strict=True))
        return Told(
            sent_s=tuple(float(start) for start, _ in rows),
            ttft_s=tuple(float(ttft) or None for _, ttft in rows),
            failed=int(report["failed"]),
        )
