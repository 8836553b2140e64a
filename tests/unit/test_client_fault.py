"""When a window says more of our own client than of the configuration."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.domain.client import Client
from autotune.domain.slo import Sla
from autotune.score.client_fault import allowed_late_s, client_faults

HEALTHY = Client(
    workers=1,
    send_lag_p99_s=0.0003,
    loop_lag_p99_s=0.0005,
    cpu_s=1.0,
    cpu_share=0.3,
    waited_share=0.01,
    reconnects=0,
)


def reasons(sla: str, **changes: float | None) -> list[str]:
    client = replace(HEALTHY, **changes)  # type: ignore[arg-type]
    return [fault.reason for fault in client_faults(client, Sla.parse([sla]))]


def test_a_healthy_client_has_no_fault() -> None:
    assert reasons("ttft_p99=50ms, itl_p99=20ms, tpot_p99=10ms, e2el_p99=1s") == []
    assert reasons("ttft_p99=500ms", send_lag_p99_s=None, waited_share=None) == []


@pytest.mark.parametrize(
    ("sla", "allowed_s"),
    [
        ("ttft_p99=500ms", 0.005),
        ("ttft_p99=100ms", 0.002),
        ("ttft_p99=2s, e2el_p99=3s", 0.020),
        ("ttft_p99=2s, ttft_p50=400ms", 0.004),
        ("e2el_p99=10s", 0.1),
        ("tpot_p99=40ms", 0.002),
    ],
)
def test_a_send_may_be_late_by_two_ms_or_a_hundredth_of_the_limit(sla: str, allowed_s: float) -> None:
    assert allowed_late_s(Sla.parse([sla])) == pytest.approx(allowed_s)


def test_a_late_client_is_told_with_its_lag_and_what_is_allowed() -> None:
    assert reasons("ttft_p99=500ms", send_lag_p99_s=0.005) == []
    assert reasons("ttft_p99=500ms", send_lag_p99_s=0.0051) == [
        "our own client was late: p99 of 5.1 ms after the due time, allowed 5 ms"
    ]


def test_a_loop_that_wakes_late_stamps_late() -> None:
    assert reasons("ttft_p99=500ms", loop_lag_p99_s=0.005) == []
    assert reasons("itl_p99=40ms", loop_lag_p99_s=0.0041) == [
        "our own client was slow to stamp: p99 of 4.1 ms, allowed 4 ms"
    ]
    assert reasons("ttft_p99=10s, tpot_p99=60ms", loop_lag_p99_s=0.0061) == [
        "our own client was slow to stamp: p99 of 6.1 ms, allowed 6 ms"
    ]


def test_a_worker_that_wants_most_of_a_core_is_starved() -> None:
    assert reasons("ttft_p99=500ms", cpu_share=0.5, waited_share=0.3) == []
    assert reasons("ttft_p99=500ms", cpu_share=0.5, waited_share=0.4) == [
        "our own client was starved of CPU: one of 1 workers wanted 90% of a core and got 50%, allowed 80%"
    ]
    assert len(reasons("ttft_p99=500ms", cpu_share=0.9, waited_share=None)) == 1


def test_only_a_late_send_can_be_taken_off_again() -> None:
    bad = replace(HEALTHY, send_lag_p99_s=1.0, loop_lag_p99_s=1.0, cpu_share=1.0)
    assert [fault.from_due for fault in client_faults(bad, Sla.parse(["ttft_p99=1s"]))] == [
        True,
        False,
        False,
    ]
