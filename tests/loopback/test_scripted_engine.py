from __future__ import annotations

import itertools
import json
import math
import os
import re
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from autotune.testing import Fault, Script, install, write_model
from autotune.testing.batching import Batcher, Limits, Sequence, StepTime
from autotune.testing.script import Kind
from autotune.testing.settings import UsageError, parse

DEADLINE_S = 10.0
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # a client loads the CA bundle otherwise, each time anew
SLOW = Script(step_s=0.005)  # slow enough that a long answer is never over before it is looked at


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.005)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True)
class Engine:
    process: subprocess.Popen[bytes]
    client: httpx.Client
    log_path: Path
    port: int

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.log
        try:
            return self.client.get("/health").status_code == 200
        except httpx.ConnectError:
            return False

    def complete(self, **body: Any) -> httpx.Response:
        asked: dict[str, Any] = {"model": "m", "prompt": list(range(20)), "max_tokens": 10}
        return self.client.post("/v1/completions", json=asked | body)

    def events(self, **body: Any) -> list[Any]:
        lines = [line for line in self.complete(stream=True, **body).text.split("\n\n") if line]
        assert all(line.startswith("data: ") for line in lines)
        assert lines[-1] == "data: [DONE]"
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]

    def metric(self, name: str) -> float:
        lines = self.client.get("/metrics").text.splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(f"vllm:{name}{{"))


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    """Start the engine in a session of its own and wait for it; all end with the test."""
    numbers = itertools.count()
    with ExitStack() as cleanup:

        def start(
            *flags: str,
            script: Script | None = None,
            model: str = "m",
            env: dict[str, str] | None = None,
            ready: bool = True,
            port: int | None = None,
        ) -> Engine:
            log_path = tmp_path / f"log{next(numbers)}"
            port = port or free_port()
            vllm = install(tmp_path, script=script)
            argv = [str(vllm), "serve", str(write_model(tmp_path / model)), "--port", str(port)]
            with log_path.open("wb") as log:
                process = subprocess.Popen(
                    [*argv, "--served-model-name", "m", *flags],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=os.environ | (env or {}),
                    start_new_session=True,
                )
            cleanup.callback(process.wait)
            cleanup.callback(_kill_group, process.pid)
            client = cleanup.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}", verify=NO_TLS))
            engine = Engine(process=process, client=client, log_path=log_path, port=port)
            if ready:
                until(engine.is_ready)
            return engine

        yield start


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


Launch = Callable[..., Engine]


def failing(fault: Kind, **more: Any) -> Script:
    return Script(faults=(Fault(fault=fault, **more),))


def test_health_and_metrics_need_no_key_and_the_api_does(launch: Launch) -> None:
    engine = launch(env={"VLLM_API_KEY": "sesame"})
    assert engine.client.get("/health").status_code == 200
    assert engine.client.get("/metrics").status_code == 200
    assert engine.client.get("/v1/models").status_code == 401
    assert engine.complete().status_code == 401
    engine.client.headers["authorization"] = "Bearer sesame"
    assert engine.client.get("/v1/models").json()["data"][0]["max_model_len"] == 8192
    assert engine.complete().status_code == 200


def test_a_stream_has_one_stamped_event_for_each_token_then_the_usage(launch: Launch) -> None:
    engine = launch()
    body = {"model": "m", "prompt": [5] * 30, "max_tokens": 12, "stream": True, "return_token_ids": True}
    stamps, events = [], []
    with engine.client.stream(
        "POST", "/v1/completions", json=body | {"stream_options": {"include_usage": True}}
    ) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in filter(None, answer.iter_lines()):
            stamps.append(time.perf_counter_ns())
            events.append(line.removeprefix("data: "))
    assert events.pop() == "[DONE]"
    usage = json.loads(events.pop())
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 30, "total_tokens": 42, "completion_tokens": 12}
    choices = [json.loads(event)["choices"][0] for event in events]
    assert [len(choice["token_ids"]) for choice in choices] == [1] * 12
    assert [choice["finish_reason"] for choice in choices] == [None] * 11 + ["length"]
    assert stamps == sorted(stamps)


