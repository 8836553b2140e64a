"""Engines as processes: started, awaited, ended with all that belongs to them, and nothing else."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import httpx
import psutil
import pytest

from autotune.domain.launch import Endpoint, LaunchPlan, StartFacts
from autotune.engine.metrics import counters, wait_idle
from autotune.engine.process import Owned, Running, launch, members, sweep
from autotune.errors import EngineError, ReplayError, SetupError
from autotune.testing import Fault, Script, install, write_model

KEY = "a-key-of-this-test"
DEADLINE_S = 20.0
LONG = "import time; time.sleep(60)"  # longer than any test, shorter than a forgotten process
# An engine whose worker leaves its session and loses its parent, as a daemon does.
DAEMON = f"""
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "w").write(str(os.getpid()))
        {LONG}
    os._exit(0)
time.sleep(60)
"""
# A tuner that starts the engine given as argv, says whose session it is, and then does nothing.
TUNER = """
import sys, time
from pathlib import Path
from autotune.domain.launch import LaunchPlan
from autotune.engine.process import launch
log, port, *argv = sys.argv[1:]
plan = LaunchPlan(argv=tuple(argv), env={}, settings={}, deploy_env={}, port=int(port), served_model="m",
                  start_deadline_s=20.0)
engine = launch(plan, key="k", log=Path(log))
for _ in engine.wait_ready():
    pass
print(engine.owned.session, engine.owned.began, engine.owned.boot, flush=True)
time.sleep(60)
"""


def until(condition: Callable[[], object], within_s: float = DEADLINE_S) -> None:
    deadline, tick = time.monotonic() + within_s, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        tick.wait(0.02)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def alive(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def plan_of(*argv: str, port: int | None = None, start_deadline_s: float = DEADLINE_S) -> LaunchPlan:
    return LaunchPlan(
        argv=argv,
        env={},
        settings={},
        deploy_env={},
        port=port or free_port(),
        served_model="m",
        start_deadline_s=start_deadline_s,
    )


def failing(*faults: Fault) -> Script:
    return Script(faults=faults)


def vllm_argv(folder: Path, script: Script, port: int) -> list[str]:
    vllm, model = install(folder, script=script), write_model(folder / "m")
    return [str(vllm), "serve", str(model), "--port", str(port), "--served-model-name", "m"]


class Start(Protocol):
    def __call__(
        self,
        script: Script = ...,
        *,
        ready: bool = ...,
        argv: tuple[str, ...] | None = ...,
        start_deadline_s: float = ...,
        environ: Mapping[str, str] | None = ...,
    ) -> Running: ...


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Launch the scripted engine, or `argv`, under its guard; whatever is left ends with the test."""
    with ExitStack() as cleanup:

        def begin(
            script: Script | None = None,
            *,
            ready: bool = True,
            argv: tuple[str, ...] | None = None,
            start_deadline_s: float = DEADLINE_S,
            environ: Mapping[str, str] | None = None,
        ) -> Running:
            port = free_port()
            words = argv or vllm_argv(tmp_path, script or Script(), port)
            plan = plan_of(*words, port=port, start_deadline_s=start_deadline_s)
            engine = launch(plan, key=KEY, log=tmp_path / "engine.log", environ=environ)
            cleanup.callback(engine.stop)
            if ready:
                for _ in engine.wait_ready():
                    pass
                assert engine.ready(), engine.log_text()
            return engine

        yield begin


def endpoint(engine: Running) -> Endpoint:
    return Endpoint(url=engine.url, key=KEY, model="m", facts=StartFacts(start_s=0.0))


def complete(engine: Running, **body: object) -> httpx.Response:
    asked = {"model": "m", "prompt": list(range(20)), "max_tokens": 5} | body
    headers = {"authorization": f"Bearer {KEY}"}
    return httpx.post(f"{engine.url}/v1/completions", json=asked, headers=headers, trust_env=False)


# -- a start --------------------------------------------------------------------------------------


def test_a_started_engine_answers_with_our_key_and_leads_a_session_of_its_own(start: Start) -> None:
    engine = start()
    assert complete(engine).status_code == 200
    refused = httpx.post(f"{engine.url}/v1/completions", json={}, trust_env=False)
    assert refused.status_code == 401
    assert engine.owned.session in members(engine.owned)
    assert os.getsid(0) != engine.owned.session
    assert not any(KEY in word for pid in members(engine.owned) for word in psutil.Process(pid).cmdline())
    assert "Application startup complete." in engine.last_line()
    assert not engine.ended()


