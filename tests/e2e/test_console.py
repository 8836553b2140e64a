"""What people and programs read: plain lines, colour on a terminal only, and one JSON object an event."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from studies import AUTOTUNE, Place, Said

Whole = tuple[Place, Said]
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7][0-9;]*m")


def on_a_terminal(place: Place, *words: str, env: dict[str, str]) -> str:
    """What the command shows on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [AUTOTUNE, *words],
        cwd=place.folder,
        env=place.environ() | {"TERM": "xterm-256color"} | env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ):
        os.close(theirs)
        shown = bytearray()
        try:
            while part := os.read(ours, 65_536):
                shown += part
        except OSError:  # how Linux says that the other end is closed
            pass
        finally:
            os.close(ours)
    return shown.decode()


def summary(said: Said) -> list[str]:
    """The last screen: what follows the empty line."""
    return said.stderr.split("\n\n")[-1].splitlines()


# -- for people -----------------------------------------------------------------------------------


def test_without_a_terminal_there_are_plain_lines(whole: Whole) -> None:
    _, said = whole
    assert "\x1b" not in said.stderr
    assert "\r" not in said.stderr
    assert "\x1b" not in said.stdout


def test_every_trial_says_what_it_changes_and_what_became_of_it(whole: Whole) -> None:
    lines = whole[1].stderr.splitlines()
    assert re.fullmatch(r"client: off by \S+ \w+ at TTFT p99 against a server of known timing", lines[1])
    assert lines[2] == "trial 0 (default): the engine's defaults"
    assert "trial 1 (preset too-much): max_num_seqs=64" in lines
    assert "trial 2 (preset int8): variant=int8" in lines
    assert sum(re.match(r"trial \d \(", line) is not None for line in lines) == 6


def test_the_summary_fits_80_columns_and_breaks_between_words(whole: Whole) -> None:
    place = whole[0]
    shown = on_a_terminal(place, "report", "out", env={"NO_COLOR": "1"})
    lines = ESCAPE.sub("", shown).replace("\r", "").partition("# Tuned by")[0].strip().splitlines()
    assert max(map(len, lines)) <= 80
    reason = place.study().journal("ended")[0]["reason"]
    assert " ".join(" ".join(lines).split()).startswith(f"{reason}. defaults ")


def test_a_log_gets_one_line_a_statement(whole: Whole) -> None:
    place, said = whole
    reason = place.study().journal("ended")[0]["reason"]
    assert summary(said)[0] == f"{reason}."
    assert any(len(line) > 80 for line in summary(said))


def test_a_path_is_never_broken(whole: Whole, tmp_path: Path) -> None:
    place = whole[0]
    deep = tmp_path / "a folder with a name of more than forty characters" / "and [another] one of them"
    shutil.copytree(place.folder / "out", deep)
    said = place.run("report", str(deep))
    assert said.code == 0, said.stderr
    assert f"  {deep}/tuned.yaml" in said.stderr.splitlines()
    assert f"  {deep}/report.html" in said.stderr.splitlines()


@pytest.mark.parametrize(("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_a_terminal_gets_colour_unless_no_color_is_set(
    whole: Whole, env: dict[str, str], coloured: bool
) -> None:
    shown = on_a_terminal(whole[0], "report", "out", env=env)
    assert "tuned.yaml" in shown
    assert bool(COLOUR.search(shown)) is coloured


def test_a_dry_run_shows_the_launches_and_makes_none(place: Place) -> None:
    said = place.run(*place.tuning("--dry-run"))
    assert said.code == 0, said.stderr
    lines = said.stdout.splitlines()
    assert "trial (default): the engine's defaults" in lines
    assert "trial (preset short-steps): max_num_batched_tokens=512" in lines
    launches = [line for line in lines if " serve " in line]
    assert len(launches) == 2
    assert "--max-num-batched-tokens 512" in launches[1]
    assert lines[-1] == "nothing was launched"
    assert not (place.folder / "out").exists()


def test_a_dry_run_for_programs_is_one_json_object(place: Place) -> None:
    said = place.run(*place.tuning("--dry-run", "--json"))
    assert said.code == 0, said.stderr
    body = json.loads(said.stdout)
    assert [plan["settings"].get("max_num_batched_tokens") for plan in body["plans"]] == [None, 512]
    assert body["run"]["trials"] == 3


# -- for programs ---------------------------------------------------------------------------------


def test_json_is_one_object_an_event_from_run_started_to_run_ended(uninterrupted: Whole) -> None:
    _, said = uninterrupted
    assert said.code == 0, said.stderr
    names = [event["event"] for event in said.events]
    assert names[0] == "run_started"
    assert names[-1] == "run_ended"
    assert names.count("trial_started") == names.count("trial_ended") == 3
    confirmed = names.count("confirm_started")
    assert confirmed in {1, 2}  # the defaults alone when nothing beat them
    for name in ("engine_launched", "engine_ready", "engine_stopped"):
        assert names.count(name) == 3 + confirmed


def test_json_tells_what_the_journal_keeps(uninterrupted: Whole) -> None:
    place, said = uninterrupted
    study = place.study()
    ended = [event["trial"] for event in said.events if event["event"] == "trial_ended"]
    assert [trial["point"] for trial in ended] == study.points
    assert [trial["kind"] for trial in ended] == ["measured"] * 3
    launched = [event["session"] for event in said.events if event["event"] == "engine_launched"]
    assert launched == [line["process"]["session"] for line in study.journal("launched")]
    last = said.events[-1]
    assert last["winner"] == study.journal("ended")[0]["winner"]
    assert set(last["files"]) == {"tuned.yaml", "serve.sh", "report.html", "result.json"}


def test_json_leaves_nothing_to_say_for_people(uninterrupted: Whole) -> None:
    assert uninterrupted[1].stderr == ""


# -- itself ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [(), ("--help",), ("run", "--help")])
def test_help_goes_to_stdout_and_fits_80_columns(tmp_path: Path, words: tuple[str, ...]) -> None:
    said = Place(tmp_path).run(*words)
    assert said.code == 0
    assert said.stdout.startswith("Usage: autotune ")
    assert max(map(len, said.stdout.splitlines())) <= 80
    assert said.stderr == ""


def test_the_version_is_one_line(tmp_path: Path) -> None:
    said = Place(tmp_path).run("--version")
    assert said.code == 0
    assert re.fullmatch(r"autotune \d+\.\d+\.\d+\S*\n", said.stdout)


def test_doctor_says_what_is_there_and_what_is_missing(place: Place) -> None:
    found = place.run("doctor", "--engine-python", "engine/bin/python", "--gpus", "none", "--json")
    findings = {one["subject"]: one for one in json.loads(found.stdout)["findings"]}
    assert "0.32.0+cpu" in findings["engine"]["meaning"]
    missing = place.run("doctor", "--gpus", "none", env={"PATH": "/usr/bin:/bin"})
    assert missing.code == 3
    assert re.search(r"^bad +engine: no vLLM found", missing.stdout, re.MULTILINE)