def test_the_same_prompt_gets_the_same_answer_whole_and_streamed(launch: Launch) -> None:
    engine = launch()
    whole = engine.complete(prompt="to be or not to be").json()
    streamed = engine.events(prompt="to be or not to be")
    assert whole["choices"][0]["text"] == "".join(event["choices"][0]["text"] for event in streamed)
    assert whole["usage"]["prompt_tokens"] == 6


def test_tokens_are_words_and_stable(launch: Launch) -> None:
    body = {"model": "m", "prompt": "to be or not to be"}
    answer = launch().client.post("/tokenize", json=body).json()
    first, *_, last = answer["tokens"]
    assert answer["count"] == 6
    assert answer["tokens"][4:] == [first, last]
    assert len(set(answer["tokens"])) == 4


def test_a_request_that_cannot_be_served_is_refused(launch: Launch) -> None:
    engine = launch()

    def refusal(**body: Any) -> tuple[int, str]:
        answer = engine.complete(**body)
        return answer.status_code, answer.json()["error"]["message"]

    too_long = "This model's maximum context length is 8192 tokens. However, you requested 8173 output tokens"
    assert refusal(max_tokens=8173)[0] == 400
    assert refusal(max_tokens=8173)[1].startswith(too_long)
    assert refusal(model="other") == (404, "The model `other` does not exist.")
    assert refusal(prompt=[49152]) == (400, "Token id is out of vocabulary")
    assert refusal(prompt=[])[0] == 400


@pytest.mark.parametrize(
    ("flags", "model", "perplexity"),
    [
        ((), "m", 20.0),
        (("--kv-cache-dtype", "fp8"), "m", 20.3),
        ((), "m-w8a8", 20.65),
        (("--kv-cache-dtype", "fp8"), "m-w8a8", 20.95975),  # 20 · (20.3 / 20) · (20.65 / 20)
    ],
)
def test_prompt_logprobs_tell_the_scripted_perplexity(
    launch: Launch, flags: tuple[str, ...], model: str, perplexity: float
) -> None:
    scores = {"default": 20.0, "kv_cache_dtype=fp8": 20.3, "model=*w8a8": 20.65}
    engine = launch(*flags, script=Script(perplexity=scores), model=model)
    prompt = list(range(100, 164))
    answer = engine.complete(prompt=prompt, prompt_logprobs=0, max_tokens=1).json()
    first, *entries = answer["choices"][0]["prompt_logprobs"]
    logprobs = [entry[str(token)]["logprob"] for token, entry in zip(prompt[1:], entries, strict=True)]
    assert first is None
    assert len(set(logprobs)) > 1
    assert math.exp(-sum(logprobs) / len(logprobs)) == pytest.approx(perplexity, abs=1e-6)


def test_what_does_not_fit_into_the_batch_waits_and_a_client_that_leaves_makes_room(launch: Launch) -> None:
    engine = launch("--max-num-seqs", "2", script=SLOW)
    body = {"model": "m", "prompt": [1], "max_tokens": 8000, "stream": True}
    with ExitStack() as streams:
        for _ in range(5):
            streams.enter_context(engine.client.stream("POST", "/v1/completions", json=body))
        until(lambda: engine.metric("num_requests_running") == 2)
        assert engine.metric("num_requests_waiting") == 3
        assert engine.metric("kv_cache_usage_perc") > 0
    until(lambda: engine.metric("num_requests_running") == 0)
    assert engine.metric("num_requests_waiting") == 0


def test_a_prompt_seen_before_hits_the_prefix_cache_unless_it_is_salted(launch: Launch) -> None:
    engine = launch("--enable-prompt-tokens-details")
    prompt = list(range(300))
    for salt, hits in (("", 0), ("", 256), ("other", 256), ("other", 512)):  # two whole blocks of 128
        engine.complete(prompt=prompt, cache_salt=salt)
        assert engine.metric("prefix_cache_hits_total") == hits
    assert engine.metric("prefix_cache_queries_total") == 1200
    assert engine.complete(prompt=prompt).json()["usage"]["prompt_tokens_details"] == {"cached_tokens": 256}


