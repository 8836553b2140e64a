"""Which windows say more of the machine than of the configuration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from report_fixtures import RUN

from autotune import replay as replaying
from autotune.domain.client import Client
from autotune.domain.launch import Endpoint, StartFacts
from autotune.domain.run import Run
from autotune.domain.slo import Sla
from autotune.domain.timing import Timing
from autotune.domain.workload import Request, Workload
from autotune.engine import vllm
from autotune.errors import EngineError, ReplayError
from autotune.evaluate.window import Bench, _refuse_void, warm_up

MS = 1_000_000
CLIENT = Client(
    workers=1,
    send_lag_p99_s=0.0,
    loop_lag_p99_s=0.0,
    cpu_s=0.1,
    cpu_share=0.1,
    waited_share=None,
    reconnects=0,
)


def sent(late_ms: int, first_ms: int) -> Timing:
    """A request due at 0, sent late, whose two tokens came at `first_ms` and 20 ms later."""
    return Timing(
        index=0,
        due_ns=0,
        sent_ns=late_ms * MS,
        token_ns=(first_ms * MS, (first_ms + 20) * MS),
        prompt_tokens=8,
        output_tokens=2,
        ended_ns=(first_ms + 20) * MS,
        finished=True,
    )


def judge_machine(
    *timings: Timing, sla: str, device: str = "cuda", foreign: float = 0.0, late_ms: float = 0.0
) -> None:
    """Raise what the window is void for."""
    engine = replace(RUN.engine, device=device)  # type: ignore[arg-type]
    run: Run = replace(RUN, engine=engine, sla=Sla.parse([sla]))
    _refuse_void(run, replace(CLIENT, send_lag_p99_s=late_ms / 1e3), foreign, timings)


def test_a_late_client_voids_the_window() -> None:
    judge_machine(*[sent(5, 300)] * 10, sla="ttft_p90=500ms", late_ms=5)
    with pytest.raises(ReplayError, match=r"our own client was late: p99 of 6.* allowed 5"):
        judge_machine(*[sent(6, 300)] * 10, sla="ttft_p90=500ms", late_ms=6)


def test_a_failure_stands_when_it_fails_from_the_actual_send_as_well() -> None:
    judge_machine(*[sent(100, 700)] * 10, sla="ttft_p90=500ms", late_ms=100)  # 600 ms after it was sent
    with pytest.raises(ReplayError):  # 400 ms: the lateness was ours
        judge_machine(*[sent(300, 700)] * 10, sla="ttft_p90=500ms", late_ms=300)


def test_work_of_others_voids_a_window_of_an_engine_on_the_cpu_alone() -> None:
    judge_machine(sent(0, 100), sla="ttft_p50=500ms", device="cuda", foreign=0.9)
    judge_machine(sent(0, 100), sla="ttft_p50=500ms", device="cpu", foreign=0.1)
    with pytest.raises(ReplayError, match=r"other programs took 11% of the processor .*, allowed 10%"):
        judge_machine(sent(0, 100), sla="ttft_p50=500ms", device="cpu", foreign=0.11)


def test_a_warm_up_may_take_as_long_as_a_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jobs: list[replaying.Job] = []

    def nothing_finishes(job: replaying.Job) -> Iterator[replaying.Replayed]:
        jobs.append(job)
        cut_off = replace(sent(0, 100), finished=False, error="still running when the window closed")
        yield replaying.Replayed(timings=(cut_off,), curtailed=False, client=CLIENT)

    monkeypatch.setattr(replaying, "replay", nothing_finishes)
    request = Request(offset_s=0.0, prompt_tokens=8, output_tokens=2)
    bench = Bench(
        run=replace(RUN, start_deadline_s=77.0),
        engine=vllm,
        workload=Workload(name="one", source="one.csv", sha256="", requests=(request,)),
        folder=tmp_path,
        quality_text="",
        owned=lambda owned: None,
        disowned=lambda owned: None,
    )
    endpoint = Endpoint(url="http://127.0.0.1:1", key="", model="m", facts=StartFacts(start_s=1.0))
    with pytest.raises(EngineError, match="answers no request: still running"):
        warm_up(bench, endpoint)
    assert [job.drain_s for job in jobs] == [77.0]
