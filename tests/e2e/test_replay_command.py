"""`autotune replay`: recorded traffic against a server that somebody else started."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest
from studies import Place, Said, until

from autotune.testing import Fault, Script, install, write_model

KEY = "the-key-of-this-test"
# Four prompts of 48 tokens that begin with the same two blocks of 16: the engine computes 32 tokens once.
SHARED = '{"autotune_workload": 2, "block_tokens": 16}\n' + "".join(
    f'{{"offset_s": {index / 2}, "prompt_tokens": 48, "output_tokens": 3, "blocks": [7, 8]}}\n'
    for index in range(4)
)
PLAIN = "".join(
    f'{{"offset_s": {index / 20}, "prompt_tokens": 10, "output_tokens": {2 + index % 3}}}\n'
    for index in range(12)
)


@contextmanager
def serving(place: Place, *options: str, script: Script | None = None) -> Iterator[str]:
    """The base URL of a scripted engine with our key."""
    port = place.ports.partition("-")[0]
    vllm = install(place.folder / "engine", script=script or Script())
    model = write_model(place.folder / "m")
    with subprocess.Popen(
        [vllm, "serve", model, "--port", port, "--served-model-name", "m", *options],
        env=os.environ | {"VLLM_API_KEY": KEY},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:

        def answers() -> bool:
            try:
                return httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code == 200
            except httpx.ConnectError:
                return False

        try:
            until(answers)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "plain.jsonl").write_text(PLAIN)
    (tmp_path / "shared.jsonl").write_text(SHARED)
    return Place(tmp_path, env={"OPENAI_API_KEY": KEY})


def replay(
    place: Place, url: str, *words: str, workload: str = "plain.jsonl", sla: str = "ttft_p90=4s"
) -> Said:
    return place.run("replay", "--endpoint", url, "--workload", workload, "--sla", sla, *words)


def test_a_server_that_holds_is_said_to_with_lengths_as_recorded(place: Place) -> None:
    with serving(place) as url:
        said = replay(place, f"{url}/v1/", "--speed", "2", "--out", "stamps.parquet")
    assert said.code == 0, said.stderr
    assert said.stderr == ""
    # 11 gaps of 50 ms at twice their speed are 275 ms: 40 requests/s
    assert "plain.jsonl, 12 requests at 2 × the recorded speed: 40 req/s offered" in said.stdout
    assert "lengths  12 of 12 prompts and 12 of 12 answers exactly as recorded" in said.stdout
    assert "ttft_p90 ≤ 4 s: 0 bad of 12 requests" in said.stdout
    rows = pq.read_table(place.folder / "stamps.parquet").to_pylist()
    assert [len(row["token_ns"]) for row in rows] == [2, 3, 4] * 4


def test_a_server_that_does_not_hold_is_exit_4(place: Place) -> None:
    with serving(place, script=Script(step_s=0.05)) as url:
        said = replay(place, url, "--json", sla="ttft_p50=1ms")
    assert said.code == 4
    body = json.loads(said.stdout)
    assert body["holds"] is False
    assert body["measurement"]["counts"][0]["bad"] == 12
    assert body["exact_outputs"] == 12


def test_equal_blocks_are_answered_by_the_prefix_cache(place: Place) -> None:
    with serving(place, "--block-size", "16") as url:
        said = replay(place, url, "--json", workload="shared.jsonl")
    assert said.code == 0, said.stderr
    assert json.loads(said.stdout)["prefix_share"] == 0.5  # 3 × 32 of 4 × 48 tokens


def test_failed_requests_are_named(place: Place) -> None:
    with serving(place, script=Script(faults=(Fault(fault="short_output", after=10),))) as url:
        said = replay(place, url)
    assert said.code == 4  # 2 of 12 bad, and p90 allows one
    assert "failed   " in said.stdout
    assert "short output" in said.stdout


@pytest.mark.parametrize(
    ("words", "env", "code", "says"),
    [
        (["--model", "n"], {}, 2, "no model 'n' at "),
        ([], {"OPENAI_API_KEY": "another"}, 2, " refuses our key: HTTP 401"),
        (["--speed", "0"], {}, 2, "--speed 0 is not a speed"),
        (["--requests", "1"], {}, 2, "--requests 1 is too small"),
        (["--workload", "none.jsonl"], {}, 2, "no workload at none.jsonl"),
        (
            ["--workload", "long.jsonl"],
            {},
            2,
            "1 of 2 requests of long.jsonl are longer than the server's context",
        ),
        (["--out", "plain.jsonl"], {}, 2, "--out plain.jsonl exists"),
        (["--sla", "ttft=1s"], {}, 2, "'ttft=1s'"),
        (["--endpoint", "nowhere"], {}, 2, "--endpoint 'nowhere' is no URL"),
        (["--endpoint", "http://127.0.0.1:9"], {}, 3, "nothing answers at http://127.0.0.1:9"),
    ],
)
def test_what_cannot_be_replayed_is_one_line_with_a_hint(
    place: Place, words: list[str], env: dict[str, str], code: int, says: str
) -> None:
    row = '{{"offset_s": {0}, "prompt_tokens": {1}, "output_tokens": 5}}\n'
    (place.folder / "long.jsonl").write_text(row.format(0, 5) + row.format(1, 10**7))
    given = {"--endpoint": "http://x", "--workload": "plain.jsonl", "--sla": "ttft_p90=4s"}
    with serving(place) as url:
        given |= {"--endpoint": url} | dict(zip(words[::2], words[1::2], strict=True))
        said = place.run("replay", *(word for pair in given.items() for word in pair), env=env)
    assert (said.code, said.stdout) == (code, "")
    assert says in said.stderr.splitlines()[0]
    assert said.stderr.splitlines()[1].startswith("hint: ")
