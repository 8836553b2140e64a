"""`autotune workload` as installed: what it prints, writes and refuses."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from studies import AUTOTUNE, Said

from autotune.domain.workload import Workload
from autotune.formats.workloads import read_workload

# Two requests a stamp, every three seconds; the second of each pair begins as the one before it.
MOONCAKE = "".join(
    json.dumps(
        {
            "timestamp": index // 2 * 3000,
            "input_length": 1100 + index,
            "output_length": 10,
            "hash_ids": [0, 2 * (index // 2) + 1, 100 + index],
        }
    )
    + "\n"
    for index in range(40)
)
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:{index // 60:02}:{index % 60:02}.0000000,{100 + index},{1 + index}\n"
    for index in range(120)
)
TALKS = json.dumps(
    [
        {
            "id": f"talk{number}",
            "conversations": [
                {"from": "human" if turn % 2 == 0 else "gpt", "value": f"words of turn {turn} in {number}"}
                for turn in range(4)
            ],
        }
        for number in range(5)
    ]
)

Workloads = Callable[..., Said]


@pytest.fixture
def autotune(tmp_path: Path) -> Workloads:
    """Run `autotune workload` among a few recordings."""
    (tmp_path / "mooncake.jsonl").write_text(MOONCAKE)
    (tmp_path / "azure.csv").write_text(AZURE)
    (tmp_path / "talks.json").write_text(TALKS)
    environ = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "NO_COLOR"}}

    def run(*words: str) -> Said:
        done = subprocess.run(
            [AUTOTUNE, "workload", *words],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    return run


def facts(said: Said) -> dict[str, Any]:
    assert said.code == 0, said.stderr
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def wrote(said: Said, path: Path) -> Workload:
    assert (said.code, said.stdout) == (0, ""), said.stderr
    return read_workload(path)


# -- inspect --------------------------------------------------------------------------------------


def test_a_recording_is_told_in_numbers(autotune: Workloads) -> None:
    told = facts(autotune("inspect", "--json", "mooncake.jsonl"))
    assert told["requests"] == 40
    assert told["duration_s"] == 57  # 19 steps of 3 s
    assert told["rate_rps"] == pytest.approx(39 / 57)
    assert told["quantised_s"] == pytest.approx(3)
    assert told["requests_per_stamp"] == 2
    assert told["block_tokens"] == 512
    assert told["input_tokens"] == {"mean": 1119.5, "p50": 1119, "p90": 1135, "p99": 1139, "max": 1139}
    assert told["output_tokens"]["p99"] == 10
    # The second of each pair finds two blocks, the first of each finds block 0, but for the very first.
    assert told["prefix_share"] == pytest.approx((20 * 2 + 19) * 512 / 44_780)
    assert told["sessions"] is None
    assert (told["timed"], told["counted"], told["skipped"]) == (True, True, [])
    assert told["concurrency"] == {"mean": pytest.approx(39 / 57 * 10 * 0.03), "assumed_tpot_s": 0.03}


def test_what_a_recording_does_not_say_is_null(autotune: Workloads) -> None:
    told = facts(autotune("inspect", "--json", "azure.csv"))
    assert told["quantised_s"] is None
    assert told["prefix_share"] is None
    assert told["block_tokens"] is None
    untimed = facts(autotune("inspect", "--json", "talks.json"))
    assert untimed["timed"] is False
    assert untimed["duration_s"] is untimed["rate_rps"] is untimed["gap_cv"] is untimed["concurrency"] is None
    assert untimed["sessions"] == 5
    assert untimed["turns"]["max"] == 2


def test_several_recordings_are_one_line_each(autotune: Workloads) -> None:
    said = autotune("inspect", "--json", "azure.csv", "mooncake.jsonl")
    assert [(one["file"], one["requests"]) for one in said.events] == [
        ("azure.csv", 120),
        ("mooncake.jsonl", 40),
    ]


def test_the_table_fits_80_columns_without_colour(autotune: Workloads) -> None:
    said = autotune("inspect", "mooncake.jsonl", "azure.csv", "talks.json")
    assert said.code == 0
    assert said.stderr == ""
    assert max(len(line) for line in said.stdout.splitlines()) <= 80
    assert "\x1b" not in said.stdout
    for word in ("40 requests in 57.0 s", "every 3 s", "--spread", "dispersion", "█", "without arrival"):
        assert word in said.stdout


def test_bad_rows_are_tolerated_up_to_a_number_and_named(autotune: Workloads, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text(
        MOONCAKE + '{"timestamp": 60000, "input_length": 5, "output_length": 0}\n'
    )
    refused = autotune("inspect", "bad.jsonl")
    assert refused.code == 2
    assert refused.stderr.startswith("error: bad.jsonl:41")
    assert "hint: " in refused.stderr
    tolerated = autotune("inspect", "--json", "--skip-bad", "1", "bad.jsonl")
    assert facts(tolerated)["requests"] == 40
    assert "bad.jsonl:41" in tolerated.stderr


def test_progress_is_for_terminals_and_no_data(tmp_path: Path) -> None:
    (tmp_path / "long.jsonl").write_text(MOONCAKE)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [AUTOTUNE, "workload", "inspect", "--json", "long.jsonl"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=theirs,
    ) as child:
        stdout, _ = child.communicate(timeout=60)
    os.close(theirs)
    os.close(ours)
    assert json.loads(stdout)["requests"] == 40


# -- convert --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mooncake.jsonl", "azure.csv", "talks.json"])
def test_what_is_converted_reads_as_what_it_was(autotune: Workloads, tmp_path: Path, name: str) -> None:
    after = wrote(autotune("convert", name, "--out", "out.jsonl"), tmp_path / "out.jsonl")
    before = read_workload(tmp_path / name)
    assert after.requests == before.requests
    assert (after.block_tokens, after.timed, after.counted) == (
        before.block_tokens,
        before.timed,
        before.counted,
    )


def test_the_converted_converts_to_the_same_bytes(autotune: Workloads, tmp_path: Path) -> None:
    autotune("convert", "mooncake.jsonl", "--out", "one.jsonl")
    said = autotune("convert", "one.jsonl", "--out", "-")
    assert said.stdout == (tmp_path / "one.jsonl").read_text()


def test_prompts_without_times_get_them(autotune: Workloads, tmp_path: Path) -> None:
    found = wrote(
        autotune("convert", "talks.json", "--rate", "2", "--out", "out.jsonl"), tmp_path / "out.jsonl"
    )
    starts = {request.session: request.offset_s for request in found.requests}
    assert found.timed
    assert len(found.requests) == 10
    assert len(set(starts.values())) == 5
    assert all(request.body for request in found.requests)


def test_spreading_takes_the_steps_out(autotune: Workloads, tmp_path: Path) -> None:
    found = wrote(autotune("convert", "mooncake.jsonl", "--spread", "--out", "o.jsonl"), tmp_path / "o.jsonl")
    assert len({request.offset_s for request in found.requests}) == 40
    assert [request.prompt_tokens for request in found.requests] == list(range(1100, 1140))
    assert facts(autotune("inspect", "--json", "o.jsonl"))["quantised_s"] is None


# -- slice, merge, scale --------------------------------------------------------------------------


def test_slices_by_time_and_share(autotune: Workloads, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    found = wrote(autotune("slice", "azure.csv", "--from", "10s", "--to", "20s", "--out", "out.jsonl"), out)
    assert [request.prompt_tokens for request in found.requests] == list(range(110, 120))
    assert found.requests[0].offset_s == 0
    found = wrote(autotune("slice", "azure.csv", "--share", "30%", "--out", "out.jsonl", "--force"), out)
    assert [request.prompt_tokens for request in found.requests] == list(range(100, 136))


def test_the_busiest_window_by_tokens(autotune: Workloads, tmp_path: Path) -> None:
    said = autotune("slice", "azure.csv", "--busiest", "10s", "--by", "tokens", "--out", "out.jsonl")
    found = wrote(said, tmp_path / "out.jsonl")
    assert [request.prompt_tokens for request in found.requests] == list(range(210, 220))


def test_prompts_without_times_can_be_cut_by_share(autotune: Workloads, tmp_path: Path) -> None:
    found = wrote(autotune("slice", "talks.json", "--share", "40%", "--out", "o.jsonl"), tmp_path / "o.jsonl")
    assert [request.session for request in found.requests] == ["talk0"] * 2 + ["talk1"] * 2


def test_a_merge_holds_both(autotune: Workloads, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    found = wrote(autotune("merge", "azure.csv", "mooncake.jsonl", "--out", "out.jsonl"), out)
    assert len(found.requests) == 160
    assert found.block_tokens == 512


def test_scaling_doubles_the_rate(autotune: Workloads, tmp_path: Path) -> None:
    found = wrote(autotune("scale", "azure.csv", "--speed", "2", "--out", "o.jsonl"), tmp_path / "o.jsonl")
    assert [request.offset_s for request in found.requests] == [index / 2 for index in range(120)]


def test_lengths_are_scaled_with_their_blocks(autotune: Workloads, tmp_path: Path) -> None:
    said = autotune("scale", "mooncake.jsonl", "--lengths", "0.0625", "--out", "o.jsonl")
    found = wrote(said, tmp_path / "o.jsonl")
    assert found.block_tokens == 32
    # 1,100 / 16 = 68.75 and 1,139 / 16 = 71.19, rounded up; 10 / 16 of an answer is one token
    assert (found.requests[0].prompt_tokens, found.requests[-1].prompt_tokens) == (69, 72)
    assert {request.output_tokens for request in found.requests} == {1}
    assert found.requests[1].blocks == (0, 1, 101)


# -- refusals -------------------------------------------------------------------------------------

OUT = ("--out", "out.jsonl")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("inspect", "missing.jsonl"), "missing.jsonl"),
        (("inspect",), "Missing argument"),
        (("inspect", "azure.csv", "--tpot", "30"), "'30' is not a time per output token"),
        (("convert", "azure.csv"), "Missing option '--out'"),
        (("convert", "azure.csv", "--out", "talks.json"), "talks.json is there already"),
        (("convert", "azure.csv", "--out", "."), "'.' is not a file"),
        (("convert", "azure.csv", "--out", "no/out.jsonl"), "no folder no"),
        (("convert", "azure.csv", "--rate", "2", *OUT), "azure.csv has arrival times"),
        (("convert", "talks.json", "--rate", "0", *OUT), "--rate 0 is no rate"),
        (("convert", "talks.json", "--rate", "nan", *OUT), "--rate nan is no rate"),
        (("convert", "talks.json", "--spread", *OUT), "without arrival times"),
        (("slice", "azure.csv", *OUT), "one of --busiest, --from/--to and --share"),
        (("slice", "azure.csv", "--share", "10%", "--to", "5s", *OUT), "one of --busiest"),
        (("slice", "azure.csv", "--share", "30", *OUT), "'30' is not a share"),
        (("slice", "azure.csv", "--from", "5", *OUT), "'5' is not a moment"),
        (("slice", "azure.csv", "--from", "5s", "--to", "5s", *OUT), "--to 5s is not after"),
        (("slice", "azure.csv", "--from", "5h", *OUT), "no request"),
        (("slice", "azure.csv", "--busiest", "5s", "--by", "rows", *OUT), "rows"),
        (("slice", "talks.json", "--busiest", "5s", *OUT), "without arrival times"),
        (("merge", "azure.csv", *OUT), "at least two files"),
        (("merge", "azure.csv", "talks.json", *OUT), "talks.json holds prompts without arrival times"),
        (("scale", "azure.csv", *OUT), "scale needs --speed or --lengths"),
        (("scale", "azure.csv", "--lengths", "0", *OUT), "--lengths 0 is no factor"),
        (("scale", "mooncake.jsonl", "--lengths", "0.3", *OUT), "blocks of 512 tokens, of which"),
        (("scale", "talks.json", "--lengths", "0.5", *OUT), "holds text, which has its own length"),
        (("scale", "azure.csv", "--speed", "0", *OUT), "--speed 0 is no speed"),
        (("scale", "azure.csv", "--speed", "inf", *OUT), "--speed inf is no speed"),
        (("scale", "azure.csv", "--speed", "1e-300", *OUT), "no recording lasts so long"),
        (("scale", "azure.csv", "--speed", "2", "--out", "a" * 300), "name too long"),
        (("convert", "azure.csv", "--out", "/dev/null", "--force"), "'/dev/null' is not a file"),
        (("scale", "talks.json", "--speed", "2", *OUT), "without arrival times"),
        (("inspect", "azure.csv", "--skip-bad", "-1"), "greater than or equal to 0"),
    ],
)
def test_a_wrong_word_is_one_error_and_leaves_nothing(
    autotune: Workloads, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    said = autotune(*words)
    assert said.code == 2
    assert said.stdout == ""
    error, hint = said.stderr.splitlines()
    assert error.startswith("error: ")
    assert message in error
    assert hint.startswith("hint: ")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_blocks_of_different_sizes_are_not_merged(autotune: Workloads, tmp_path: Path) -> None:
    session = {
        "id": "one",
        "models": ["m"],
        "block_size": 64,
        "hash_id_scope": "local",
        "requests": [
            {
                "t": 5.0 * turn,
                "type": "s",
                "model": "m",
                "in": 130,
                "out": 5,
                "hash_ids": [1, 2],
                "think_time": 1.0,
            }
            for turn in range(3)
        ],
    }
    (tmp_path / "agent.json").write_text(json.dumps(session))
    said = autotune("merge", "mooncake.jsonl", "agent.json", *OUT)
    assert said.code == 2
    assert "512" in said.stderr
    assert "64" in said.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_a_broken_row_leaves_the_old_file(autotune: Workloads, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text(AZURE + "2023-11-16 19:00:00.0,5,many\n")
    (tmp_path / "out.jsonl").write_text("as it was")
    said = autotune("convert", "bad.csv", *OUT, "--force")
    assert said.code == 2
    assert (tmp_path / "out.jsonl").read_text() == "as it was"
    assert not [path for path in tmp_path.iterdir() if "part" in path.name]
