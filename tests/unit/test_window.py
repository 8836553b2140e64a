"""Which windows say more of the machine than of the configuration."""

from __future__ import annotations

from dataclasses import replace

import pytest
from report_fixtures import RUN

from autotune.domain.client import Client
from autotune.domain.run import Run
from autotune.domain.slo import Sla
from autotune.domain.timing import Timing
from autotune.errors import ReplayError
from autotune.evaluate.window import _refuse_void

MS = 1_000_000


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
    client = Client(
        workers=1,
        send_lag_p99_s=late_ms / 1e3,
        loop_lag_p99_s=0.0,
        cpu_s=0.1,
        cpu_share=0.1,
        waited_share=None,
        reconnects=0,
    )
    _refuse_void(run, client, foreign, timings)


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