def test_without_prefix_caching_there_are_no_hits(launch: Launch) -> None:
    engine = launch("--no-enable-prefix-caching")
    for _ in range(2):
        engine.complete(prompt=list(range(300)))
    assert engine.metric("prefix_cache_hits_total") == 0


def test_the_log_tells_the_kv_cache_and_the_metrics_agree(launch: Launch) -> None:
    engine = launch("--kv-cache-memory-bytes", "600M", "--max-model-len", "8k")
    # 629,145,600 B / 23,040 B per token = 27,306 tokens, of which 213 blocks of 128 are whole.
    wanted = "CPU KV cache size: 27,264 tokens, Maximum concurrency for 8,000 tokens per request: 3.41x"
    assert wanted in engine.log
    assert "Application startup complete." in engine.log
    assert 'kv_cache_size_tokens="27264"' in engine.client.get("/metrics").text


def test_any_other_version_logs_like_the_cuda_build(launch: Launch) -> None:
    engine = launch(script=Script(version="0.26.0"))
    assert "GPU KV cache size: 46,592 tokens" in engine.log
    assert "Available KV cache memory: 1.00 GiB" in engine.log
    assert engine.client.get("/version").json() == {"version": "0.26.0"}


@pytest.mark.parametrize(
    ("flags", "script", "code", "text"),
    [
        (("--no-such-flag", "1"), None, 2, "vllm: error: unrecognized arguments: --no-such-flag 1"),
        (("--max-num-seqs", "many"), None, 2, "argument --max-num-seqs: invalid int value: 'many'"),
        (("--dtype", "int8"), None, 2, "argument --dtype: invalid choice: 'int8'"),
        (
            ("--max-num-batched-tokens", "16", "--max-num-seqs", "64"),
            None,
            1,
            "Value error, max_num_batched_tokens (16) must be greater than or equal to max_num_seqs (64). [",
        ),
        (("--max-model-len", "16384"), None, 1, "max_model_len (16384) is greater than the derived"),
        (("--tensor-parallel-size", "2"), None, 1, "heads (9) must be divisible by tensor parallel size (2)"),
        (
            ("--kv-cache-memory-bytes", "96M"),
            None,
            1,
            "the estimated maximum model length is 4352.",
        ),
        ((), failing("kv_too_small"), 1, "To serve at least one request with the model's max seq len (8192)"),
        ((), failing("oom"), 1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate"),
        ((), failing("bad_flag"), 1, "must be greater than or equal to max_num_seqs"),
        ((), failing("crash"), 1, "RuntimeError: Engine core initialization failed."),
        ((), failing("port_in_use"), 1, "OSError: [Errno 98] Address already in use"),
        ((), failing("exit_137"), -signal.SIGKILL, "non-default args"),
    ],
)
def test_a_failed_start_says_why_and_exits(
    launch: Launch, flags: tuple[str, ...], script: Script | None, code: int, text: str
) -> None:
    engine = launch(*flags, script=script, ready=False)
    assert engine.process.wait(DEADLINE_S) == code
    assert text in engine.log


def test_a_taken_port_is_refused(launch: Launch) -> None:
    first = launch()
    second = launch(port=first.port, ready=False)
    assert second.process.wait(DEADLINE_S) == 1
    assert "OSError: [Errno 98] Address already in use" in second.log


def test_a_fault_hits_only_where_its_condition_holds(launch: Launch) -> None:
    script = failing("oom", when="max_num_batched_tokens>=4096 & env:CORES=0-*")
    assert launch("--max-num-batched-tokens", "4096", script=script).is_ready()
    assert launch(script=script, env={"CORES": "0-1"}).is_ready()
    hit = launch("--max-num-batched-tokens", "4096", script=script, env={"CORES": "0-1"}, ready=False).process
    assert hit.wait(DEADLINE_S) == 1


def test_a_fault_with_a_marker_hits_one_launch(launch: Launch, tmp_path: Path) -> None:
    script = failing("crash", once=str(tmp_path / "marker"))
    assert launch(script=script, ready=False).process.wait(DEADLINE_S) == 1
    assert launch(script=script).is_ready()


def test_a_hanging_start_never_opens_the_port(launch: Launch) -> None:
    engine = launch(script=failing("hang"), ready=False)
    until(lambda: "non-default args" in engine.log)
    assert not engine.is_ready()
    engine.process.terminate()
    assert engine.process.wait(DEADLINE_S) == -signal.SIGTERM


def test_a_slow_start_takes_its_seconds(launch: Launch) -> None:
    log = launch(script=failing("slow_start", seconds=0.3)).log
    took = re.search(r"init engine \(profile, create kv cache, warmup model\) took ([\d.]+) s", log)
    assert took is not None
    assert float(took.group(1)) >= 0.3


def test_an_engine_that_dies_mid_stream_ends_with_an_error_done_and_exit_0(launch: Launch) -> None:
    engine = launch(script=failing("die_mid_stream", after=1))
    assert "error" not in engine.events()[-1]
    *tokens, last = engine.events()
    assert len(tokens) == 2
    assert last["error"]["code"] == 500
    assert "EngineCore encountered an issue" in last["error"]["message"]
    assert engine.process.wait(DEADLINE_S) == 0
    assert "EngineCore encountered a fatal error." in engine.log


def test_a_frozen_engine_looks_healthy(launch: Launch) -> None:
    engine = launch(script=failing("freeze", after=1))
    assert engine.complete().status_code == 200
    body = {"model": "m", "prompt": [1], "stream": True}
    with engine.client.stream("POST", "/v1/completions", json=body) as answer:
        assert answer.status_code == 200
        until(lambda: engine.metric("num_requests_waiting") == 1)
        assert engine.is_ready()
        assert engine.metric("generation_tokens_total") == 10


def test_a_short_output_ends_two_tokens_early(launch: Launch) -> None:
    answer = launch(script=failing("short_output")).complete().json()
    assert answer["usage"]["completion_tokens"] == 8
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_sigterm_breaks_off_an_open_stream_and_exits_0(launch: Launch) -> None:
    engine = launch(script=SLOW)
    body = {"model": "m", "prompt": [1], "max_tokens": 8000, "stream": True}
    with engine.client.stream("POST", "/v1/completions", json=body) as answer:
        lines = filter(None, answer.iter_lines())
        next(lines)
        engine.process.terminate()
        *_, error, done = lines
    assert "error" in json.loads(error.removeprefix("data: "))
    assert done == "data: [DONE]"
    assert engine.process.wait(DEADLINE_S) == 0
    assert engine.log.splitlines()[-1].endswith("Application shutdown complete.")


def test_an_engine_may_ignore_sigterm(launch: Launch) -> None:
    engine = launch(script=failing("ignore_sigterm"))
    engine.process.terminate()
    assert engine.complete().status_code == 200
    assert engine.process.poll() is None


def test_a_child_of_the_engine_ends_with_it(launch: Launch) -> None:
    engine = launch(script=Script(children=True))
    (child,) = psutil.Process(engine.process.pid).children()
    assert os.getpgid(child.pid) == engine.process.pid
    engine.process.terminate()
    assert engine.process.wait(DEADLINE_S) == 0
    assert not child.is_running()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_orphan_stays_in_the_group_when_the_engine_is_gone(launch: Launch, number: signal.Signals) -> None:
    engine = launch(script=failing("orphan"))
    (orphan,) = psutil.Process(engine.process.pid).children()
    engine.process.send_signal(number)
    assert engine.process.wait(DEADLINE_S) == (0 if number == signal.SIGTERM else -number)
    assert orphan.status() != psutil.STATUS_ZOMBIE
    assert os.getpgid(orphan.pid) == os.getsid(orphan.pid) == engine.process.pid


def test_the_python_beside_it_knows_the_engine(tmp_path: Path) -> None:
    python = install(tmp_path, script=Script(version="0.26.0")).with_name("python")

    def said(*arguments: str) -> str:
        return subprocess.run([python, *arguments], capture_output=True, text=True, check=True).stdout

    assert said("-m", "vllm.entrypoints.cli.main", "--version") == "0.26.0\n"
    assert said("-c", "import importlib.metadata as m; print(m.version('vllm'))") == "0.26.0\n"
    assert said("-c", "print(6 * 7)") == "42\n"


def test_the_command_line_wins_over_the_configuration_file(tmp_path: Path) -> None:
    path = tmp_path / "engine.yaml"
    path.write_text(
        "max-num-seqs: 64\nblock-size: 32\nenforce-eager: true\nenable-prefix-caching: false\n"
        "compilation-config: {cudagraph_mode: NONE}\nserved-model-name: [a, b]\n"
    )
    settings = parse(["serve", "m", "--max_num_seqs=8", "--config", str(path)], {})
    assert settings.holds("model=m & max_num_seqs=8 & block_size=32 & enforce_eager=true")
    assert settings.holds("enable_prefix_caching=false & served_model_name=a b")
    assert settings.options["compilation_config"] == '{"cudagraph_mode": "NONE"}'
    assert parse(["serve", "m", f"--config={path}"], {}).holds("max_num_seqs=128")
    path.write_text("no-such-flag: 1\n")
    with pytest.raises(UsageError, match="unrecognized arguments: --no-such-flag 1"):
        parse(["serve", "--config", str(path)], {})


def test_the_speed_is_the_product_of_what_holds() -> None:
    script = Script(speed={"enforce_eager=true": 0.8, "env:BIND=0-1": 1.8, "kv_cache_dtype=fp8": 1.05})
    assert script.speed_of(parse(["serve", "m", "--enforce-eager"], {"BIND": "0-1"})) == pytest.approx(1.44)
    assert script.speed_of(parse(["serve", "m"], {"BIND": "auto"})) == 1
    assert Script.parse(script.json()) == script


def batcher(**changes: int) -> Batcher:
    limits = {"max_num_seqs": 8, "max_num_batched_tokens": 512, "long_prefill_token_threshold": 0}
    return Batcher(
        limits=Limits(**limits | {"kv_tokens": 4096, "cache_block": 0} | changes),
        step_time=StepTime(step_s=0.0, prefill_s_per_token=0.0, decode_s_per_seq=0.0),
    )


def steps(engine: Batcher, prompts: tuple[int, ...], count: int) -> list[list[int]]:
    """Tokens computed in each of `count` steps, one number for each sequence of the batch."""
    for prompt in prompts:
        engine.submit(Sequence(prompt=[0] * prompt, budget=100, on_token=lambda: None))
    shares = []
    for _ in range(count):
        batch = engine._schedule()
        for sequence, share in batch:
            engine._advance(sequence, share)
        shares.append([share for _, share in batch])
    return shares


def test_prefill_and_decode_share_the_token_budget() -> None:
    assert steps(batcher(), (100, 700), 4) == [[100, 412], [1, 288], [1, 1], [1, 1]]


def test_the_threshold_caps_one_prompt_but_not_a_lonely_one() -> None:
    assert steps(batcher(long_prefill_token_threshold=128), (300, 50), 3) == [[128, 50], [128, 1], [44, 1]]
    assert steps(batcher(long_prefill_token_threshold=128), (300,), 1) == [[300]]


def test_a_full_cache_sends_the_youngest_back_to_the_queue() -> None:
    engine = batcher(kv_tokens=202)
    assert steps(engine, (100, 100), 3) == [[100, 100], [1, 1], [1]]
    assert engine.counters.num_preemptions == 1
    assert [sequence.emitted for sequence in engine.waiting] == [2]
