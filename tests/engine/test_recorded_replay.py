"""Traffic to real vLLM through the recorder, then replayed from the recording: the same again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import pandas as pd
import pytest
from serving import MODEL, PYTHON, serving

AUTOTUNE = Path(sys.executable).with_name("autotune")
PORT = 8311
RECORDED_BLOCK = 16  # tokens in a block of a recording
BLOCK = 32  # tokens in a block of vLLM's CPU build
SINGLES, OWN_TOKENS, SHARED_BLOCKS = 24, 9, 3
SYSTEM = "You are the support assistant of a company that rents bicycles in five cities. " * 8
ASKED = ("Which cities are those?", "Which of them has the most hills?", "Then I take one with gears.")
CHATS, PAUSE_S = 3, 0.4

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Twice:
    """The same traffic twice: as it came to the recorder, and as the recording was replayed.

    `shares` are those of vLLM's prefix cache, the first and the second time, by its own counters.
    """

    rows: list[dict[str, Any]]
    inspected: dict[str, Any]
    replayed: dict[str, Any]
    timings: pd.DataFrame
    shares: tuple[float, float]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    command: list[str | Path] = [PYTHON, "-m", "vllm.entrypoints.cli.main", "serve", MODEL, "--enforce-eager"]
    memory = ["--kv-cache-memory-bytes", "600M", "--block-size", str(BLOCK)]
    with serving([*command, *memory, "--dtype", "float32"], PORT, within_s=300) as url:
        yield url


@pytest.fixture(scope="module")
def singles(server: str, tmp_path_factory: pytest.TempPathFactory) -> Twice:
    """24 requests 0.6 s apart, in four groups whose prompts begin with three equal blocks."""
    folder = tmp_path_factory.mktemp("singles")
    source = folder / "source.jsonl"
    lines: list[dict[str, object]] = [{"autotune_workload": 2, "block_tokens": BLOCK}]
    lines += [
        {
            "offset_s": at * 0.6,
            "prompt_tokens": SHARED_BLOCKS * BLOCK + OWN_TOKENS,
            "output_tokens": 5 + at % 7,
            "blocks": [100 * (at % 4) + block for block in range(SHARED_BLOCKS)],
        }
        for at in range(SINGLES)
    ]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return twice(server, folder, lambda address: replay(address, source))


@pytest.fixture(scope="module")
def chats(server: str, tmp_path_factory: pytest.TempPathFactory) -> Twice:
    """Three chats of three turns, one after another, with one system message and a pause before each turn."""
    return twice(server, tmp_path_factory.mktemp("chats"), talk)


def talk(address: str) -> None:
    for chat in range(CHATS):
        messages = [{"role": "system", "content": SYSTEM}]
        for asked in ASKED:
            time.sleep(PAUSE_S)  # the pause that is to be recorded
            messages.append({"role": "user", "content": f"{asked} (I am customer {chat}.)"})
            body = {"messages": messages, "max_tokens": 12, "temperature": 0, "cache_salt": "talk"}
            answer = httpx.post(f"{address}/chat/completions", json=body, timeout=60, trust_env=False)
            messages.append(answer.raise_for_status().json()["choices"][0]["message"])


def twice(url: str, folder: Path, traffic: Callable[[str], object]) -> Twice:
    recording, timings = folder / "recording.jsonl", folder / "timings.parquet"
    command: list[str | Path] = [
        AUTOTUNE,
        "record",
        "--upstream",
        url,
        "--out",
        recording,
        "--listen",
        "127.0.0.1:0",
    ]
    before = counted(url)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as recorder:
        assert recorder.stdout is not None
        traffic(recorder.stdout.readline().strip())
        recorder.send_signal(signal.SIGINT)
    assert recorder.returncode == 0
    between = counted(url)
    replayed = replay(url, recording, "--out", timings, "--seed", "1")
    after = counted(url)
    return Twice(
        rows=[json.loads(line) for line in recording.read_text().splitlines()[1:]],
        inspected=json.loads(said("workload", "inspect", recording, "--json")),
        replayed=replayed,
        timings=pd.read_parquet(timings),
        shares=(share(before, between), share(between, after)),
    )


def replay(url: str, workload: Path, *words: str | Path) -> dict[str, Any]:
    judged = ["--sla", "ttft_p99=30s", "--json"]
    found: dict[str, Any] = json.loads(
        said("replay", "--endpoint", url, "--workload", workload, *judged, *words)
    )
    return found


def said(*words: str | Path) -> str:
    done = subprocess.run([AUTOTUNE, *words], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.stdout


def counted(url: str) -> tuple[float, float]:
    """Tokens that vLLM found in its prefix cache, and tokens that it looked for, since its start."""
    lines = httpx.get(f"{url}/metrics", trust_env=False).text.splitlines()
    hits, queries = (
        next(float(line.split()[-1]) for line in lines if line.startswith(f"vllm:prefix_cache_{what}_total"))
        for what in ("hits", "queries")
    )
    return hits, queries


def share(before: tuple[float, float], after: tuple[float, float]) -> float:
    return (after[0] - before[0]) / (after[1] - before[1])


def reusable_share(rows: list[dict[str, Any]]) -> float:
    """The share of prompt tokens in blocks of the engine that an earlier prompt of the recording had."""
    seen: set[int] = set()
    found = 0
    for row in sorted(rows, key=lambda row: float(row["offset_s"])):
        blocks = row["blocks"]
        known = next((at for at, block in enumerate(blocks) if block not in seen), len(blocks))
        seen.update(blocks)
        found += known * RECORDED_BLOCK // BLOCK * BLOCK
    return found / sum(int(row["prompt_tokens"]) for row in rows)


def test_lengths_come_again(singles: Twice, chats: Twice) -> None:
    assert {row["prompt_tokens"] for row in singles.rows} == {SHARED_BLOCKS * BLOCK + OWN_TOKENS}
    assert sorted(row["output_tokens"] for row in singles.rows) == sorted(5 + at % 7 for at in range(SINGLES))
    for traffic, requests in ((singles, SINGLES), (chats, CHATS * len(ASKED))):
        assert traffic.inspected["requests"] == requests
        assert traffic.replayed["exact_prompts"] == traffic.replayed["exact_outputs"] == requests


def test_gaps_come_again(singles: Twice) -> None:
    recorded_s = pd.Series(sorted(row["offset_s"] for row in singles.rows)).diff()[1:]
    due_s, sent_s = (
        (singles.timings[name].astype("int64").sort_values(ignore_index=True) / 1e9).diff()[1:]
        for name in ("due_ns", "sent_ns")
    )
    assert len(sent_s) == SINGLES - 1
    assert (recorded_s - due_s).abs().max() < 0.00001  # a recording is in microseconds
    assert (recorded_s - sent_s).abs().median() < 0.002  # all of them, unless the machine has other work


def test_pauses_in_a_chat_come_again(chats: Twice) -> None:
    """The replay's requests are in order of their due times, and chats do not overlap."""
    recorded_s = [row["think_s"] for row in chats.rows if row.get("think_s") is not None]
    assert len(recorded_s) == CHATS * (len(ASKED) - 1)
    assert min(recorded_s) >= PAUSE_S
    ended, due, sent = (
        chats.timings[name].astype("int64") / 1e9 for name in ("ended_ns", "due_ns", "sent_ns")
    )
    later = [at for at in range(len(sent)) if at % len(ASKED)]
    assert [due[at] - ended[at - 1] for at in later] == pytest.approx(recorded_s, abs=0.00001)
    assert median(sent[at] - due[at] for at in later) < 0.002


def test_single_requests_share_what_vllm_counts(singles: Twice) -> None:
    """20 of 24 requests find three blocks of 32 tokens in prompts of 105."""
    expected = 20 * 96 / (24 * 105)
    assert singles.inspected["prefix_share"] == pytest.approx(expected, rel=0.001)
    assert singles.shares == pytest.approx((expected, expected), rel=0.02)


def test_the_prompts_of_chats_share_what_vllm_counts(chats: Twice) -> None:
    """Made-up words cannot repeat that an answer comes back in the next prompt: the first share has it."""
    assert chats.shares[1] == pytest.approx(reusable_share(chats.rows), rel=0.02)
    assert chats.shares[0] >= chats.shares[1]
