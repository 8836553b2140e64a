"""The replay process against a real server: sends on time, counts exactly, and calls a failure a failure."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import cast

import httpx
import psutil
import pyarrow.parquet as pq
import pytest

from autotune.domain.slo import Sla
from autotune.domain.timing import Timing
from autotune.domain.workload import Request
from autotune.errors import ReplayError
from autotune.replay import Job, Progress, Replayed, parent, read_timings, replay, write_timings
from autotune.score.counts import count, holds
from autotune.testing import Fault, Script, install, write_model
from autotune.traffic import Due, cut

DEADLINE_S = 20.0
KEY = "a-key-of-this-test"
LOOSE = Sla.parse(["ttft_p90=20s"])
# Recorded gaps of 20 and 180 ms; lengths that tell requests apart.
RECORDED = tuple(
    Request(offset_s=0.1 * index + 0.08 * (index % 2), prompt_tokens=10 + index, output_tokens=3 + index % 4)
    for index in range(20)
)


def until(condition: Callable[[], object], within_s: float = DEADLINE_S) -> None:
    deadline, tick = time.monotonic() + within_s, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        tick.wait(0.02)


class Server:
    """A scripted engine that answers."""

    def __init__(self, url: str, process: subprocess.Popen[bytes]) -> None:
        self.url, self.process = url, process

    def metric(self, name: str) -> float:
        lines = httpx.get(f"{self.url}/metrics", trust_env=False).text.splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(f"vllm:{name}{{"))

    def ready(self) -> bool:
        assert self.process.poll() is None
        try:
            return httpx.get(f"{self.url}/health", trust_env=False).status_code == 200
        except httpx.ConnectError:
            return False


Serve = Callable[..., Server]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    with ExitStack() as cleanup:

        def start(*faults: Fault, step_s: float = 0.0005) -> Server:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port: int = probe.getsockname()[1]
            vllm = install(tmp_path, script=Script(faults=faults, step_s=step_s))
            model = write_model(tmp_path / "m")
            process = subprocess.Popen(
                [vllm, "serve", model, "--port", str(port), "--served-model-name", "m"],
                env=os.environ | {"VLLM_API_KEY": KEY},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            cleanup.callback(process.wait)
            cleanup.callback(process.kill)
            server = Server(f"http://127.0.0.1:{port}", process)
            until(server.ready)
            return server

        yield start


def window(*, speed: float = 1.0, first: int = 0, count: int = 10) -> tuple[Due, ...]:
    """That many requests of the recording, and a lead-in of 0.3 s."""
    return cut(
        RECORDED,
        first=first,
        end=len(RECORDED),
        speed=speed,
        count=count,
        at_least_s=0.0,
        at_most_s=60.0,
        lead_in_s=0.3,
    )


def short(output_tokens: int = 5) -> Request:
    return Request(offset_s=0.0, prompt_tokens=10, output_tokens=output_tokens)


def asked(index: int, due_s: float, *, output_tokens: int = 5) -> Due:
    """A measured request of ten tokens."""
    request = Request(offset_s=due_s, prompt_tokens=10, output_tokens=output_tokens)
    return Due(index=index, due_s=due_s, request=request, measured=True)


def together(count: int, *, output_tokens: int = 5) -> tuple[Due, ...]:
    """Requests that are all due at once."""
    return tuple(
        Due(index=index, due_s=0.0, request=short(output_tokens), measured=True) for index in range(count)
    )


def job(
    server: Server,
    due: tuple[Due, ...],
    *,
    sla: Sla = LOOSE,
    allowed: int = 0,
    run_to_end: bool = False,
    drain_s: float = 20.0,
    key: str = KEY,
) -> Job:
    return Job(
        url=server.url,
        key=key,
        model="m",
        vocabulary=49152,
        block_tokens=None,
        seed=0,
        salt="window",
        cache_salt="window",
        due=due,
        sla=sla,
        allowed=(allowed,) * len(sla.slos),
        run_to_end=run_to_end,
        drain_s=drain_s,
    )


def replayed(work: Job) -> Replayed:
    *progress, last = replay(work)
    assert all(isinstance(frame, Progress) for frame in progress)
    assert isinstance(last, Replayed)
    return last


def clients() -> list[psutil.Process]:
    """Replay processes of this one."""
    return [child for child in psutil.Process().children() if "autotune.replay.client" in child.cmdline()]


# -- on time --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("speed", "seconds"), [(1.0, 0.98), (2.0, 0.49)])  # 9 · 0.1 s and the last 0.08 s
def test_requests_are_sent_when_they_are_due(serve: Serve, speed: float, seconds: float) -> None:
    server = serve()
    timings = replayed(job(server, window(speed=speed))).timings
    assert [timing.index for timing in timings] == list(range(10))
    gaps = [(b.due_ns - a.due_ns) / 1e9 for a, b in pairwise(timings)]
    assert gaps == pytest.approx([(0.18, 0.02)[index % 2] / speed for index in range(9)], abs=1e-6)
    assert (timings[-1].due_ns - timings[0].due_ns) / 1e9 == pytest.approx(seconds, abs=1e-6)
    lags = [timing.send_lag_s() for timing in timings]
    assert all(lag is not None and 0 <= lag < 0.5 for lag in lags)


def test_every_token_is_counted_as_the_server_counts_it(serve: Serve) -> None:
    server = serve()
    timings = replayed(job(server, window())).timings
    assert all(timing.finished and timing.error is None for timing in timings)
    assert [len(timing.token_ns) for timing in timings] == [3, 4, 5, 6, 3, 4, 5, 6, 3, 4]
    assert [timing.seen_prompt_tokens for timing in timings] == list(range(10, 20))
    assert all(list(timing.token_ns) == sorted(timing.token_ns) for timing in timings)
    assert server.metric("generation_tokens_total") == 43
    assert server.metric("prompt_tokens_total") == 145  # 10 + 11 + … + 19
    assert server.metric("request_success_total") == 10


def test_the_lead_in_is_sent_but_not_measured(serve: Serve) -> None:
    server = serve()
    due = window(first=5)  # 0.3 s before the request at 0.58 s are those at 0.28, 0.38 and 0.40 s
    assert [one.index for one in due if not one.measured] == [3, 4]
    timings = replayed(job(server, due)).timings
    assert [timing.index for timing in timings] == list(range(5, 15))
    assert server.metric("request_success_total") == 12


def test_a_frozen_engine_does_not_delay_the_sends(serve: Serve) -> None:
    server = serve(Fault(fault="freeze"))
    timings = replayed(job(server, window(), run_to_end=True, drain_s=0.5)).timings
    assert len(timings) == 10
    assert all((lag := timing.send_lag_s()) is not None and lag < 0.5 for timing in timings)


def test_more_requests_are_in_flight_than_any_connection_pool_holds_by_default(serve: Serve) -> None:
    server = serve(Fault(fault="freeze"))
    frames = replay(job(server, together(150), run_to_end=True, drain_s=20))
    with closing(frames):
        until(lambda: next(frames) and waiting(server) == 150)
    until(lambda: waiting(server) == 0)


def waiting(server: Server) -> float:
    return server.metric("num_requests_waiting") + server.metric("num_requests_running")


def test_progress_counts_up_to_the_whole_window(serve: Serve) -> None:
    *_, last, result = replay(job(serve(), window()))
    assert isinstance(last, Progress)
    assert (last.sent, last.finished, last.bad) == (10, 10, 0)
    assert isinstance(result, Replayed)
    assert 0 <= result.loop_lag_p99_s < 0.5
    assert 0 < result.client.cpu_share < 1


# -- what is bad ----------------------------------------------------------------------------------


def test_a_window_that_is_decided_stops(serve: Serve) -> None:
    server = serve(Fault(fault="freeze"))
    sla = Sla.parse(["ttft_p50=100ms"])
    many = tuple(Due(index=index, due_s=0.05 * index, request=short(), measured=True) for index in range(200))
    result = replayed(job(server, many, sla=sla, allowed=3))
    assert result.curtailed
    assert 4 <= len(result.timings) < 200
    assert all(timing.cancelled and not timing.finished for timing in result.timings)
    (slo,) = sla.slos
    assert count(slo, result.timings).bad > 3
    assert not holds([count(slo, result.timings)])


def test_a_window_that_is_wanted_whole_runs_to_its_end(serve: Serve) -> None:
    server = serve(Fault(fault="freeze"))
    work = job(server, window(), sla=Sla.parse(["ttft_p50=10ms"]), run_to_end=True, drain_s=0.5)
    result = replayed(work)
    assert not result.curtailed
    assert len(result.timings) == 10


def test_a_frozen_engine_answers_nobody_and_that_is_bad_not_absent(serve: Serve) -> None:
    server = serve(Fault(fault="freeze", after=5))
    sla = Sla.parse(["ttft_p90=20s", "itl_p90=20s", "tpot_p90=20s", "e2el_p90=20s"])
    timings = replayed(job(server, window(speed=0.5), sla=sla, run_to_end=True, drain_s=0.5)).timings
    assert [timing.finished for timing in timings] == [True] * 5 + [False] * 5
    assert {timing.error for timing in timings[5:]} == {"timed out"}
    assert all(timing.ttft_s() is None and timing.sent_ns is not None for timing in timings[5:])
    counts = {slo.key: count(slo, timings) for slo in sla.slos}
    assert {key: one.bad for key, one in counts.items()} == {
        "ttft_p90": 5,
        "itl_p90": 17,  # the gaps that the last five should have had: 3 + 4 + 5 + 2 + 3
        "tpot_p90": 5,
        "e2el_p90": 5,
    }
    assert [counts[key].n for key in ("ttft_p90", "tpot_p90", "e2el_p90")] == [10, 10, 10]
    assert all(one.value_s is None for one in counts.values())
    assert not any(map(holds, ([one] for one in counts.values())))


def test_a_request_that_has_waited_past_its_limit_is_bad_before_it_ends(serve: Serve) -> None:
    server = serve(Fault(fault="freeze"))
    frames = replay(job(server, together(3), sla=Sla.parse(["ttft_p50=200ms"]), run_to_end=True))
    with closing(frames):
        seen = next(frame for frame in frames if isinstance(frame, Progress) and frame.bad)
    assert (seen.sent, seen.finished, seen.bad) == (3, 0, 3)


def test_a_short_output_is_a_failure(serve: Serve) -> None:
    timings = replayed(job(serve(Fault(fault="short_output", after=1)), window(), allowed=10)).timings
    errors = Counter(timing.error for timing in timings)
    # outputs of 3, 4, 5 and 6 tokens lose two; the first request is spared
    assert errors == {
        None: 1,
        "short output: 1 of 3 tokens": 2,
        "short output: 2 of 4 tokens": 3,
        "short output: 3 of 5 tokens": 2,
        "short output: 4 of 6 tokens": 2,
    }
    assert sum(timing.finished for timing in timings) == 1


def test_an_engine_that_dies_mid_stream_has_failed_although_it_says_done(serve: Serve) -> None:
    server = serve(Fault(fault="die_mid_stream"))
    (timing,) = replayed(job(server, together(1), allowed=1)).timings
    assert not timing.finished
    assert not timing.cancelled
    assert len(timing.token_ns) == 2
    assert timing.error is not None
    assert timing.error.startswith("engine error in stream: ")
    assert server.process.wait(DEADLINE_S) == 0


def test_a_server_that_is_gone_fails_every_request(serve: Serve) -> None:
    server = serve()
    server.process.kill()
    server.process.wait()
    timings = replayed(job(server, window(), allowed=10)).timings
    assert len(timings) == 10
    assert not any(timing.finished or timing.token_ns for timing in timings)
    assert all(timing.error == "no connection: Connection refused" for timing in timings)


def test_a_refusal_is_told_with_its_status(serve: Serve) -> None:
    (timing,) = replayed(job(serve(), together(1), allowed=1, key="not the key")).timings
    assert timing.error is not None
    assert timing.error.startswith("HTTP 401: ")
    assert not timing.finished


# -- the client itself ----------------------------------------------------------------------------


def test_a_client_that_is_killed_is_a_replay_error(serve: Serve) -> None:
    frames = replay(job(serve(Fault(fault="freeze")), window(), run_to_end=True))
    next(frames)
    (client,) = clients()
    client.kill()
    with pytest.raises(ReplayError, match="the replay client ended early: exit -9"):
        list(frames)


def test_a_client_that_fails_tells_its_last_line(serve: Serve) -> None:
    work = replace(job(serve(), window()), url="ftp://127.0.0.1")
    with pytest.raises(ReplayError, match=r"ended early: ValueError: 'ftp://127\.0\.0\.1' is not an http"):
        list(replay(work))


def test_a_client_that_falls_silent_is_a_replay_error(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = replay(job(serve(Fault(fault="freeze")), window(), run_to_end=True))
    next(frames)
    (client,) = clients()
    client.suspend()
    monkeypatch.setattr(parent, "SILENCE_S", 0.5)  # thirty seconds in earnest
    with pytest.raises(ReplayError, match="the replay client said nothing"):
        list(frames)
    assert not client.is_running()


def test_leaving_a_window_ends_its_client(serve: Serve) -> None:
    frames = replay(job(serve(Fault(fault="freeze")), window(), run_to_end=True))
    with closing(frames):
        next(frames)
        assert len(clients()) == 1
    assert clients() == []


def test_a_machine_without_files_to_open_is_not_the_engines_failure(serve: Serve) -> None:
    server = serve(Fault(fault="freeze"))
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))\n"
    many = TUNER.replace("(Due(index=0,", "tuple(Due(index=i,").replace(
        "True),)", "True) for i in range(60))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", limit + many, server.url], check=False, capture_output=True, text=True
    )
    assert "our own client could not open a connection: Too many open files" in ended.stderr


def test_a_client_dies_with_the_tuner(serve: Serve) -> None:
    server = serve(Fault(fault="freeze"))
    tuner = subprocess.Popen(
        [sys.executable, "-c", TUNER, server.url], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert tuner.stdout is not None
    assert tuner.stdout.readline() == b"under way\n"
    (client,) = psutil.Process(tuner.pid).children()
    tuner.send_signal(signal.SIGKILL)
    tuner.wait()
    tuner.stdout.close()
    until(lambda: not client.is_running() or client.status() == psutil.STATUS_ZOMBIE)
    until(lambda: waiting(server) == 0)


TUNER = f"""
import sys
from autotune.domain.slo import Sla
from autotune.domain.workload import Request
from autotune.replay import Job, replay
from autotune.traffic import Due
request = Request(offset_s=0.0, prompt_tokens=10, output_tokens=5)
due = (Due(index=0, due_s=0.0, request=request, measured=True),)
frames = replay(Job(url=sys.argv[1], key={KEY!r}, model="m", vocabulary=49152, block_tokens=None, seed=0,
                    salt="", cache_salt="", due=due,
                    sla=Sla.parse(["ttft_p90=20s"]), allowed=(0,), run_to_end=True, drain_s=30.0))
