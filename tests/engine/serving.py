"""A real server as the tests of real engines start it, and the end of it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "models/smollm2-135m"
PYTHON = ROOT / ".venv-vllm/bin/python"
_ENVIRON = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_AOT_COMPILE": "0",
}


@contextmanager
def serving(command: Sequence[str | Path], port: int, *, within_s: int) -> Iterator[str]:
    """The URL of a server that this command starts on a port of the loopback; it is ended with its group."""
    url = f"http://127.0.0.1:{port}"
    path = f"{PYTHON.parent}{os.pathsep}{os.environ['PATH']}"
    server = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, **_ENVIRON, "PATH": path},
    )
    try:
        for _ in range(within_s):
            if _healthy(url):
                break
            try:
                server.wait(timeout=1)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError(f"the server ended with {server.returncode}")
        else:
            raise AssertionError(f"no answer within {within_s} s")
        yield url
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=10, trust_env=False).is_success
    except httpx.TransportError:
        return False
