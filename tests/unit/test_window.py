"""Which windows say more of the machine than of the configuration."""

from __future__ import annotations

from dataclasses import replace

import pytest
from report_fixtures import RUN

from autotune.domain.run import Run
from autotune.domain.slo import Sla
from autotune.domain.timing import Timing
from autotune.errors import ReplayError
from autotune.evaluate.window import _refuse_void
from autotune.score.measure import measure

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
    *timings: Timing, sla: str, device: str = "cuda", foreign: float = 0.0, loop_ms: float = 0.0
) -> None:
    """Raise what the window is void for."""
    engine = replace(RUN.engine, device=device)  # type: ignore[arg-type]
    run: Run = replace(RUN, engine=engine, sla=Sla.parse([sla]))
    found = measure(
        timings, sla=run.sla, speed=1, rate_rps=1, planned=len(timings), curtailed=False, engine={}
    )
    lags = {"foreign_cpu_share": foreign, "loop_lag_p99_s": loop_ms / 1e3}
    _refuse_void(run, replace(found, **lags), timings)  # type: ignore[arg-type]


def test_a_client_later_than_a_tenth_of_the_ttft_limit_voids_the_window() -> None:
    judge_machine(*[sent(50, 300)] * 10, sla="ttft_p90=500ms")
    with pytest.raises(
        ReplayError, match=r"our own client was late: p99 of 51 ms over 10 sends, allowed 50 ms"
    ):
        judge_machine(*[sent(51, 300)] * 10, sla="ttft_p90=500ms")


def test_a_failure_stands_when_it_fails_from_the_actual_send_as_well() -> None:
    judge_machine(*[sent(100, 700)] * 10, sla="ttft_p90=500ms")  # 600 ms after it was sent
    with pytest.raises(ReplayError):
        judge_machine(*[sent(300, 700)] * 10, sla="ttft_p90=500ms")  # 400 ms: the lateness was ours


def test_a_late_send_says_nothing_of_the_time_between_tokens() -> None:
    judge_machine(*[sent(400, 500)] * 10, sla="tpot_p90=60ms")


def test_a_slow_loop_voids_a_window_judged_by_gaps() -> None:
    judge_machine(*[sent(0, 100)] * 10, sla="itl_p90=50ms", loop_ms=5.0)
    with pytest.raises(ReplayError, match="slow to stamp: p99 of 6 ms, allowed 5 ms"):
        judge_machine(*[sent(0, 100)] * 10, sla="itl_p90=50ms", loop_ms=6.0)


def test_work_of_others_voids_a_window_of_an_engine_on_the_cpu_alone() -> None:
    judge_machine(sent(0, 100), sla="ttft_p50=500ms", device="cuda", foreign=0.9)
    judge_machine(sent(0, 100), sla="ttft_p50=500ms", device="cpu", foreign=0.1)
    with pytest.raises(ReplayError, match=r"other programs took 11% of the processor .*, allowed 10%"):
        judge_machine(sent(0, 100), sla="ttft_p50=500ms", device="cpu", foreign=0.11)