def test_the_engine_gets_the_environment_of_the_tuner_and_the_additions_of_the_plan(
    start: Start, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    script = f"import os; open({str(told)!r}, 'w').write(os.environ['OURS'] + os.environ['VLLM_API_KEY'])"
    engine = start(argv=(sys.executable, "-c", script), ready=False, environ={"OURS": "1 "})
    until(engine.ended)
    assert told.read_text() == f"1 {KEY}"


def test_an_engine_that_is_not_there_is_a_setup_error_and_leaves_nothing(tmp_path: Path) -> None:
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(SetupError, match=r"cannot start /nowhere/vllm: .*No such file") as raised:
        launch(plan_of("/nowhere/vllm", "serve"), key=KEY, log=tmp_path / "engine.log")
    assert raised.value.hint
    assert set(psutil.Process().children(recursive=True)) == before


def test_a_start_that_crashes_ends_the_wait_and_tells_its_exit_code(start: Start) -> None:
    engine = start(failing(Fault(fault="crash")), ready=False)
    for _ in engine.wait_ready():
        pass
    assert engine.ended()
    until(lambda: engine.ended() and engine.exit_code is not None)
    assert engine.exit_code == 1
    assert "Engine core initialization failed" in engine.last_line()


def test_a_start_that_hangs_ends_the_wait_at_its_deadline(start: Start) -> None:
    engine = start(failing(Fault(fault="hang")), ready=False, start_deadline_s=0.5)
    waited = list(engine.wait_ready())
    assert waited == sorted(waited)
    assert waited[-1] < 0.5
    assert not engine.ended()
    assert not engine.ready()


def test_a_stranger_on_the_port_is_not_taken_for_our_engine(start: Start, tmp_path: Path) -> None:
    stranger = start()
    plan = plan_of(sys.executable, "-c", LONG, port=stranger.plan.port)
    ours = launch(plan, key="another key", log=tmp_path / "other.log")
    with ours, pytest.raises(ReplayError, match=rf"a stranger answers on port {plan.port}: HTTP 401"):
        for _ in ours.wait_ready():
            pass
    assert stranger.ready()


def test_an_engine_that_serves_another_model_is_a_stranger_too(start: Start, tmp_path: Path) -> None:
    stranger = start()
    plan = plan_of(sys.executable, "-c", LONG, port=stranger.plan.port)
    other = LaunchPlan(**{name: getattr(plan, name) for name in plan.__slots__} | {"served_model": "other"})
    with launch(other, key=KEY, log=tmp_path / "other.log") as ours, pytest.raises(ReplayError):
        for _ in ours.wait_ready():
            pass


# -- an end ---------------------------------------------------------------------------------------


def test_after_a_stop_the_whole_group_is_gone(start: Start) -> None:
    engine = start(Script(children=True))
    session = members(engine.owned)
    assert len(session) == 3  # guard, engine, child
    gone = engine.stop()
    assert not gone.forced
    assert members(engine.owned) == []
    assert not any(map(alive, session))
    assert engine.stop() is gone


def test_a_with_block_stops_the_engine_when_it_is_left_by_ctrl_c(start: Start) -> None:
    engine = start()
    with pytest.raises(KeyboardInterrupt), engine:
        raise KeyboardInterrupt
    assert members(engine.owned) == []


def test_an_engine_that_ignores_sigterm_is_ended_by_force(start: Start) -> None:
    engine = start(Script(children=True, faults=(Fault(fault="ignore_sigterm"),)), ready=False)
    until(engine.ready)
    gone = engine.stop()  # a start that nobody waited for is given a second, not ten
    assert gone.forced
    assert gone.seconds >= 1
    assert members(engine.owned) == []


def test_an_orphan_of_a_killed_engine_is_found_and_ended(start: Start) -> None:
    engine = start(failing(Fault(fault="orphan")))
    guard = psutil.Process(engine.owned.session)
    (first,) = guard.children()
    (worker,) = first.children()
    first.kill()
    until(engine.ended)
    until(lambda: engine.ended() and engine.exit_code is not None)
    assert engine.exit_code == -signal.SIGKILL
    assert worker.ppid() == guard.pid  # a subreaper's child, not init's
    assert worker.is_running()
    assert engine.stop().forced is False
    assert not worker.is_running()
    assert members(engine.owned) == []


def test_a_process_that_left_the_session_is_ended_as_well(start: Start, tmp_path: Path) -> None:
    told = tmp_path / "pid"
    engine = start(argv=(sys.executable, "-c", DAEMON, str(told)), ready=False)
    until(lambda: told.exists() and told.read_text())
    daemon = int(told.read_text())
    assert os.getsid(daemon) != engine.owned.session
    engine.stop()
    assert not alive(daemon)


def test_a_stopped_guard_does_not_hide_the_end_of_the_engine(start: Start) -> None:
    engine = start(Script(children=True))
    os.kill(engine.owned.session, signal.SIGKILL)
    until(engine.ended)
    assert engine.ready()  # the engine itself serves on, owned by nobody
    gone = engine.stop()
    assert gone.forced
    assert members(engine.owned) == []


def run_tuner(tmp_path: Path, script: Script) -> tuple[subprocess.Popen[str], Owned]:
    port = free_port()
    argv = vllm_argv(tmp_path, script, port)
    tuner = subprocess.Popen(
        [sys.executable, "-c", TUNER, str(tmp_path / "engine.log"), str(port), *argv],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert tuner.stdout is not None
    session, began, boot = tuner.stdout.readline().split()
    tuner.stdout.close()
    return tuner, Owned(session=int(session), began=float(began), boot=boot)


def test_the_guard_ends_the_engine_by_itself_when_the_tuner_is_killed(tmp_path: Path) -> None:
    tuner, owned = run_tuner(tmp_path, Script(children=True))
    assert len(members(owned)) == 3
    tuner.kill()
    tuner.wait()
    until(lambda: not members(owned))


def test_a_sweep_waits_for_the_guard_of_a_killed_tuner(tmp_path: Path) -> None:
    tuner, owned = run_tuner(tmp_path, failing(Fault(fault="ignore_sigterm")))
    tuner.kill()
    tuner.wait()
    assert sweep(owned) == []
    assert members(owned) == []


def test_a_sweep_ends_the_engine_of_a_killed_tuner_and_a_killed_guard(tmp_path: Path) -> None:
    tuner, owned = run_tuner(tmp_path, Script(children=True))
    os.kill(owned.session, signal.SIGKILL)
    tuner.kill()
    tuner.wait()
    until(lambda: owned.session not in members(owned))
    assert len(members(owned)) == 2
    assert sweep(owned) == []
    assert members(owned) == []


# -- what is not ours -----------------------------------------------------------------------------


@pytest.fixture
def stranger() -> Iterator[psutil.Process]:
    """The leader of a session that we did not start, with a child."""
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {LONG!r}])"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as process:
        leader = psutil.Process(process.pid)
        until(leader.children)
        yield leader
        for child in leader.children():
            child.kill()
        process.kill()


