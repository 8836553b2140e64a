"""A whole study by the installed command: what it prints, what it leaves, and what one can do with that."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from pathlib import Path

import httpx
import msgspec
import pytest
import yaml
from studies import Place, Said, Study, until

from autotune.testing import Fault, Script

FILES = ("tuned.yaml", "serve.sh", "report.html", "result.json")
Whole = tuple[Place, Said]


@pytest.fixture
def copy(whole: Whole, tmp_path: Path) -> Place:
    """A copy of the ended study that a test may break."""
    shutil.copytree(whole[0].folder, tmp_path / "place")
    return Place(tmp_path / "place")


def result(study: Study) -> dict[str, object]:
    found: dict[str, object] = json.loads((study.folder / "result.json").read_text())
    return found


def test_a_study_ends_with_a_configuration_and_its_files(whole: Whole) -> None:
    place, said = whole
    study = place.study()
    assert said.code == 0, said.stderr
    assert said.stdout == (study.folder / "tuned.yaml").read_text()
    assert all((study.folder / name).stat().st_size > 0 for name in FILES)
    assert [trial["number"] for trial in study.trials] == list(range(6))
    assert len(study.journal("ended")) == 1
    assert study.engine_processes() == []


def test_the_defaults_are_trial_0_and_the_presets_follow(whole: Whole) -> None:
    trials = whole[0].study().trials
    assert [trial["origin"] for trial in trials[:3]] == ["default", "preset too-much", "preset int8"]
    assert trials[0]["point"] == {
        "max_num_batched_tokens": 2048,
        "max_num_seqs": 128,
        "enforce_eager": False,
        "variant": "base",
    }
    assert len({json.dumps(trial["point"]) for trial in trials}) == len(trials)


def test_out_of_memory_is_a_finding_and_the_study_goes_on(whole: Whole) -> None:
    place, said = whole
    _, lost, *_ = place.study().trials
    assert lost["kind"] == "Infeasible"
    assert lost["outcome"]["cause"] == "out of memory"
    assert lost["outcome"]["evidence"].startswith("torch.OutOfMemoryError: CUDA out of memory.")
    assert lost["launches"] == 1
    assert "  out of memory: torch.OutOfMemoryError" in said.stderr


def test_a_precision_that_loses_the_gate_is_refused_once_and_never_launched_again(whole: Whole) -> None:
    study = whole[0].study()
    refused = study.trials[2]
    assert refused["outcome"]["cause"] == "quality gate"
    assert refused["outcome"]["evidence"].startswith("perplexity 20.65 is +3.2% against 20.00")
    assert not list((study.folder / "trials/0002").glob("*.parquet"))  # no load for a worse answer
    assert [trial["point"]["variant"] for trial in study.trials].count("int8") == 1
    plans = [path.read_text() for path in study.folder.glob("*/*/plan.json")]
    assert len(plans) >= 6
    assert sum("model-int8" in plan for plan in plans) == 1
    assert [line["quality"]["precision"] for line in study.journal("quality")] == ["base", "variant=int8"]


def test_every_trial_keeps_its_plan_its_log_and_its_stamps(whole: Whole) -> None:
    study = whole[0].study()
    for trial in study.trials:
        folder = study.folder / f"trials/{trial['number']:04d}"
        assert json.loads((folder / "plan.json").read_text())["served_model"] == "autotune"
        assert "non-default args" in (folder / "engine.log").read_text()
        for window in trial["outcome"].get("windows", ()):
            assert (study.folder / window["timings"]).is_file()


def test_the_winner_and_the_defaults_were_confirmed_on_traffic_held_out(whole: Whole) -> None:
    study = whole[0].study()
    found = result(study)
    confirmed = [line["confirmation"]["trial"] for line in study.journal("confirmation")]
    assert confirmed[-1] == 0
    assert set(confirmed) >= {found["winner"]}
    assert sorted(path.name for path in (study.folder / "confirm").iterdir()) == sorted(
        {f"{number:04d}" for number in confirmed}
    )


def test_the_result_says_what_the_journal_says(whole: Whole) -> None:
    study = whole[0].study()
    found = msgspec.convert(result(study), dict[str, object])
    assert found["sla"] == "ttft_p90=4s"
    assert found["reason"] == study.journal("ended")[0]["reason"]
    kinds = [trial["kind"] for trial in msgspec.convert(found["trials"], list[dict[str, object]])]
    assert kinds == [trial["kind"].lower() for trial in study.trials]


def test_the_report_needs_no_network(whole: Whole) -> None:
    html = (whole[0].study().folder / "report.html").read_text()
    assert re.findall(r"""<(?:script|link|img)[^>]+(?:src|href)=["']?https?:""", html) == []
    assert "ttft_p90" in html


