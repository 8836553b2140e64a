"""A run that is interrupted or killed at any moment leaves no process behind and goes on where it was."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

from studies import Place, Running, Said, Study, until

from autotune.testing import Fault, Script

IN_TRIAL_1 = "max_num_batched_tokens=512 & max_num_seqs=128 & enforce_eager=false"  # the preset


def troubled(folder: Path, when: str = "") -> Script:
    """An engine that has trouble where `when` holds, once for each of these files that is removed."""
    for name in ("hang", "freeze", "ignore_sigterm"):
        (folder / name).touch()
    return Script(
        children=True,
        faults=(
            Fault(fault="hang", when=when, once=str(folder / "hang")),
            # the warm-up and a few requests of the first window are answered
            Fault(fault="freeze", when=when, once=str(folder / "freeze"), after=6),
            # ended by force, ten seconds after it was asked to
            Fault(fault="ignore_sigterm", when=when, once=str(folder / "ignore_sigterm")),
        ),
    )


def in_a_launch(running: Running, number: int) -> bool:
    return running.saw("engine_waiting", number=number)


def in_a_window(running: Running, number: int) -> bool:
    return running.saw("window_progress", number=number)


def in_a_stop(running: Running, study: Study, number: int) -> bool:
    log = study.folder / f"trials/{number:04d}/engine.log"
    return running.saw("window_ended", number=number) and "SIGTERM is ignored" in log.read_text()


def end(running: Running, number: signal.Signals, moment: Callable[[], bool]) -> Said:
    """What the command says that gets the signal at that moment."""
    until(moment)
    running.process.send_signal(number)
    return running.wait()


def resume_command(stderr: str) -> str:
    found = re.search(r"^  autotune resume (.*)$", stderr, re.MULTILINE)
    assert found is not None, stderr
    return found.group(1)


def test_ctrl_c_ends_the_engine_and_resume_completes_the_run(tmp_path: Path) -> None:
    out = "my run [1]"  # neither a shell nor a markup may touch it
    place = Place.make(tmp_path, script=troubled(tmp_path, IN_TRIAL_1), trials=2)
    study = place.study(out)

    (tmp_path / "hang").unlink()
    with place.start(*place.tuning("--json", out=out)) as running:
        in_launch = end(running, signal.SIGINT, lambda: in_a_launch(running, 1))
    assert study.engine_processes() == []
    (tmp_path / "freeze").unlink()
    with place.start("resume", out, "--json") as running:
        in_window = end(running, signal.SIGINT, lambda: in_a_window(running, 1))
    assert study.engine_processes() == []
    for said in (in_launch, in_window):
        assert said.code == 130, said.stderr
        assert "interrupted: the engine is gone, " in said.stderr
        assert resume_command(said.stderr) == "'my run [1]'"
        assert "Traceback" not in said.stderr
    assert len(study.trials) == 1

    done = place.run("resume", out)
    assert done.code == 0, done.stderr
    assert "resumed: 1 trial in the journal already" in done.stderr
    assert [(trial["number"], trial["origin"]) for trial in study.trials] == [
        (0, "default"),
        (1, "preset short-steps"),
    ]
    attempts = sorted(path.name for path in (study.folder / "trials").iterdir())
    assert attempts == ["0000", "0001", "0001.attempt-1", "0001.attempt-2"]
    assert study.engine_processes() == []


def test_a_run_killed_again_and_again_ends_with_the_trials_of_one_that_was_not(
    tmp_path: Path, uninterrupted: tuple[Place, Said]
) -> None:
    place = Place.make(tmp_path, script=troubled(tmp_path, IN_TRIAL_1))
    study = place.study()

    (tmp_path / "hang").unlink()
    with place.start(*place.tuning("--json")) as running:
        said = end(running, signal.SIGKILL, lambda: in_a_launch(running, 1))
        assert said.code == -signal.SIGKILL
    (tmp_path / "freeze").unlink()
    with place.start("resume", "out", "--json") as running:
        until(lambda: in_a_window(running, 1))
        running.process.send_signal(signal.SIGSTOP)  # so that it sees nothing of what follows
        os.kill(study.journal("launched")[-1]["process"]["session"], signal.SIGKILL)  # the guard
        running.process.kill()
    assert len(study.engine_processes()) == 2  # the engine and its child, with nobody to end them
    (tmp_path / "ignore_sigterm").unlink()
    with place.start("resume", "out", "--json") as running:
        end(running, signal.SIGKILL, lambda: in_a_stop(running, study, 1))
    assert len(study.journal("begun")) == 4  # trial 0, and trial 1 three times
    assert [trial["number"] for trial in study.trials] == [0]

    elsewhere = Place(tmp_path / "elsewhere")
    elsewhere.folder.mkdir()
    done = elsewhere.run("resume", str(study.folder), "--json")  # needs nothing but its folder
    assert done.code == 0, done.stderr
    assert [trial["number"] for trial in study.trials] == [0, 1, 2]
    assert [trial["origin"] for trial in study.trials] == ["default", "preset short-steps", "tpe"]
    assert study.points == uninterrupted[0].study().points
    assert {line["session"] for line in study.journal("stopped")} == {
        line["process"]["session"] for line in study.journal("launched")
    }
    assert study.engine_processes() == []
    assert (study.folder / "tuned.yaml").exists()


def test_ctrl_c_twice_does_not_wait_and_leaves_the_engine_to_its_guard(tmp_path: Path) -> None:
    place = Place.make(tmp_path, script=troubled(tmp_path))
    study = place.study()
    (tmp_path / "ignore_sigterm").unlink()
    with place.start(*place.tuning("--json")) as running:
        until(lambda: in_a_window(running, 0))
        running.process.send_signal(signal.SIGINT)
        log = study.folder / "trials/0000/engine.log"
        said = end(running, signal.SIGINT, lambda: "SIGTERM is ignored" in log.read_text())
    assert said.code == 130
    assert "interrupted: its guard ends the engine, " in said.stderr
    assert resume_command(said.stderr) == "out"
    until(lambda: not study.engine_processes())


def test_a_run_in_progress_is_left_alone_and_ends_on_sigterm(tmp_path: Path) -> None:
    place = Place.make(tmp_path, script=troubled(tmp_path))
    study = place.study()
    (tmp_path / "hang").unlink()
    with place.start(*place.tuning("--json")) as running:
        until(lambda: in_a_launch(running, 0))
        for verb in ("resume", "report"):
            said = place.run(verb, "out")
            assert said.code == 3
            assert said.stderr.startswith("error: out is in use by another autotune\nhint: ")
        assert study.engine_processes()
        ended = end(running, signal.SIGTERM, lambda: True)
    assert ended.code == 130
    assert resume_command(ended.stderr) == "out"
    assert study.engine_processes() == []

    said = place.run("report", "out")
    assert said.code == 3
    assert said.stderr == "error: out holds no finished trial\nhint: autotune resume out\n"

    (place.folder / "engine/bin/python").unlink()
    said = place.run("resume", "out")
    assert said.code == 3
    *_, error, hint = said.stderr.splitlines()
    assert error.startswith(f"error: cannot start {place.folder}/engine/bin/python: ")
    assert hint == "hint: is the engine installed?"