def test_a_session_number_that_was_given_out_again_is_left_alone(stranger: psutil.Process) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    ours = Owned(session=stranger.pid, began=1.0, boot=boot)  # ended long before this one began
    assert members(ours) == []
    assert sweep(ours, patience_s=0.1) == []
    assert stranger.is_running()
    assert all(child.is_running() for child in stranger.children())


def test_nothing_of_ours_survives_a_reboot(stranger: psutil.Process) -> None:
    (child,) = stranger.children()
    stranger.kill()  # a daemon's session has no leader any more
    until(lambda: not alive(stranger.pid))
    ours = Owned(session=stranger.pid, began=1.0, boot="another boot")
    assert members(ours) == []
    assert child.is_running()
    child.kill()


# -- counters -------------------------------------------------------------------------------------


def test_the_counters_are_those_of_the_engine(start: Start) -> None:
    engine = start()
    for _ in range(3):
        complete(engine)
    assert wait_idle(engine, endpoint(engine)) == {
        "num_preemptions": 0,
        "prefix_cache_queries": 60,
        "prefix_cache_hits": 0,  # 20 tokens are less than a block
        "prompt_tokens": 60,
        "generation_tokens": 15,
    }


def test_an_engine_without_metrics_has_no_counters() -> None:
    nobody = Endpoint(url=f"http://127.0.0.1:{free_port()}", key="", model="m", facts=StartFacts(start_s=0.0))
    assert counters(nobody) == {}


def test_waiting_for_an_idle_engine_ends_when_it_has_died(start: Start) -> None:
    engine = start()
    (first,) = psutil.Process(engine.owned.session).children()
    first.kill()
    with pytest.raises(EngineError, match=r"died under load \(exit -9\)"):
        wait_idle(engine, endpoint(engine))


def test_an_engine_is_idle_once_the_last_client_has_gone(start: Start) -> None:
    engine = start(Script(step_s=0.005))
    body = {"model": "m", "prompt": [1], "max_tokens": 8000, "stream": True}
    headers = {"authorization": f"Bearer {KEY}"}
    url = f"{engine.url}/v1/completions"
    with httpx.stream("POST", url, json=body, headers=headers, trust_env=False) as answer:
        next(answer.iter_raw())
    assert wait_idle(engine, endpoint(engine))["generation_tokens"] < 8000
