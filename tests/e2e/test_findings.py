"""Runs that end without a configuration, and the exit codes that say why."""

from __future__ import annotations

from pathlib import Path

from studies import SPACE, Place

from autotune.testing import Fault, Script, write_model


def test_when_nothing_holds_the_sla_there_is_no_configuration_and_exit_4(tmp_path: Path) -> None:
    # A prompt of 20 tokens and more takes 0.4 s and more; twenty of them come in a second.
    place = Place.make(tmp_path, script=Script(prefill_s_per_token=0.02))
    study = place.study()
    said = place.tune("--trials", "1", sla="ttft_p90=1s")
    assert said.code == 4, said.stderr
    assert said.stdout == ""
    assert "no trial held the SLA" in said.stderr
    assert not (study.folder / "tuned.yaml").exists()
    assert not (study.folder / "serve.sh").exists()
    assert (study.folder / "report.html").exists()
    (trial,) = study.trials
    assert trial["kind"] == "Measured"
    assert trial["outcome"]["capacity"]["low_speed"] is None
    assert not any(window["passed"] for window in trial["outcome"]["windows"])
    assert study.journal("confirmation") == []
    assert study.engine_processes() == []


def test_an_engine_that_always_crashes_is_launched_twice_a_trial_and_exit_5(tmp_path: Path) -> None:
    place = Place.make(tmp_path, script=Script(children=True, faults=(Fault(fault="crash"),)))
    study = place.study()
    said = place.tune("--trials", "2")
    assert said.code == 5, said.stderr
    assert said.stdout == ""
    assert [trial["kind"] for trial in study.trials] == ["Infeasible"] * 2
    assert [trial["launches"] for trial in study.trials] == [2, 2]
    assert {trial["outcome"]["cause"] for trial in study.trials} == {"engine crashed"}
    assert said.stderr.count("tried again (1): the engine ended with 1 while starting") == 2
    assert len(study.journal("launched")) == len(study.journal("stopped")) == 4
    assert not (study.folder / "tuned.yaml").exists()
    assert study.engine_processes() == []


def test_a_crash_that_does_not_come_back_costs_one_launch(tmp_path: Path) -> None:
    script = Script(faults=(Fault(fault="crash", once=str(tmp_path / "marker")),))
    place = Place.make(tmp_path, script=script)
    said = place.tune("--trials", "1", "--json")
    assert said.code == 0, said.stderr
    (trial,) = place.study().trials
    assert (trial["kind"], trial["launches"]) == ("Measured", 2)
    assert [event["attempt"] for event in said.events if event["event"] == "retried"] == [1]


def test_an_engine_that_dies_under_load_is_tried_again_and_then_refused(tmp_path: Path) -> None:
    place = Place.make(tmp_path, script=Script(faults=(Fault(fault="die_mid_stream", after=6),)))
    said = place.tune("--trials", "1")
    assert said.code == 5, said.stderr
    (trial,) = place.study().trials
    assert (trial["kind"], trial["launches"]) == ("Infeasible", 2)
    assert trial["outcome"]["cause"] == "engine crashed"
    assert trial["outcome"]["evidence"].startswith("the engine died under load (exit 0): ")
    assert trial["outcome"]["evidence"].endswith("(twice)")


def test_a_space_that_is_used_up_ends_the_run(tmp_path: Path) -> None:
    space = SPACE | {
        "parameters": {"enforce_eager": {"levels": [False, True], "default": False}},
        "presets": [],
    }
    script = Script(faults=(Fault(fault="oom", when="enforce_eager=true"),))
    place = Place.make(tmp_path, script=script, space=space)
    said = place.tune("--trials", "9", "--json")
    assert said.code == 0, said.stderr
    assert [point["enforce_eager"] for point in place.study().points] == [False, True]
    assert said.events[-1]["reason"].endswith("every point of the space was tried")


def test_without_the_default_precision_no_other_can_be_judged(tmp_path: Path) -> None:
    space = SPACE | {"presets": [{"name": "int8", "settings": {"variant": "int8"}, "why": "a test"}]}
    script = Script(faults=(Fault(fault="oom", when="model=*/model"),))
    place = Place.make(
        tmp_path, script=script, space=space, variants={"int8": "model-int8"}, quality="perplexity=2%"
    )
    write_model(place.folder / "model-int8")
    said = place.tune("--trials", "2")
    assert said.code == 4, said.stderr
    assert "so no other could be compared: --quality off" in " ".join(said.stderr.split())
    assert [trial["outcome"]["cause"] for trial in place.study().trials] == ["out of memory", "out of memory"]
    assert all(point["variant"] == "base" for point in place.study().points)
