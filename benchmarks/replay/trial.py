"""One trial: a fresh server on its core, one client with all its processes on the other."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clients.contract import STREAM_S, Ask, Client, draw, write_trace
from figures import Figures, ServerLog, figures
from sampling import Sample, sample, tree
from wire import MODEL

PRIORITY = "-10"
"""Nice value of server and clients alike, where it is permitted: other programs must not make either late."""
EVERY_S = 0.5
LOOK_AGAIN_S = 1.0
_HERE = Path(__file__).parent


class TrialError(Exception):
    """This trial gave no figures; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is asked of a client: streams on average, seconds, and the cores that both sides run on."""

    streams: int
    seconds: float
    seed: int
    server_core: int
    client_cores: tuple[int, ...]
    start_s: float
    """How long a client may take to start and to report."""

    @property
    def rate_rps(self) -> float:
        """Requests/s that keep `streams` in flight."""
        return self.streams / STREAM_S


def run(client: Client, load: Load, *, tokenizer: Path, lead_s: float) -> Figures:
    """Measure one client under one load; raises `TrialError` when it fails, hangs or reports nothing."""
    with tempfile.TemporaryDirectory(prefix="replay-") as name:
        folder = Path(name)
        with _server(load.server_core, folder / "server.json") as url:
            due_s = draw(rate_rps=load.rate_rps, seconds=load.seconds, seed=load.seed)
            ask = Ask(url=url, model=MODEL, tokenizer=tokenizer, due_s=due_s, seed=load.seed, folder=folder)
            write_trace(ask)
            samples, cpu_s = _send(client, ask, load)
        try:
            told = client.read(ask)
            return figures(
                ask, told, _log(folder / "server.json", len(due_s)), samples, cpu_s=cpu_s, lead_s=lead_s
            )
        except (LookupError, OSError, TypeError, ValueError) as reason:
            raise TrialError(
                f"no readable report: {type(reason).__name__}: {reason}; it said: {_last_words(folder)}"
            ) from reason


@contextlib.contextmanager
def _server(core: int, log: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, str(_HERE / "server.py"), f"--port={port}", f"--log={log}", f"--core={core}"],
        stdout=subprocess.PIPE,
    ) as process:
        try:
            if process.stdout is None or not process.stdout.readline():
                raise TrialError("the server did not start")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()


def _send(client: Client, ask: Ask, load: Load) -> tuple[list[Sample], float]:
    """Run the client to its end; samples of its processes, and their CPU seconds in all."""
    cores = ",".join(map(str, load.client_cores))
    argv = ["nice", "-n", PRIORITY, "taskset", "-c", cores, *client.argv(ask)]
    env = {**os.environ, **client.env(ask)}
    deadline = time.monotonic() + load.start_s + load.seconds
    samples: list[Sample] = []
    with (ask.folder / "client.log").open("wb") as said:
        process = subprocess.Popen(
            argv, cwd=ask.folder, env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            start_new_session=True,
        )  # fmt: skip
        pids, looked = [process.pid], 0.0
        try:
            while (ended := os.wait4(process.pid, os.WNOHANG))[0] == 0:
                now = time.monotonic()
                if now > deadline:
                    raise TrialError(
                        f"not done {load.start_s:.0f} s after its load should have ended; "
                        f"it said: {_last_words(ask.folder)}"
                    )
                if now - looked >= LOOK_AGAIN_S:
                    pids, looked = tree(process.pid), now
                samples.append(sample(pids, time.perf_counter_ns()))
                time.sleep(EVERY_S)
            process.returncode = os.waitstatus_to_exitcode(ended[1])
        finally:
            _end(process)
    if process.returncode:
        raise TrialError(f"exit {process.returncode}; it said: {_last_words(ask.folder)}")
    used = ended[2]
    return samples, max(used.ru_utime + used.ru_stime, samples[-1].cpu_s if samples else 0.0)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the client: its own session, and descendants that left it."""
    living = tree(process.pid) if process.returncode is None else []
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pid in {*living} - {process.pid}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if process.returncode is None:
        process.wait()


def _log(path: Path, planned: int) -> ServerLog:
    """The server's log without what came before the load: probes are fewer and come first."""
    body = json.loads(path.read_text(encoding="utf-8"))
    rows = [row for row in zip(body["arrived_ns"], body["first_ns"], body["last_ns"], strict=True) if row[1]]
    rows = rows[-planned:]
    late = body["late_ns"]
    return ServerLog(
        arrived_ns=tuple(row[0] for row in rows),
        first_ns=tuple(row[1] for row in rows),
        last_ns=tuple(row[2] for row in rows),
        late_p99_ms=round(late["p99"] / 1e6, 4) if late else None,
        late_max_ms=round(late["max"] / 1e6, 4) if late else None,
        blocked=body["blocked"],
    )


def _last_words(folder: Path) -> str:
    """The end of what the client printed, on one line."""
    try:
        text = (folder / "client.log").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "nothing"
    return " / ".join(line.strip() for line in text.splitlines()[-6:] if line.strip())[-600:] or "nothing"
