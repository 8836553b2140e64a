"""What a recording says of prefix reuse, against what real vLLM reused, request by request.

Run: .venv/bin/python benchmarks/record/against_vllm.py VLLM_PYTHON MODEL_FOLDER QUESTIONS.jsonl
Writes benchmarks/record/against_vllm.json. With tokenizers installed beside autotune, --tokenizer does the
third kind of traffic again with exact blocks.

Chats of two turns (FastChat's MT-Bench questions), one after another, every second turn streamed, answers of
at most 48 tokens. vLLM counts cached tokens of each prompt (`--enable-prompt-tokens-details`) and of all
(`vllm:prefix_cache_hits`). From the recording: the leading blocks that an earlier prompt had, or in a later
turn of a session all of the turn before but its last token, cut to vLLM's blocks (32 tokens on a CPU).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

BLOCK_TOKENS, VLLM_BLOCK_TOKENS, ANSWER_TOKENS = 16, 32, 48
SYSTEM = "You are the support assistant of a company that rents bicycles in five cities. " * 12
START_S = 300.0


@contextmanager
def vllm(python: str, model: str) -> Iterator[str]:
    """A server on the CPU; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    words = [python, "-m", "vllm.entrypoints.cli.main", "serve", model, "--served-model-name", "m"]
    words += ["--host", "127.0.0.1", "--port", str(port), "--enforce-eager", "--max-model-len", "4096"]
    words += ["--block-size", str(VLLM_BLOCK_TOKENS), "--kv-cache-memory-bytes", "600M"]
    words += ["--enable-prompt-tokens-details"]
    path = f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        words, env=os.environ | {"PATH": path}, stdout=quiet, stderr=quiet, start_new_session=True
    )
    try:
        url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + START_S
        while not _healthy(url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("vLLM did not start")
            time.sleep(0.5)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def _healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", trust_env=False).is_success
    except httpx.TransportError:
        return False


def counter(url: str, name: str) -> float:
    """The value of a counter of vLLM."""
    lines = httpx.get(f"{url}/metrics", trust_env=False).text.splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(f"vllm:{name}"))


def ask(
    client: httpx.Client, messages: Sequence[dict[str, str]], *, salt: str, stream: bool
) -> tuple[str, Any]:
    """The answer to a chat, and its usage."""
    body: dict[str, Any] = {"model": "m", "messages": messages, "max_tokens": ANSWER_TOKENS, "temperature": 0}
    body["cache_salt"] = salt
    if not stream:
        said = client.post("/chat/completions", json=body).json()
        return said["choices"][0]["message"]["content"], said["usage"]
    text, usage = "", None
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    with client.stream("POST", "/chat/completions", json=body) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                event = json.loads(line[6:])
                text += "".join(choice["delta"].get("content") or "" for choice in event["choices"])
                usage = event.get("usage") or usage
    return text, usage


def talk(
    address: str, questions: Sequence[Sequence[str]], *, system: str, salt: str
) -> list[tuple[int, int]]:
    """Have all chats; prompt and cached tokens of each request, as vLLM counts them."""
    counted = []
    with httpx.Client(base_url=address, trust_env=False, timeout=120) as client:
        for turns in questions:
            messages = [{"role": "system", "content": system}] if system else []
            for number, turn in enumerate(turns):
                messages.append({"role": "user", "content": turn})
                text, usage = ask(client, messages, salt=salt, stream=number % 2 == 1)
                messages.append({"role": "assistant", "content": text})
                cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
                counted.append((usage["prompt_tokens"], cached))
    return counted


def expected(rows: Sequence[dict[str, Any]]) -> list[tuple[int, int]]:
    """Prompt tokens and reusable tokens of each request, as the recording tells them."""
    seen: set[int] = set()
    before: dict[str, int] = {}
    found = []
    for row in rows:
        known = next((at for at, block in enumerate(row["blocks"]) if block not in seen), len(row["blocks"]))
        seen.update(row["blocks"])
        tokens, session = row["prompt_tokens"], row["session"]
        reusable = min(max(known * BLOCK_TOKENS, before.get(session, 0)), tokens - 1)
        before[session] = tokens + row["output_tokens"] - 1
        found.append((tokens, reusable // VLLM_BLOCK_TOKENS * VLLM_BLOCK_TOKENS))
    return found


def recorded(url: str, questions: Sequence[Sequence[str]], name: str, *words: str) -> dict[str, Any]:
    """One kind of traffic through the recorder, and the comparison."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.jsonl")
        command = [str(Path(sys.executable).with_name("autotune")), "record", "--upstream", url, *words]
        with subprocess.Popen(
            [*command, "--out", str(out), "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
        ) as recorder:
            address = recorder.stdout.readline().strip() if recorder.stdout else ""
            before = counter(url, "prefix_cache_hits_total"), counter(url, "prefix_cache_queries_total")
            system = SYSTEM if name.startswith("a system") else ""
            counted = talk(address, questions, system=system, salt=name)
            after = counter(url, "prefix_cache_hits_total"), counter(url, "prefix_cache_queries_total")
            recorder.send_signal(signal.SIGINT)
        rows = [json.loads(line) for line in out.read_text().splitlines()[1:]]
    told = expected(rows)
    result = {
        "traffic": name,
        "requests": len(told),
        "prompt_tokens": sum(tokens for tokens, _ in told),
        "vllm_share": (after[0] - before[0]) / (after[1] - before[1]),
        "recorded_share": sum(one for _, one in told) / sum(tokens for tokens, _ in told),
        "requests_that_differ": sum(one != other for one, other in zip(counted, told, strict=True)),
        "vllm": counted,
        "recorded": told,
    }
    print({name: value for name, value in result.items() if name not in ("vllm", "recorded")}, flush=True)
    return result


def main() -> None:
    """Compare and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("python")
    parser.add_argument("model")
    parser.add_argument("questions")
    parser.add_argument("--chats", type=int, default=40)
    parser.add_argument("--tokenizer", action="store_true")
    given = parser.parse_args()
    lines = Path(given.questions).read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line)["turns"] for line in lines][: given.chats]
    with vllm(given.python, given.model) as url:
        results = [
            recorded(url, questions, name) for name in ("a system message for all", "no system message")
        ]
        if given.tokenizer:
            results.append(
                recorded(url, questions, "no system message, --tokenizer", "--tokenizer", given.model)
            )
    out = Path(__file__).with_name("against_vllm.json")
    out.write_text(json.dumps({"model": Path(given.model).name, "results": results}) + "\n")


if __name__ == "__main__":
    main()
