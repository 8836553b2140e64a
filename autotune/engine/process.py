"""Start an engine under its guard, wait until it answers, and end it with proof that all of it is gone."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import psutil

from autotune.domain.launch import LaunchPlan
from autotune.errors import EngineError, ReplayError, SetupError

STARTING_GRACE_S = 1.0
"""While it starts, vLLM dies of SIGTERM at once or ignores it: there is nothing to wait for."""
GRACE_S = 10.0
"""vLLM ends within 6 s of SIGTERM; when it hangs it hangs for good (measured, see docs/adr/0006)."""
POLL_S = 0.2
TAIL_BYTES = 400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """What identifies a started engine across tuner processes.

    `session` is its session's number, `began` when that began in seconds since boot, `boot` which boot that
    was: none of them moves with the wall clock.
    """

    session: int
    began: float
    boot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """How it ended: `forced` when SIGKILL was needed."""

    seconds: float
    forced: bool


@dataclass(slots=True)
class Running:
    """A started engine; a context manager whose end is the end of every process of it."""

    plan: LaunchPlan
    key: str
    log: Path
    owned: Owned
    _guard: subprocess.Popen[bytes]
    exit_code: int | None = None
    gone: Gone | None = None
    answered: bool = False
    _said: Gone | None = None
    _left: tuple[int, ...] = ()
    _words: bytes = field(default=b"", repr=False)

    @property
    def url(self) -> str:
        """Base URL without a trailing slash."""
        return f"http://127.0.0.1:{self.plan.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def ended(self) -> bool:
        """True once the engine's first process has ended, whatever its exit code: nobody asked it to."""
        self._listen(0)
        return self.exit_code is not None or self._guard.poll() is not None

    def log_text(self) -> str:
        """The end of the engine's log, enough to hold a whole start."""
        with contextlib.suppress(FileNotFoundError), self.log.open("rb") as stream:
            stream.seek(max(self.log.stat().st_size - TAIL_BYTES, 0))
            return stream.read().decode(errors="replace")
        return ""

    def last_line(self) -> str:
        """The last line of the log, for people who wait."""
        return next((line for line in reversed(self.log_text().splitlines()) if line.strip()), "")

    def wait_ready(self) -> Iterator[float]:
        """Yield the seconds waited until the engine answers with our key and our model name.

        Ends early when the process ended (see `ended`) or the start deadline has passed; the caller tells
        these apart. Raises `ReplayError` when a stranger answers on our port.
        """
        begun = time.monotonic()
        with httpx.Client(base_url=self.url, timeout=2.0, trust_env=False) as client:
            while (waited := time.monotonic() - begun) < self.plan.start_deadline_s and not self.ended():
                with contextlib.suppress(httpx.HTTPError):
                    if client.get("/health").status_code == httpx.codes.OK:
                        self._recognise(client)
                        return
                yield waited
                self._listen(POLL_S)

    def ready(self) -> bool:
        """True when the health endpoint answers 200 now."""
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/health", timeout=2.0, trust_env=False).status_code == httpx.codes.OK
        return False

    def _recognise(self, client: httpx.Client) -> None:
        answer = client.get("/v1/models", headers={"authorization": f"Bearer {self.key}"})
        if answer.status_code != httpx.codes.OK or self.plan.served_model not in answer.text:
            raise ReplayError(f"a stranger answers on port {self.plan.port}: HTTP {answer.status_code}")
        self.answered = True

    def stop(self) -> Gone:
        """End every process of the engine; idempotent. Raises `EngineError` if one survives SIGKILL."""
        if self.gone is not None:
            return self.gone
        grace_s = GRACE_S if self.answered else STARTING_GRACE_S
        begun = time.monotonic()
        with contextlib.suppress(OSError):
            if self._guard.stdin:
                self._guard.stdin.write(f"stop {grace_s}\n".encode())
                self._guard.stdin.flush()
        while self._said is None and self._guard.poll() is None and time.monotonic() - begun < grace_s + 30:
            self._listen(POLL_S)
        self._listen(0)
        for stream in (self._guard.stdin, self._guard.stdout):
            with contextlib.suppress(OSError):
                if stream:
                    stream.close()
        try:
            self._guard.wait(timeout=grace_s + 30)
        except subprocess.TimeoutExpired:  # it was stopped, or hangs in the kernel
            self._guard.kill()
        gone, left = self._said, self._left
        if gone is None or members(self.owned):  # the guard itself was killed
            left = tuple(sweep(self.owned))
            gone = Gone(seconds=time.monotonic() - begun, forced=True)
        self._guard.poll()
        if left:
            raise EngineError(f"processes {list(left)} of the engine survive SIGKILL")
        self.gone = gone
        return gone

    def _listen(self, timeout_s: float) -> None:
        """Take in what the guard has said, waiting at most `timeout_s` for a first word."""
        stream = self._guard.stdout
        if stream is None or stream.closed:
            return
        while select.select([stream], [], [], timeout_s)[0]:
            chunk = os.read(stream.fileno(), 4096)
            if not chunk:
                return
            timeout_s = 0
            *lines, self._words = (self._words + chunk).split(b"\n")
            for line in lines:
                said = json.loads(line)
                if said["event"] == "exit":
                    self.exit_code = said["code"]
                elif said["event"] == "gone":
                    self._said = Gone(seconds=said["seconds"], forced=said["forced"])
                    self._left = tuple(said["left"])


