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
# CI's machine may be busy: this test asks whether the path works, not how fast it is.
load:
  {{window_requests: 40, window: 10s, lead_in: 1s, max_windows: 2, start_speed: 2, max_foreign_cpu: 80%}}
"""
SPACE = """
name: smoke
engine: vllm
device: cpu
versions: ">=0.26,<0.34"
fixed: {kv_cache_memory_bytes: 600M, enforce_eager: true}
parameters:
  threads: {levels: [auto, all], default: auto}
presets:
  - {name: all-cores, settings: {threads: all}, why: one thread by default}
  - {name: int8, settings: {variant: int8}, why: the gate must refuse it}
"""


@pytest.fixture(scope="module")
def study(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("study")
    (folder / "autotune.yaml").write_text(CONFIG)
    (folder / "space.yaml").write_text(SPACE)
    done = subprocess.run(
        [AUTOTUNE, "run", "--sla", "ttft_p99=2s", "--out", "run", "--ports", "8300-8309"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return folder / "run", done


def trials(run: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads((run / "result.json").read_text())["trials"]
    return found


def test_three_trials_of_real_vllm_find_a_configuration(
    study: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    run, done = study
    assert done.returncode == 0, done.stderr
    assert [trial["number"] for trial in trials(run)] == [0, 1, 2]
    assert trials(run)[0]["origin"] == "default"
    assert (run / "report.html").stat().st_size > 100_000


def test_the_gate_refuses_int8_weights_at_two_percent(
    study: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    run, _ = study
    (refused,) = [trial for trial in trials(run) if trial["kind"] == "infeasible"]
    quality = refused["outcome"]["quality"]  # type: ignore[index]
    assert quality["precision"] == "variant=int8"
    assert quality["reference"] == pytest.approx(20.3, abs=0.1)  # transformers in float32: 20.29
    assert 0.02 < quality["increase"] < 0.05  # 3.2 % on another machine


def test_the_tuned_configuration_serves(study: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    run, _ = study
    with serving([run / "serve.sh"], 8310, within_s=180) as url:
        body = {"model": str(MODEL), "prompt": "The capital of France is"}
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60, trust_env=False)
    assert answer.raise_for_status().json()["usage"]["completion_tokens"] > 0
