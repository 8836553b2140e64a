"""`autotune.yaml`, and how flags, file and defaults settle into one run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.cli import settle
from autotune.cli.settle import DEFAULT_PORTS, DEFAULT_TRIALS, LOAD, Flags, gpu_indexes
from autotune.config import ConfigFile, LoadFile, read_config
from autotune.errors import InputError


def read(folder: Path, text: str | bytes) -> ConfigFile:
    (folder / "autotune.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
    return read_config(folder)


# -- the file -------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [None, "", "# nothing\n", "{}\n"])
def test_without_a_file_or_with_an_empty_one_everything_is_left_out(tmp_path: Path, text: str | None) -> None:
    assert (read_config(tmp_path) if text is None else read(tmp_path, text)) == ConfigFile()


def test_every_key_is_read(tmp_path: Path) -> None:
    text = """\
sla: [ttft_p99=500ms, tpot_p95=40ms]
model: models/m
variants: {int8: models/m-int8}
workload: w.csv
engine: vllm
engine_python: venv/bin/python
engine_args: {max-model-len: 4096, enforce_eager: true, dtype: bfloat16, gpu_memory_utilization: 0.8}
space: space.yaml
out: runs/x
budget: 2h
trials: 12
gpus: 0,1
quality: perplexity=2%
at: 1.0
seed: 3
ports: 9000-9010
start_deadline: 15min
load: {window_requests: 200, window: 30s, max_window: 2min, lead_in: 5s, max_windows: 6, resolution: 1.1,
       start_speed: 2, min_speed: 1, max_speed: 50, max_foreign_cpu: 20%}
