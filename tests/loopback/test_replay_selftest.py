"""The client against the server of known timing. What is asserted holds on a busy machine too."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from autotune.domain.workload import Request
from autotune.errors import ReplayError
from autotune.replay import selftest
from autotune.traffic import Due


def schedule(count: int, gap_s: float, *, tokens: int) -> tuple[Due, ...]:
    request = Request(offset_s=0.0, prompt_tokens=40, output_tokens=tokens, session="a", think_s=9.0)
    return tuple(
        Due(
            index=index,
            due_s=5.0 + gap_s * index,
            request=request,
            measured=False,
            after=index - 1 if index else None,
        )
        for index in range(count)
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_both_sides_of_each_request_are_compared(workers: int) -> None:
    own = selftest(schedule(20, 0.02, tokens=30), workers=workers, seconds=0.6)
    assert (own.requests, own.failed, own.client.workers) == (20, 0, workers)
    assert own.rate_rps == pytest.approx(20 / 1.0)  # 0.38 s are taken for a second
    assert own.true_ttft_p99_s >= 0.05  # it never answers early
    assert own.ttft_p99_s >= own.true_ttft_p99_s  # nor is anything seen before it was sent
    assert own.send_error_p99_s >= (own.client.send_lag_p99_s or 0.0) >= 0.0
    assert own.server_late_p99_s >= 0.0
    assert 0 < own.cpu_s_per_event < 0.1
    # 30 tokens within a third of 0.6 s, behind 0.05 s and 0.38 s of sends: some 600 tokens in 0.63 s
    assert 0 < own.events_per_s < 1_000


def test_only_the_busiest_part_is_played() -> None:
    own = selftest(schedule(30, 0.1, tokens=5), seconds=0.5)
    assert own.requests == 6  # at 0, 0.1, … 0.5 s


def test_a_window_without_requests_cannot_be_tested() -> None:
    with pytest.raises(ReplayError, match="the window holds no request"):
        selftest(())


def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "autotune", "doctor", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_the_doctor_tells_what_the_client_is_good_for() -> None:
    shown = doctor("--client", "--rate", "30")
    assert shown.returncode == 0
    assert "requests/s" in shown.stdout
    assert "TTFT p99 is off by" in shown.stdout.replace("\n", " ")
    found = json.loads(doctor("--client", "--rate", "30", "--json").stdout)["client"]
    assert found["failed"] == 0
    assert found["true_ttft_p99_s"] >= 0.05
    assert found["client"]["workers"] == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--client", "--rate", "0"], "error: --rate 0 is not between 0 and 10,000 requests/s"),
        (["--client", "--rate", "nan"], "error: --rate nan is not between 0 and 10,000 requests/s"),
        (["--rate", "5"], "error: --rate says nothing without --client"),
    ],
)
def test_a_rate_that_cannot_be_meant_is_refused(arguments: list[str], error: str) -> None:
    shown = doctor(*arguments)
    assert shown.returncode == 2
    assert shown.stderr.splitlines()[0] == error