def launch(
    plan: LaunchPlan,
    *,
    key: str,
    log: Path,
    announce: Callable[[Owned], None] = lambda _: None,
    environ: Mapping[str, str] | None = None,
) -> Running:
    """Start the plan under a guard in its own session.

    `announce` is told who will own it before the engine exists, so that whatever happens from then on, a
    later process knows what to look for. Raises `SetupError` when the plan cannot be executed.
    """
    guard = Path(__file__).with_name("guard.py")
    env = {**(os.environ if environ is None else environ), **plan.env, "VLLM_API_KEY": key}
    process = subprocess.Popen(
        [sys.executable, "-I", str(guard), str(log), *plan.argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=env,
        bufsize=0,
        start_new_session=True,
    )
    owned = Owned(session=process.pid, began=_began(process.pid) or 0.0, boot=_boot_id())
    engine = Running(plan=plan, key=key, log=log, owned=owned, _guard=process)
    try:
        announce(owned)
        if process.stdin:
            process.stdin.write(b"go\n")
        first = process.stdout.readline() if process.stdout else b""
    except BaseException:
        engine.stop()
        raise
    said = json.loads(first) if first else {"event": "failed", "reason": "the guard did not start"}
    if said["event"] == "failed":
        process.communicate()
        raise SetupError(f"cannot start {plan.argv[0]}: {said['reason']}", hint="is the engine installed?")
    return engine


def members(owned: Owned) -> list[int]:
    """Living processes of the session, and of it alone.

    A session number is not given out again while any process of the session lives. Should all of ours be
    gone, it may be a stranger's by now: its leader began at another time, or the machine was started since.
    """
    if owned.boot != _boot_id():
        return []
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) != owned.session or (began := _began(pid)) is None:
                continue
            if pid == owned.session and began != owned.began:
                return []
            if began >= owned.began:
                found.append(pid)
    return found


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _began(pid: int) -> float | None:
    """When a living process began, in seconds since boot; None for one that is gone or a zombie.

    Source: fields state (3) and starttime (22) of proc_pid_stat(5).
    """
    try:
        stat = Path("/proc", str(pid), "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19]) / os.sysconf("SC_CLK_TCK")


def sweep(owned: Owned, *, patience_s: float = 20.0) -> list[int]:
    """End what is left of a session whose tuner or guard is dead; the pids that survived, normally none.

    A living guard ends its engine by itself once its tuner is gone; it is given the time to.
    """
    begun = time.monotonic()
    while members(owned) and owned.session in members(owned) and time.monotonic() - begun < patience_s:
        time.sleep(POLL_S)
    begun = time.monotonic()
    while (left := members(owned)) and time.monotonic() - begun < patience_s:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_S)
    return members(owned)