@pytest.mark.parametrize("by", ["config", "script"])
def test_what_was_tuned_serves(whole: Whole, by: str) -> None:
    place, _ = whole
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    tuned = place.study().folder
    command: list[str | Path] = [tuned / "serve.sh"]
    if by == "config":
        command = [place.folder / "engine/bin/vllm", "serve", "--config", tuned / "tuned.yaml"]
    with subprocess.Popen(
        [*command, "--port", port],
        env=place.environ(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as engine:
        try:
            body = {"model": str(place.folder / "model"), "prompt": "hello there", "max_tokens": 3}
            answers: list[httpx.Response] = []

            def answered() -> bool:
                assert engine.poll() is None
                try:
                    url = f"http://127.0.0.1:{port}/v1/completions"
                    answers.append(httpx.post(url, json=body, trust_env=False))
                except httpx.ConnectError:
                    return False
                return True

            until(answered)
        finally:
            engine.kill()
    assert answers[-1].status_code == 200
    assert answers[-1].json()["usage"]["completion_tokens"] == 3


def test_the_configuration_carries_its_evidence_and_only_what_changed(whole: Whole) -> None:
    place, said = whole
    study = place.study()
    notes = [line for line in said.stdout.splitlines() if line.startswith("# ")]
    assert notes[0].startswith("# Tuned by autotune ")
    assert "# SLA ttft_p90=4s; model model." in notes
    settings = yaml.safe_load(said.stdout)
    winner = study.points[msgspec.convert(result(study)["winner"], int)]
    changed = {
        name.replace("_", "-"): value for name, value in winner.items() if value != study.points[0][name]
    }
    changed.pop("variant", None)
    assert settings == {
        "model": str(place.folder / "model"),
        "kv-cache-memory-bytes": 629_145_600,
        **changed,
    }


def test_the_summary_names_every_file_in_one_piece(whole: Whole) -> None:
    _, said = whole
    lines = said.stderr.splitlines()
    assert [line.strip() for line in lines[-4:]] == [f"out/{name}" for name in FILES]
    assert not any(line.startswith(("error:", "hint:")) for line in lines)


# -- afterwards -----------------------------------------------------------------------------------


def test_resuming_an_ended_run_writes_its_files_again_and_launches_nothing(copy: Place) -> None:
    study = copy.study()
    before = {name: (study.folder / name).read_text() for name in ("tuned.yaml", "serve.sh")}
    launched = len(study.journal("launched"))
    for name in FILES:
        (study.folder / name).unlink()
    said = copy.run("resume", "out")
    assert said.code == 0, said.stderr
    assert "this run has ended; its files are written again" in said.stderr
    assert len(study.trials) == 6
    assert len(study.journal("launched")) == launched
    assert said.stdout == before["tuned.yaml"]
    assert all((study.folder / name).exists() for name in FILES)


def test_report_writes_the_files_again_and_leaves_the_journal_alone(copy: Place) -> None:
    study = copy.study()
    journal = (study.folder / "journal.jsonl").read_bytes()
    tuned = (study.folder / "tuned.yaml").read_text()
    for name in FILES:
        (study.folder / name).unlink()
    said = copy.run("report", "out")
    assert said.code == 0, said.stderr
    assert (study.folder / "tuned.yaml").read_text() == tuned
    assert all((study.folder / name).exists() for name in FILES)
    assert (study.folder / "journal.jsonl").read_bytes() == journal


def test_a_torn_last_line_is_cut_off_and_its_work_is_done_again(copy: Place) -> None:
    study = copy.study()
    path = study.folder / "journal.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    last = max(index for index, line in enumerate(lines) if '"event":"confirmation"' in line)
    path.write_text("".join(lines[:last]) + lines[last][:200])  # the power failed while it was written
    said = copy.run("resume", "out", "--json")
    assert said.code == 0, said.stderr
    assert path.read_text().startswith("".join(lines[:last]))
    assert [event["number"] for event in said.events if event["event"] == "confirm_started"] == [0]
    assert len(study.journal("confirmation")) == len({line for line in lines if '"confirmation"' in line})
    assert study.engine_processes() == []


def test_a_damaged_line_inside_is_named(copy: Place) -> None:
    path = copy.study().folder / "journal.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:3], "{\n", *lines[3:]]))
    said = copy.run("resume", "out")
    assert said.code == 3
    assert said.stderr.startswith("error: out/journal.jsonl:4: damaged line: ")
    assert "\nhint: " in said.stderr


def test_an_edited_run_is_refused(copy: Place) -> None:
    path = copy.study().folder / "run.yaml"
    path.write_text(path.read_text().replace("trials: 6", "trials: 7"))
    for verb in ("resume", "report"):
        said = copy.run(verb, "out")
        assert said.code == 3
        assert said.stderr.startswith("error: out/run.yaml was edited after the run began\nhint: ")


def test_other_traffic_than_the_run_began_with_is_refused(tmp_path: Path) -> None:
    place = Place.make(tmp_path, script=Script(faults=(Fault(fault="oom"),)))
    assert place.tune("--trials", "1").code == 4
    with (place.folder / "traffic.jsonl").open("a") as stream:
        stream.write('{"offset_s": 99, "prompt_tokens": 5, "output_tokens": 5}\n')
    said = place.run("resume", "out")
    assert said.code == 3
    assert re.match(r"error: .*traffic\.jsonl is not what the run began with\nhint: ", said.stderr)


@pytest.mark.parametrize("verb", ["resume", "report"])
@pytest.mark.parametrize("made", [True, False])
def test_a_folder_that_is_no_run_is_refused_and_left_as_it_was(tmp_path: Path, verb: str, made: bool) -> None:
    folder = tmp_path / "folder"
    if made:
        folder.mkdir()
    said = Place(tmp_path).run(verb, str(folder))
    assert said.code == 3
    assert said.stderr.startswith(f"error: {folder} is not a run folder: ")
    assert "\nhint: " in said.stderr
    assert not folder.exists() or not list(folder.iterdir())
