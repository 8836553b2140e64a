"""`autotune record` in front of the scripted engine: what it prints, what it leaves, and how it ends."""

from __future__ import annotations

import json
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from studies import AUTOTUNE, DEADLINE_S, Place, Running, Said, until

from autotune.formats.workloads import read_workload
from autotune.testing import Script, install

PROMPT = [1000 + number for number in range(40)]


@pytest.fixture
def engine(place: Place) -> Iterator[str]:
    """A scripted engine; its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    vllm = install(place.folder / "upstream", script=Script())
    words = [str(vllm), "serve", "model", "--port", str(port), "--served-model-name", "m"]
    with subprocess.Popen(words, cwd=place.folder, env=place.environ(), stdout=subprocess.DEVNULL) as process:
        url = f"http://127.0.0.1:{port}"
        until(lambda: answers(url))
        yield url
        process.kill()


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", trust_env=False).status_code == 200
    except httpx.ConnectError:
        return False


@contextmanager
def recording(place: Place, upstream: str, *words: str) -> Iterator[tuple[Running, httpx.Client]]:
    """The command under way, and a client of it."""
    given = ("record", "--upstream", upstream, "--out", "out.jsonl", "--listen", "127.0.0.1:0", *words)
    with place.start(*given) as running:
        until(lambda: running.stdout.read_text().endswith("\n") or running.process.poll() is not None)
        address = running.stdout.read_text().strip()
        assert address.startswith("http://127.0.0.1:")
        assert address.endswith("/v1")
        with httpx.Client(base_url=address, trust_env=False, timeout=DEADLINE_S) as client:
            yield running, client


def complete(client: httpx.Client, prompt: list[int], **fields: object) -> httpx.Response:
    body = {"model": "m", "prompt": prompt, "max_tokens": 4, **fields}
    return client.post("/completions", json=body, headers={"Authorization": "Bearer sk-secret"})


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()[1:]]


def writers(out: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if str(out) in (file.path for file in process.open_files()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_what_was_recorded_can_be_replayed(place: Place, engine: str) -> None:
    with recording(place, engine) as (running, client):
        whole = complete(client, PROMPT)
        with httpx.Client(base_url=f"{engine}/v1", trust_env=False) as directly:
            direct = complete(directly, PROMPT)
        assert whole.json()["choices"] == direct.json()["choices"]
        assert whole.json()["usage"] == direct.json()["usage"]
        complete(client, [*PROMPT[:32], *range(30)], stream=True, return_token_ids=True, max_tokens=6)
        assert complete(client, [10**9]).status_code == 400
        assert client.get("/models").json()["data"][0]["id"] == "m"
        running.process.send_signal(signal.SIGINT)
        said = running.wait()
    assert said.code == 0
    assert "ended: 3 recorded, 1 failed, 0 dropped" in said.stderr
    out = place.folder / "out.jsonl"
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert b"sk-secret" not in out.read_bytes()
    workload = read_workload(out)
    assert [(one.prompt_tokens, one.output_tokens) for one in workload.requests] == [(40, 4), (62, 6)]
    first, second = workload.requests
    assert workload.block_tokens == 16
    assert (len(first.blocks), len(second.blocks)) == (2, 3)
    assert first.blocks == second.blocks[:2]


def test_sigkill_loses_no_line_that_was_written(place: Place, engine: str) -> None:
    out = place.folder / "out.jsonl"
    with recording(place, engine) as (running, client):
        for _ in range(20):
            complete(client, PROMPT)
        until(lambda: len(out.read_bytes().splitlines()) == 21)
        running.process.kill()
        running.process.wait(DEADLINE_S)
    until(lambda: not writers(out))
    assert out.read_bytes().endswith(b"\n")
    assert len(rows(out)) == 20


def test_a_full_disk_is_said_once_and_stops_no_traffic(place: Place, engine: str) -> None:
    words = f"ulimit -f 4; exec {AUTOTUNE} record --upstream {engine} --out out.jsonl --listen 127.0.0.1:0"
    process = subprocess.Popen(
        ["/bin/sh", "-c", words],
        cwd=place.folder,
        env=place.environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        with httpx.Client(base_url=address, trust_env=False) as client:
            assert {complete(client, PROMPT).status_code for _ in range(40)} == {200}
        process.send_signal(signal.SIGTERM)
        _, talk = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert talk.count("warning: File too large") == 1
    kept = len(rows(place.folder / "out.jsonl"))
    assert 0 < kept < 40
    assert f"ended: {kept} recorded, {40 - kept} dropped" in talk


def test_an_upstream_that_is_not_there_is_a_warning(place: Place) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        upstream = f"http://127.0.0.1:{probe.getsockname()[1]}"
    with recording(place, upstream, "--keep-text") as (running, client):
        assert complete(client, PROMPT).status_code == 502
        running.process.send_signal(signal.SIGTERM)
        said = running.wait()
    assert said.code == 0
    assert f"warning: {upstream} does not answer yet" in said.stderr
    assert "1 recorded, 1 failed, 0 dropped" in said.stderr
    (row,) = rows(place.folder / "out.jsonl")
    assert row["failed"] == "HTTP 502"


def refused(place: Place, *words: str) -> Said:
    return place.run("record", *words)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--upstream", "localhost:8000", "--out", "out"), 2, "is not the URL of a server"),
        (("--upstream", "http://x", "--out", "out", "--listen", "x"), 2, "'x' is no address"),
        (("--upstream", "http://x", "--out", "out", "--rotate-size", "much"), 2, "'much' is not a part size"),
        (("--upstream", "http://x", "--out", "out", "--rotate-every", "1"), 2, "'1' is not a part length"),
        (("--upstream", "http://x", "--out", "model"), 2, "model exists already"),
        (("--upstream", "http://x", "--out", "none/out"), 3, "No such file or directory"),
        (
            ("--upstream", "http://x", "--out", "out", "--listen", "192.0.2.1:1"),
            3,
            "cannot listen on 192.0.2.1:1",
        ),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_a_hint(
    place: Place, words: tuple[str, ...], code: int, message: str
) -> None:
    said = refused(place, *words)
    assert said.code == code
    assert said.stdout == ""
    first, second = said.stderr.splitlines()
    assert first.startswith("error: ")
    assert message in first
    assert second.startswith("hint: ")
    assert not (place.folder / "out").exists()


def test_a_taken_port_is_said(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refused(place, "--upstream", "http://x", "--out", "out", "--listen", address)
    assert (said.code, said.stdout) == (3, "")
    assert f"error: cannot listen on {address}: Address already in use" in said.stderr
