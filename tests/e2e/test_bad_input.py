"""Whatever is wrong is said in one line with a hint, under a documented code, before anything is launched."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import yaml
from studies import SPACE, TRAFFIC, Place, Said, load

from autotune.testing import Fault, Script, install

Prepare = Callable[[Place], object]

# NVML of a machine with one large GPU, or without a driver.
NVML = """
class NVMLError(Exception): pass
class NVMLError_LibraryNotFound(NVMLError): pass
class NVMLError_DriverNotLoaded(NVMLError): pass
class Memory: total, free = 80 * 2**30, 79 * 2**30
def nvmlInit():
    if not {count}: raise NVMLError_LibraryNotFound("NVML Shared Library Not Found")
def nvmlShutdown(): pass
def nvmlDeviceGetCount(): return {count}
def nvmlSystemGetDriverVersion(): return "570.00"
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetMemoryInfo(handle): return Memory
def nvmlDeviceGetCudaComputeCapability(handle): return (9, 0)
def nvmlDeviceGetUUID(handle): return f"GPU-{{handle}}"
def nvmlDeviceGetName(handle): return "NVIDIA H100"
"""


def write(name: str, text: str) -> Prepare:
    return lambda place: (place.folder / name).write_text(text)


def settings(**changes: object) -> Prepare:
    return lambda place: place.configure(**changes)


def space(**changes: object) -> Prepare:
    return write("space.yaml", yaml.safe_dump(SPACE | changes, sort_keys=False))


def parameter(name: str, **fields: object) -> Prepare:
    return space(parameters=SPACE["parameters"] | {name: fields}, presets=[])


def gpus(count: int, version: str = "0.32.0+cpu", **changes: object) -> Prepare:
    def prepare(place: Place) -> None:
        (place.folder / "nvml").mkdir()
        (place.folder / "nvml/pynvml.py").write_text(NVML.format(count=count))
        install(place.folder / "engine", script=Script(version=version, faults=seen(place)))
        place.configure(**changes)

    return prepare


def seen(place: Place) -> tuple[Fault, ...]:
    """A launch leaves a file behind."""
    return (Fault(fault="slow_start", once=str(place.folder / "launched")),)


def all_of(*steps: Prepare) -> Prepare:
    return lambda place: [step(place) for step in steps]


def nothing(_place: Place) -> None: ...


CSV = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
ROW = "2023-11-16 18:15:46.6805900,374,44\r\n"
LONG = TRAFFIC.replace('"prompt_tokens": 21', '"prompt_tokens": 9000')

# name → (words, what is prepared, exit code, the error line)
CASES: dict[str, tuple[list[str], Prepare, int, str]] = {
    # the SLA
    "no sla": ([], settings(), 2, "no SLA given"),
    "unknown metric": (["--sla", "tfft_p99=500ms"], nothing, 2, "unknown metric 'tfft' in 'tfft_p99=500ms'"),
    "unknown unit": (["--sla", "ttft_p99=500sec"], nothing, 2, "'500sec' is not a limit for ttft"),
    "two limits": (
        ["--sla", "ttft_p99=1s", "--sla", "ttft_p99=2s"],
        nothing,
        2,
        "--sla gives two limits for ttft_p99: ttft_p99=1s and ttft_p99=2s",
    ),
    "p50 looser than p99": (
        ["--sla", "ttft_p50=2s", "--sla", "ttft_p99=1s"],
        nothing,
        2,
        "--sla contradicts itself: ttft_p50=2s is looser than ttft_p99=1s",
    ),
    "end before begin": (
        ["--sla", "ttft_p99=2s,e2el_p99=1s"],
        nothing,
        2,
        "--sla contradicts itself: e2el_p99=1s is below ttft_p99=2s",
    ),
    # the model
    "no model": (["--sla", "ttft_p99=1s"], settings(model=None), 2, "no model given"),
    "no such model": (["--model", "./nowhere"], nothing, 2, "model nowhere: no such folder"),
    "a model without config": (
        ["--model", "empty"],
        lambda place: (place.folder / "empty").mkdir(),
        2,
        r".*/empty/config\.json: no such file",
    ),
    "a model of one file": (["--model", "space.yaml"], nothing, 2, r"model space\.yaml: is a file"),
    "a model without weights": (
        [],
        lambda place: (place.folder / "model/model.safetensors").unlink(),
        2,
        r".*/model holds no weights",
    ),
    "a config that is cut off": ([], write("model/config.json", '{"architectures": ['), 2, ".* is not JSON"),
    "the quality of random weights": (
        ["--quality", "perplexity=1%"],
        space(fixed={"kv_cache_memory_bytes": "600M", "load_format": "dummy"}),
        2,
        "load_format is dummy: the perplexity of random weights means nothing",
    ),
    "a variant that is not there": (
        [],
        settings(variants={"int8": "./nowhere"}),
        2,
        r"model \./nowhere: no such",
    ),
    "a variant called base": (
        [],
        settings(variants={"base": "model"}),
        2,
        "a variant cannot be called 'base'",
    ),
    # the traffic
    "no workload": ([], settings(workload=None), 2, "no workload given"),
    "no such workload": (["--workload", "nowhere.csv"], nothing, 2, r"no workload at nowhere\.csv"),
    "a folder as workload": (["--workload", "model"], nothing, 2, "the workload model is a folder"),
    "an empty workload": ([], write("traffic.jsonl", ""), 2, r"the workload traffic\.jsonl is empty"),
    "an unknown format": (
        [],
        write("traffic.jsonl", "hello\n"),
        2,
        r"traffic\.jsonl:1: no known workload format",
    ),
    "a garbled row": (
        [],
        write("traffic.jsonl", TRAFFIC + '{"offset_s": 99, "prompt_tokens": "many"\n'),
        2,
        r"traffic\.jsonl:61: ",
    ),
    "a row without tokens": (
        [],
        write("traffic.jsonl", TRAFFIC + '{"offset_s": 99, "prompt_tokens": 5, "output_tokens": 0}\n'),
        2,
        r"traffic\.jsonl:61: 5 prompt and 0 output tokens",
    ),
    "binary traffic": ([], write("traffic.jsonl", "\0\1\2"), 2, r"traffic\.jsonl:1: not a line of text"),
    "a trace cut off": (
        [],
        write("traffic.jsonl", CSV + ROW + "2023-11-16 18:15:47.1,37"),
        2,
        r"traffic\.jsonl:3: 2 cells where the header has 3",
    ),
    "traffic of one request": (
        [],
        write("traffic.jsonl", CSV + ROW),
        2,
        r"traffic\.jsonl holds 1 requests over no",
    ),
    "too little traffic": (
        [],
        write("traffic.jsonl", "".join(TRAFFIC.splitlines(keepends=True)[:12])),
        2,
        r"traffic\.jsonl holds 12 requests: too few",
    ),
    "a request longer than the model": (
        [],
        write("traffic.jsonl", LONG),
        2,
        r"the longest request has 9,007 tokens, model takes 8,192",
    ),
    # the space
    "no such space": (["--space", "nowhere.yaml"], nothing, 2, r"nowhere\.yaml: cannot be read"),
    "a space that is no YAML": ([], write("space.yaml", "name: [\n"), 2, r"space\.yaml:\d+: is not YAML"),
    "an unknown parameter": (
        [],
        parameter("max_num_sequences", levels=[1, 2], default=1),
        2,
        r"space\.yaml:\d+: unknown setting 'max_num_sequences'",
    ),
    "a range without an end": (
        [],
        parameter("max_num_seqs", range={"low": 4, "high": 128, "factor": 1}, default=128),
        2,
        r"space\.yaml:\d+: the range of max_num_seqs never ends",
    ),
    "a range the wrong way round": (
        [],
        parameter("max_num_seqs", range={"low": 128, "high": 4, "step": 4}, default=128),
        2,
        r"space\.yaml:\d+: the range of max_num_seqs is empty: 128 > 4",
    ),
    "a space for another version": ([], space(versions=">=0.40"), 2, r"the space small is for vllm >=0\.40"),
    "a space for the other device": ([], space(device="cuda"), 2, "the space small is for cuda"),
    "a pin of what is searched": (
        [],
        settings(engine_args={"max_num_seqs": 8}),
        2,
        r"autotune\.yaml: engine_args pins max_num_seqs, which small searches",
    ),
    # the machine
    "no engine on PATH": ([], settings(engine_python=None), 3, "no vLLM found: `vllm` is not on PATH"),
    "an engine_python that is not there": (
        ["--engine-python", "nowhere"],
        nothing,
        3,
        "nowhere does not exist",
    ),
    "a Python without an engine": (
        ["--engine-python", "/bin/true"],
        nothing,
        3,
        "/bin/true has no vLLM installed",
    ),
    "a GPU asked for and none there": (
        ["--gpus", "0"],
        gpus(0),
        3,
        "GPU 0 was asked for, but there is no NVIDIA driver",
    ),
    "another GPU than is there": (["--gpus", "3"], gpus(1), 3, "GPU 3 is not there; this machine has: 0"),
    "no GPU asked for, one there": (
        [],
        gpus(1, gpus=None),
        3,
        r"1 × NVIDIA H100 is present, but vLLM 0\.32\.0\+cpu",
    ),
    "a GPU asked for and an engine without": (
        ["--gpus", "0"],
        gpus(1),
        3,
        "--gpus was given, but vLLM 0.32.0",
    ),
    "an engine for GPUs and none there": (
        [],
        gpus(0, "0.32.0", gpus=None),
        3,
        r"vLLM 0\.32\.0 is built for GPUs",
    ),
    "an engine for GPUs and none wanted": (
        ["--gpus", "none"],
        gpus(1, "0.32.0"),
        3,
        r"vLLM 0\.32\.0 is built for GPUs and the run has none",
    ),
    "gpus that are none": (["--gpus", "all"], nothing, 2, "--gpus 'all' is not a list of GPUs"),
    # the folder
    "a file as out": (["--out", "space.yaml"], nothing, 2, r"--out space\.yaml is a file"),
    "an out below a file": (
        ["--out", "space.yaml/out"],
        nothing,
        3,
        "cannot write the run folder space.yaml/out",
    ),
    "an out that nobody may make": (
        ["--out", "/proc/out"],
        nothing,
        3,
        "cannot write the run folder /proc/out",
    ),
    "an out that holds something": (["--out", "model"], nothing, 2, "--out model is not empty"),
    # the extent
    "a budget too small": (
        ["--budget", "10s"],
        nothing,
        2,
        r"a budget of 10\.0 s is too small for one trial",
    ),
    "a budget without a unit": (["--budget", "900"], nothing, 2, "'900' is not a budget"),
    "no trials": (["--trials", "0"], nothing, 2, "--trials 0 is no number of trials"),
    "a speed of zero": (["--at", "0"], nothing, 2, "--at 0 is not a speed"),
    "a speed at which nothing would ever arrive": (
        ["--at", "0.0009"],
        nothing,
        2,
        "--at 0.0009 is not a speed",
    ),
    "a seed of 64 bits": (["--seed", str(2**63)], nothing, 2, f"--seed {2**63} is too large"),
    "a gate without a percentage": (
        ["--quality", "perplexity=1"],
        nothing,
        2,
        "'1' is not a perplexity limit",
    ),
    "windows of nothing": ([], settings(load=load(window_requests=1)), 2, "load: 1 requests in 1 windows"),
    "another engine": (["--engine", "llm"], nothing, 2, "unknown engine 'llm'"),
    "ports that are none": (["--ports", "80"], nothing, 2, "'80' is not a range of ports"),
    # settings and words
    "an unknown key": ([], settings(budgets="15min"), 2, r"autotune\.yaml: .*unknown field `budgets`"),
    "an unknown key of the load": (
        [],
        settings(load=load(windows="1s")),
        2,
        r"autotune\.yaml: .*unknown field `windows`",
    ),
    "a key of the wrong kind": (
        [],
        settings(trials="many"),
        2,
        r"autotune\.yaml: \$\.trials is text, where a whole number is expected",
    ),
    "settings that are no YAML": ([], write("autotune.yaml", "model: [\n"), 2, r"autotune\.yaml:\d+: "),
    "an unknown option": (["--slas", "ttft_p99=1s"], nothing, 2, "No such option: --slas"),
    "an option without its value": (["--model"], nothing, 2, "Option '--model' requires an argument"),
    "a word for a number": (["--trials", "many"], nothing, 2, r"Invalid value for '--trials'"),
    "a word too many": (["fast"], nothing, 2, "Got unexpected extra argument"),
}


def check(place: Place, said: Said, code: int, says: str) -> None:
    """One error line, one hint, nothing else, and nothing begun."""
    assert said.stdout == ""
    assert re.fullmatch(rf"error: {says}.*\nhint: .+\n", said.stderr), said.stderr
    assert said.code == code
    assert not (place.folder / "launched").exists()
    assert not (place.folder / "out").exists()
    assert not (place.folder / "runs").exists()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path, env={"PYTHONPATH": str(tmp_path / "nvml")})
    Place.make(tmp_path, script=Script(faults=seen(place)))
    return place


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_one_line_with_a_hint_before_any_launch(place: Place, name: str) -> None:
    words, prepare, code, says = CASES[name]
    prepare(place)
    words = ["--ports", place.ports, *words] if "--ports" not in words else words
    words = ["--out", "out", *words] if "--out" not in words else words
    words = ["--sla", "ttft_p99=1s", *words] if "--sla" not in words and name != "no sla" else words
    check(place, place.run("run", *words), code, says)


def test_a_range_of_ports_that_is_taken_is_said_before_any_launch(place: Place) -> None:
    low = int(place.ports.partition("-")[0])
    with ExitStack() as stack:
        for port in (low, low + 1):
            taken = stack.enter_context(socket.socket())
            with suppress(OSError):  # somebody else has it: as good
                taken.bind(("127.0.0.1", port))
        said = place.run("run", "--sla", "ttft_p99=1s", "--out", "out", "--ports", f"{low}-{low + 1}")
    check(place, said, 3, rf"no free port in {low}-{low + 1}")


def test_a_folder_that_holds_a_run_is_not_written_over(place: Place) -> None:
    out = place.folder / "before"
    out.mkdir()
    (out / "run.yaml").write_text("kept")
    said = place.run("run", "--sla", "ttft_p99=1s", "--out", "before")
    check(place, said, 2, "--out before is not empty")
    assert said.stderr.endswith("hint: autotune resume before\n")
    assert [path.name for path in out.iterdir()] == ["run.yaml"]


def test_a_dry_run_finds_the_same_faults(place: Place) -> None:
    said = place.run("run", "--dry-run", "--sla", "ttft_p99=1s", "--budget", "10s")
    check(place, said, 2, r"a budget of 10\.0 s is too small for one trial")


def test_the_hint_after_a_wrong_option_names_the_commands_own_help(place: Place) -> None:
    said = place.run("run", "--sla", "ttft_p99=1s", "--trials", "many")
    assert said.code == 2
    assert said.stderr.endswith("hint: see autotune run --help\n")


def test_json_does_not_change_how_a_fault_is_said(place: Place) -> None:
    said = place.run("run", "--json", "--sla", "ttft_p99=1parsec")
    check(place, said, 2, "'1parsec' is not a limit for ttft")


@pytest.mark.parametrize("words", [["tune"], ["resume"], ["resume", "a", "b"], ["report", "--json", "a"]])
def test_a_command_that_is_none_is_an_input_error(place: Place, words: list[str]) -> None:
    check(place, place.run(*words), 2, "")