next(frames)
print("under way", flush=True)
list(frames)
"""


# -- sessions -------------------------------------------------------------------------------------


def turns(*think_s: float | None, due_s: Sequence[float]) -> tuple[Due, ...]:
    """One conversation; each turn waits for the one before it."""
    return tuple(
        Due(
            index=10 + number,
            due_s=at,
            request=Request(offset_s=at, prompt_tokens=10, output_tokens=5, session="a", think_s=think),
            measured=True,
            after=9 + number if number else None,
        )
        for number, (think, at) in enumerate(zip(think_s, due_s, strict=True))
    )


def test_a_turn_leaves_its_think_time_after_the_answer_before_it(serve: Serve) -> None:
    due = turns(None, 0.1, 0.0, due_s=[0.0, 0.01, 5.0])
    first, second, third = replayed(job(serve(), due, run_to_end=True)).timings
    assert second.due_ns == first.ended_ns + 100_000_000
    assert third.due_ns == second.ended_ns
    assert all(timing.finished for timing in (first, second, third))
    assert all((lag := one.send_lag_s()) is not None and 0 <= lag < 0.5 for one in (first, second, third))


def test_a_turn_without_a_think_time_leaves_when_it_did_or_after_the_answer(serve: Serve) -> None:
    due = turns(None, None, None, due_s=[0.0, 0.4, 0.4001])
    first, second, third = replayed(job(serve(step_s=0.02), due, run_to_end=True)).timings
    assert second.due_ns == first.due_ns + 400_000_000
    assert third.due_ns == second.ended_ns


def test_a_turn_that_would_leave_after_the_window_is_not_sent_unless_all_is_wanted(serve: Serve) -> None:
    due = turns(None, 0.05, 0.5, 0.0, due_s=[0.0, 0.1, 0.2, 0.3])
    server = serve()
    kept = replayed(job(server, due)).timings
    assert [timing.index for timing in kept] == [10, 11]
    assert server.metric("request_success_total") == 2
    everything = replayed(job(server, due, run_to_end=True)).timings
    assert [timing.index for timing in everything] == [10, 11, 12, 13]


def test_a_long_session_that_is_not_sent_any_more_is_dropped_whole(serve: Serve) -> None:
    """A thousand turns and more, as coding agents have them."""
    think_s = [None, 0.05, *[0.5] * 1200]
    due = turns(*think_s, due_s=[0.0001 * number for number in range(len(think_s))])
    assert [timing.index for timing in replayed(job(serve(), due)).timings] == [10, 11]


def test_a_failed_turn_does_not_end_its_session(serve: Serve) -> None:
    due = turns(None, 0.0, 0.0, due_s=[0.0, 0.1, 0.2])
    timings = replayed(job(serve(Fault(fault="short_output")), due, run_to_end=True, allowed=3)).timings
    assert [timing.error for timing in timings] == ["short output: 3 of 5 tokens"] * 3


def test_a_turn_whose_answer_before_it_never_comes_is_a_failure(serve: Serve) -> None:
    due = turns(None, 0.0, due_s=[0.0, 0.1])
    work = job(serve(Fault(fault="freeze")), due, run_to_end=True, allowed=2, drain_s=0.4)
    first, second = replayed(work).timings
    assert first.error == "timed out"
    assert second.error == "not sent: the answer it waits for did not come"
    assert second.sent_ns is None
    assert not second.cancelled


# -- several workers ------------------------------------------------------------------------------


def test_several_workers_send_one_window(serve: Serve) -> None:
    server = serve()
    result = replayed(replace(job(server, window()), workers=3))
    assert result.client.workers == 3
    assert [timing.index for timing in result.timings] == list(range(10))
    gaps = [(b.due_ns - a.due_ns) / 1e9 for a, b in pairwise(result.timings)]
    assert gaps == pytest.approx([(0.18, 0.02)[index % 2] for index in range(9)], abs=1e-6)
    assert all(timing.finished for timing in result.timings)
    assert server.metric("generation_tokens_total") == 43


def test_several_workers_stop_when_their_sum_decides(serve: Serve) -> None:
    many = tuple(asked(index, 0.05 * index) for index in range(200))
    work = job(serve(Fault(fault="freeze")), many, sla=Sla.parse(["ttft_p50=100ms"]), allowed=3)
    result = replayed(replace(work, workers=2))
    assert result.curtailed
    assert 4 <= len(result.timings) < 200
    assert [timing.index for timing in result.timings] == list(range(len(result.timings)))


def test_the_loss_of_one_worker_ends_them_all(serve: Serve) -> None:
    work = job(serve(Fault(fault="freeze")), window(), run_to_end=True)
    frames = replay(replace(work, workers=2))
    next(frames)
    assert len(clients()) == 2
    clients()[1].kill()
    with pytest.raises(ReplayError, match="the replay client ended early: exit -9"):
        list(frames)
    assert clients() == []


def test_a_window_without_requests_is_no_window() -> None:
    with pytest.raises(ReplayError, match="the window holds no request"):
        list(replay(job(Server("http://127.0.0.1:1", cast("subprocess.Popen[bytes]", None)), ())))


# -- on disk --------------------------------------------------------------------------------------


def timing(**changes: object) -> Timing:
    whole = Timing(
        index=7,
        due_ns=2**60 + 1,  # more digits than a float holds
        sent_ns=2**60 + 2,
        token_ns=(2**60 + 3, 2**60 + 3, 2**60 + 5),
        prompt_tokens=10,
        output_tokens=3,
        ended_ns=2**60 + 6,
        finished=True,
    )
    return Timing(**{name: getattr(whole, name) for name in Timing.__slots__} | changes)


def test_timings_come_back_from_parquet_exactly(tmp_path: Path) -> None:
    written = (
        timing(),
        timing(sent_ns=None, token_ns=(), finished=False, error="timed out"),
        timing(token_ns=(5,), finished=False, cancelled=True, error="cancelled", seen_prompt_tokens=11),
    )
    write_timings(written, tmp_path / "window.parquet")
    assert read_timings(tmp_path / "window.parquet") == written
    assert [path.name for path in tmp_path.iterdir()] == ["window.parquet"]


def test_first_and_last_token_stand_beside_the_stamps(tmp_path: Path) -> None:
    write_timings((timing(), timing(token_ns=())), tmp_path / "window.parquet")
    rows = pq.read_table(tmp_path / "window.parquet").to_pylist()
    assert [(row["first_ns"], row["last_ns"]) for row in rows] == [(2**60 + 3, 2**60 + 5), (None, None)]


def test_a_window_of_real_timings_comes_back_from_parquet(serve: Serve, tmp_path: Path) -> None:
    timings = replayed(job(serve(Fault(fault="short_output", after=3)), window(), allowed=10)).timings
    write_timings(timings, tmp_path / "window.parquet")
    assert read_timings(tmp_path / "window.parquet") == timings


def test_a_window_without_requests_comes_back_from_parquet(tmp_path: Path) -> None:
    write_timings((), tmp_path / "window.parquet")
    assert read_timings(tmp_path / "window.parquet") == ()
