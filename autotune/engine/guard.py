"""Owns one engine: starts it, ends all of it, and outlives the tuner just long enough to do so.

Run by path (`python -I guard.py LOG ARGV…`) as the leader of a new session; standard library only. Its
standard input is a pipe from the tuner: the line `go` starts the engine, `stop SECONDS` ends it, and so does
the end of the pipe, which is what the tuner's own death looks like, SIGKILL included. Its standard output
tells, one JSON object a line, that the engine was started, that its first process ended, and that everything
is gone.

The guard is a child subreaper: whatever the engine leaves behind becomes the guard's child, so that vLLM's
EngineCore, an orphan once its API server is killed, is found and ended as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
GRACE_AFTER_TUNER_S = 5.0
POLL_S = 0.05
GONE_S = 20.0


def _tell(**words: object) -> None:
    with contextlib.suppress(OSError):  # the tuner may be dead; the engine must still be ended
        os.write(1, (json.dumps(words) + "\n").encode())


def _stat(pid: str) -> tuple[int, int, str] | None:
    """Parent, session and state of a process; None when it is gone. Source: proc_pid_stat(5)."""
    try:
        fields = Path("/proc", pid, "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[1]), int(fields[3]), fields[0]


def _ours() -> list[int]:
    """Living processes of this session or below this process, without ourselves."""
    names = (path.name for path in Path("/proc").iterdir())
    stats = {int(name): stat for name in names if name.isdigit() and (stat := _stat(name))}
    me = os.getpid()
    found = set()
    for pid, (_, session, state) in stats.items():
        if pid == me or state == "Z":
            continue
        ancestor = pid
        while ancestor in stats and ancestor != me:
            ancestor = stats[ancestor][0]
        if me in (session, ancestor):
            found.add(pid)
    return sorted(found)


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _reap(first: subprocess.Popen[bytes], told: bool) -> bool:
    """Collect ended children, tell once when the engine's first process has ended."""
    if first.poll() is not None and not told:
        _tell(event="exit", code=first.returncode)
        told = True
    with contextlib.suppress(ChildProcessError):
        while told and os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return told


def _end(first: subprocess.Popen[bytes], grace_s: float, told: bool) -> None:
    """SIGTERM to all, SIGKILL after the grace, until nobody is left."""
    begun, forced = time.monotonic(), False
    _signal(_ours(), signal.SIGTERM)
    while (left := _ours()) and time.monotonic() - begun < grace_s + GONE_S:
        told = _reap(first, told)
        if time.monotonic() - begun >= grace_s:
            forced = True
            _signal(left, signal.SIGKILL)
        time.sleep(POLL_S)
    _reap(first, told)
    _tell(event="gone", seconds=time.monotonic() - begun, forced=forced, left=_ours())


def main() -> int:
    """Start the engine, wait for a word or for the tuner's end, end everything."""
    log, argv = sys.argv[1], sys.argv[2:]
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # not SIG_IGN: an exec'd engine would inherit that
    words = b""
    while b"\n" not in words and (chunk := os.read(0, 4096)):
        words += chunk
    order, _, words = words.partition(b"\n")
    if order != b"go":  # the tuner died, or thought better of it, before there was an engine
        _tell(event="gone", seconds=0.0, forced=False, left=[])
        return 0
    with Path(log).open("ab", buffering=0) as output:
        try:
            first = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        except OSError as error:
            _tell(event="failed", reason=str(error))
            return 1
    _tell(event="started", pid=first.pid)
    told = False
    while True:
        ready, _, _ = select.select([0], [], [], POLL_S)
        told = _reap(first, told)
        chunk = os.read(0, 4096) if ready else b""
        words += chunk
        if b"\n" in words or (ready and not chunk):
            asked = words.split()
            grace_s = float(asked[1]) if len(asked) > 1 else GRACE_AFTER_TUNER_S
            _end(first, grace_s, told)
            return 0


if __name__ == "__main__":
    sys.exit(main())