"""
    assert read(tmp_path, text) == ConfigFile(
        sla=["ttft_p99=500ms", "tpot_p95=40ms"],
        model="models/m",
        variants={"int8": "models/m-int8"},
        workload="w.csv",
        engine="vllm",
        engine_python="venv/bin/python",
        engine_args={
            "max-model-len": 4096,
            "enforce_eager": True,
            "dtype": "bfloat16",
            "gpu_memory_utilization": 0.8,
        },
        space="space.yaml",
        out="runs/x",
        budget="2h",
        trials=12,
        gpus="0,1",
        quality="perplexity=2%",
        at=1.0,
        seed=3,
        ports="9000-9010",
        start_deadline="15min",
        load=LoadFile(
            window_requests=200,
            window="30s",
            max_window="2min",
            lead_in="5s",
            max_windows=6,
            resolution=1.1,
            start_speed=2,
            min_speed=1,
            max_speed=50,
            max_foreign_cpu="20%",
        ),
    )


def test_the_shipped_file_is_read() -> None:
    assert read_config(Path(__file__).parents[2]) != ConfigFile()


@pytest.mark.parametrize("word", ["off", '"off"', "no", "false"])
def test_a_gate_may_be_off_without_quotes(tmp_path: Path, word: str) -> None:
    """YAML 1.1 reads a bare `off` as false."""
    assert read(tmp_path, f"quality: {word}\n").quality == "off"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("budgt: 1h", "autotune.yaml: Object contains unknown field `budgt`", "did you mean budget?"),
        (
            "load: {windows: 60s}",
            "autotune.yaml: Object contains unknown field `windows`",
            "did you mean window",
        ),
        ("zzz: 1", "autotune.yaml: Object contains unknown field `zzz`", "see docs/reference/config.md"),
        ("trials: many", "autotune.yaml: $.trials is text, where a whole number is expected", "see docs"),
        (
            "trials: true",
            "autotune.yaml: $.trials is true or false, where a whole number is expected",
            "see docs",
        ),
        ("budget: 15", "autotune.yaml: $.budget is a whole number, where text is expected", "see docs"),
        ("- a\n- b", "autotune.yaml: the file is a list, where a mapping is expected", "see docs"),
        ("model: [a]", "autotune.yaml: $.model is a list, where text is expected", "see docs"),
        ("a: b: c", "autotune.yaml:1: mapping values are not allowed here", "the file must be YAML"),
        ("sla:\n  - a\n b: c", "autotune.yaml:3: ", "the file must be YAML"),
        ("model: !!python/name:os.system x", "autotune.yaml:1: could not determine", "the file must be YAML"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(tmp_path: Path, text: str, message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, text)
    assert caught.value.message.startswith(message)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize(
    "text",
    [
        b"model: \xff",
        b"model: \x00",
        b"seed: 2001-02-30",  # a date that PyYAML hands to Python
        b"seed: 1" + b"0" * 5000,  # more digits than Python turns into a number
        b"[" * 2000,
    ],
)
def test_what_yaml_itself_cannot_read_is_refused(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(InputError, match=r"autotune\.yaml"):
        read(tmp_path, text)


def test_a_folder_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "autotune.yaml").mkdir()
    with pytest.raises(InputError, match="is not a regular file"):
        read_config(tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60) | st.text(":{}[]-#&*!|>'\"%@ \nab1.", max_size=60).map(str.encode))
def test_any_bytes_are_a_file_or_an_input_error(tmp_path: Path, content: bytes) -> None:
    try:
        found = read(tmp_path, content)
    except InputError as error:
        message = error.message
    else:
        assert isinstance(found, ConfigFile)
        return
    assert "autotune.yaml" in message


# -- flags over file over defaults ----------------------------------------------------------------


def test_without_budget_and_trials_there_are_thirty_trials() -> None:
    assert settle._extent(Flags(), ConfigFile()) == (None, DEFAULT_TRIALS) == (None, 30)


@pytest.mark.parametrize(
    ("flags", "file", "extent"),
    [
        (Flags(), ConfigFile(budget="15min"), (900.0, None)),
        (Flags(), ConfigFile(budget="15min", trials=4), (900.0, 4)),
        (Flags(budget="1h"), ConfigFile(trials=4), (3600.0, 4)),
        (Flags(trials=7), ConfigFile(budget="15min"), (900.0, 7)),
        (Flags(trials=7, budget="1h"), ConfigFile(trials=4, budget="15min"), (3600.0, 7)),
    ],
)
def test_budget_and_trials_are_settled_each_for_itself(
    flags: Flags, file: ConfigFile, extent: tuple[float | None, int | None]
) -> None:
    assert settle._extent(flags, file) == extent


@pytest.mark.parametrize("trials", [10_001, 10**30])
def test_more_trials_than_anybody_can_mean_are_refused(trials: int) -> None:
    with pytest.raises(InputError, match=f"--trials {trials} is no number of trials"):
        settle._extent(Flags(trials=trials), ConfigFile())


def test_an_empty_flag_is_not_a_flag_left_out() -> None:
    with pytest.raises(InputError, match="--engine-python is empty"):
        settle.settle(Flags(sla=("ttft_p99=1s",), engine_python=""), ConfigFile())


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "autotune.yaml").write_text("trials: 1\nload: {window: 1s}\ntrials: 2\n")
    with pytest.raises(InputError, match=r"autotune\.yaml:3: trials stands twice"):
        read_config(tmp_path)


def test_a_link_to_nowhere_is_not_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "autotune.yaml").symlink_to("nowhere")
    with pytest.raises(InputError, match=r"autotune\.yaml is not a regular file"):
        read_config(tmp_path)


def test_no_trial_at_all_is_refused() -> None:
    with pytest.raises(InputError, match="--trials 0 is no number of trials"):
        settle._extent(Flags(trials=0), ConfigFile())


def test_the_load_of_the_file_changes_only_what_it_names() -> None:
    load = settle._load(LoadFile(window="30s", lead_in="5s", max_windows=6), None)
    assert (load.window_s, load.lead_in_s, load.max_windows) == (30.0, 5.0, 6)
    assert (load.window_requests, load.resolution, load.at) == (LOAD.window_requests, LOAD.resolution, None)
    assert settle._load(LoadFile(), 2.0).at == 2.0
    assert settle._load(LoadFile(max_foreign_cpu="25%"), None).max_foreign_cpu == 0.25


def test_a_window_longer_than_the_longest_raises_it_unless_both_are_given() -> None:
    assert settle._load(LoadFile(window="30s"), None).max_window_s == LOAD.max_window_s == 90
    assert settle._load(LoadFile(window="2min"), None).max_window_s == 120
    with pytest.raises(InputError, match=r"max_window of 1 min 00 s is below window of 2 min 00 s"):
        settle._load(LoadFile(window="2min", max_window="60s"), None)
    with pytest.raises(InputError, match=r"max_window of 10\.0 s is below window of 30\.0 s"):
        settle._load(LoadFile(max_window="10s"), None)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (LoadFile(window_requests=9), "load: 9 requests in 8 windows to a resolution of 1.08 is no climb"),
        (LoadFile(max_windows=0), "load: 500 requests in 0 windows"),
        (LoadFile(resolution=1.0), "load: 500 requests in 8 windows to a resolution of 1 is no climb"),
        (LoadFile(resolution=float("nan")), "load: 500 requests in 8 windows to a resolution of nan"),
        (LoadFile(min_speed=0.0), "load: speeds 0 (min), 1 (start), 1000 (max)"),
        (LoadFile(min_speed=2.0), "load: speeds 2 (min), 1 (start), 1000 (max)"),
        (LoadFile(max_speed=0.5), "load: speeds 0.05 (min), 1 (start), 0.5 (max)"),
        (LoadFile(start_speed=float("nan")), "load: speeds 0.05 (min), nan (start)"),
        (LoadFile(window="30"), "'30' is not a load.window"),
        (LoadFile(max_window="30"), "'30' is not a load.max_window"),
        (LoadFile(max_foreign_cpu="0.2"), "'0.2' is not a load.max_foreign_cpu"),
    ],
)
def test_numbers_that_make_no_climb_are_refused(file: LoadFile, message: str) -> None:
    with pytest.raises(InputError) as caught:
        settle._load(file, None)
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize("at", [0.0, -1.0, float("nan"), float("inf"), 1001.0])
def test_a_fixed_speed_is_a_positive_number(at: float) -> None:
    with pytest.raises(InputError, match="is not a speed"):
        settle._load(LoadFile(), at)


@pytest.mark.parametrize(
    ("text", "limit"), [("off", None), ("perplexity=1%", 0.01), ("perplexity=0.5%", 0.005)]
)
def test_a_quality_gate_is_a_limit_or_off(text: str, limit: float | None) -> None:
    assert settle._quality(text) == limit


@pytest.mark.parametrize("text", ["on", "1%", "perplexity", "perplexity=", "accuracy=1%", "perplexity=1"])
def test_another_gate_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a"):
        settle._quality(text)


@pytest.mark.parametrize(
    ("text", "ports"),
    [(None, DEFAULT_PORTS), ("", DEFAULT_PORTS), ("9000-9010", (9000, 9010)), ("9000", (9000, 9000))],
)
def test_ports_are_a_range_or_one(text: str | None, ports: tuple[int, int]) -> None:
    assert settle._ports(text) == ports


@pytest.mark.parametrize(
    "text", ["80-90", "9000-8000", "9000-70000", "a-b", "-", "9000:9010", "9000-9010-9020", "²", "9000-²"]
)
def test_other_ports_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a range of ports"):
        settle._ports(text)


@pytest.mark.parametrize(
    ("given_gpus", "indexes"),
    [
        (None, None),
        ("none", ()),
        (0, (0,)),
        ("0", (0,)),
        ("0,1", (0, 1)),
        (" 3, 1 ", (3, 1)),
    ],
)
def test_gpus_are_all_none_or_those_named(
    given_gpus: str | int | None, indexes: tuple[int, ...] | None
) -> None:
    assert gpu_indexes(given_gpus) == indexes


@pytest.mark.parametrize("text", ["", "all", "0,", "0,0", "-1", "0-1", "²", -1])
def test_other_gpus_are_refused(text: str | int) -> None:
    with pytest.raises(InputError, match="is not a list of GPUs"):
        gpu_indexes(text)


# -- the whole, as far as it goes without a machine -----------------------------------------------

GOOD = Flags(sla=("ttft_p99=500ms",), out="runs/new", workload="none.csv", model="none")


@pytest.mark.parametrize(
    ("flags", "file", "message"),
    [
        (Flags(), ConfigFile(), "no SLA given"),
        (Flags(sla=("ttft=1s",)), ConfigFile(), "'ttft=1s' is not an SLO"),
        (Flags(), ConfigFile(sla="ttft=1s"), "'ttft=1s' is not an SLO"),
        (GOOD, ConfigFile(engine="sglang"), "unknown engine 'sglang'"),
        (GOOD, ConfigFile(quality="strict"), "'strict' is not a quality gate"),
        (GOOD, ConfigFile(budget="soon"), "'soon' is not a budget"),
        (GOOD, ConfigFile(ports="80"), "'80' is not a range of ports"),
        (Flags(sla=GOOD.sla), ConfigFile(), "no workload given"),
        (GOOD, ConfigFile(workload="other.csv"), "no workload at none.csv"),
    ],
)
def test_what_was_asked_is_checked_before_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: Flags, file: ConfigFile, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        settle.settle(flags, file)
    assert caught.value.message.startswith(message)
    assert list(tmp_path.iterdir()) == []
