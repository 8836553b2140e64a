"""The main job on real vLLM (CPU build) with a real model and real traffic: slow, run alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from serving import MODEL, PYTHON, ROOT, serving

AUTOTUNE = Path(sys.executable).with_name("autotune")

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

CONFIG = f"""
model: {MODEL}
variants: {{int8: {ROOT}/models/smollm2-135m-w8a8}}
workload: {ROOT}/workloads/azure-conv-cpu.csv
engine_python: {PYTHON}
quality: perplexity=2%
space: space.yaml
trials: 3
# The machine may be slow or busy: this test asks whether the path works, not how fast it is.
load:
  {{window_requests: 10, window: 5s, lead_in: 1s, start_speed: 1, min_speed: 0.25, resolution: 3,
    max_foreign_cpu: 80%}}
"""
SPACE = """
name: smoke
engine: vllm
device: cpu
versions: ">=0.26,<0.34"
# in float32, which every processor multiplies by itself: bfloat16 takes six times as long without AVX512_BF16
fixed: {kv_cache_memory_bytes: 600M, enforce_eager: true, dtype: float32}
parameters:
  threads: {levels: [auto, all], default: auto}
presets:
  - {name: all-cores, settings: {threads: all}, why: one thread by default}
  - {name: int8, settings: {variant: int8}, why: the gate must refuse it}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "autotune.yaml").write_text(CONFIG)
    (folder / "space.yaml").write_text(SPACE)
    done = subprocess.run(
        [AUTOTUNE, "run", "--sla", "ttft_p99=4s", "--out", "run", "--ports", "8300-8309"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "run"


def trials(run: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads((run / "result.json").read_text())["trials"]
    return found


def test_three_trials_of_real_vllm_find_a_configuration(run: Path) -> None:
    assert [trial["number"] for trial in trials(run)] == [0, 1, 2]
    assert trials(run)[0]["origin"] == "default"
    assert (run / "report.html").stat().st_size > 100_000


def test_the_gate_refuses_int8_weights_at_two_percent(run: Path) -> None:
    (refused,) = [trial for trial in trials(run) if trial["kind"] == "infeasible"]
    quality = refused["outcome"]["quality"]  # type: ignore[index]
    assert quality["precision"] == "variant=int8"
    assert quality["reference"] == pytest.approx(20.3, abs=0.1)  # transformers in float32: 20.29
    assert 0.02 < quality["increase"] < 0.1  # 2.7 and 3.2 % with AVX-512 VNNI, 5.5 % without


def test_the_tuned_configuration_serves(run: Path) -> None:
    with serving([run / "serve.sh"], 8310, within_s=180) as url:
        body = {"model": str(MODEL), "prompt": "The capital of France is"}
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60, trust_env=False)
    assert answer.raise_for_status().json()["usage"]["completion_tokens"] > 0
