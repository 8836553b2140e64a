from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from report_fixtures import FIXED_RATE, RUN, SPACE, UNEVEN, confirmation, measured, result, trial, window

from autotune.deliver import deliver, notes
from autotune.domain.measurement import State
from autotune.domain.outcome import Result
from autotune.domain.run import Run
from autotune.domain.space import Parameter
from autotune.engine import vllm

DEFAULT = trial(0, measured(2.0, 2.3))
TUNED = trial(7, measured(4.2, 4.6, trial=7), max_num_seqs=512)


def noted(run: Run, what: Result) -> list[str]:
    """The notes between the traffic and the precision: what was found."""
    assert what.winner is not None
    winner = next(one for one in what.trials if one.number == what.winner)
    return list(notes(run, vllm, what, winner)[4:-2])


def test_notes_tell_the_gain_and_both_confirmations_with_their_attempts() -> None:
    held = window(4.0, passed=True, n=2_940, bad=8, state=State.PASS, needed=None)
    mine = confirmation(7, held, speed=4.0, run=UNEVEN)
    theirs = confirmation(0, window(4.0, passed=False), window(2.0, passed=True), speed=2.0, run=UNEVEN)
    # 4.0 × 1.5 = 6.0 and 2.0 × 1.5 = 3.0; 4.0 / 2.0 = 2.0 and 4.0 / 4.0 = 1.0
    assert noted(UNEVEN, result(DEFAULT, TUNED, winner=7, confirmations=(mine, theirs))) == [
        "Search: held at 8.40 requests/s (4.2 × recorded), failed at 9.20.",
        (
            "Gain: 2.0× [1.0, not bounded above] the traffic of the defaults on held-out traffic"
            " (search: 2.1× [1.8, 2.3])."
        ),
        (
            "Held-out traffic, fresh launch: trial 7 held at 6.00 requests/s (4 × recorded), first attempt:"
            " ttft_p99 8 bad of 2,940 requests; PASS at 95% with design effect 3."
        ),
        (
            "Held-out traffic, fresh launch: the defaults held at 3.00 requests/s (2 × recorded), attempt 2"
            " of held-out traffic, each judged on its own: ttft_p99 2 bad of 600 requests; UNDECIDED at 95%"
            " with design effect 3."
        ),
    ]


def test_notes_own_up_to_confirmations_that_failed() -> None:
    mine = confirmation(7, window(4.0, passed=False))
    theirs = confirmation(0, window(1.9, passed=False), note="the budget ended")
    found = noted(RUN, result(DEFAULT, TUNED, winner=0, confirmations=(mine, theirs)))
    assert found[1].startswith("Held-out traffic, fresh launch: trial 7 did not hold at 8.00 requests/s")
    assert found[2].startswith("Held-out traffic, fresh launch: the defaults did not hold at 3.80 requests/s")
    assert found[2].endswith("(the budget ended).")


def test_notes_say_that_nothing_was_confirmed() -> None:
    assert noted(RUN, result(DEFAULT, winner=0))[-1] == "Not confirmed on held-out traffic."
    none = confirmation(0, note="trial 0 does not start again:\nit crashed")
    assert noted(RUN, result(DEFAULT, winner=0, confirmations=(none,)))[-1] == (
        "Held-out traffic: the defaults not confirmed (trial 0 does not start again: it crashed)."
    )


def test_a_fixed_rate_has_no_ceiling_and_no_gain() -> None:
    what = result(trial(0, measured(1.0, None)), trial(1, measured(1.0, None)), winner=1)
    assert noted(FIXED_RATE, what) == [
        "Search: held at 2.00 requests/s (1 × recorded).",
        "Not confirmed on held-out traffic.",
    ]


@pytest.mark.parametrize(("threads", "sets"), [("all", True), ("auto", False)])
def test_the_report_names_the_variables_that_only_the_script_sets(
    tmp_path: Path, threads: str, sets: bool
) -> None:
    pinned = Parameter(name="threads", levels=("auto", "all"), default="auto", ordered=False)
    run = replace(RUN, space=replace(SPACE, parameters=(*SPACE.parameters, pinned)))
    best = trial(1, measured(4.2, 4.6, trial=1), max_num_seqs=512, threads=threads)
    files = deliver(run, vllm, tmp_path, result(trial(0, measured(2.0, 2.3), threads="auto"), best, winner=1))
    assert files == ("tuned.yaml", "serve.sh", "report.html", "result.json")
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert ("serve.sh also sets VLLM_CPU_OMP_THREADS_BIND" in report) is sets
    assert ("VLLM_CPU_OMP_THREADS_BIND=" in (tmp_path / "serve.sh").read_text(encoding="utf-8")) is sets
    assert "VLLM_CPU_OMP" not in (tmp_path / "tuned.yaml").read_text(encoding="utf-8")


def test_without_a_winner_nothing_is_there_to_deploy(tmp_path: Path) -> None:
    (tmp_path / "tuned.yaml").write_text("stale")
    (tmp_path / "serve.sh").write_text("stale")
    lost = confirmation(7, window(4.0, passed=False))
    files = deliver(RUN, vllm, tmp_path, result(TUNED, winner=None, confirmations=(lost,)))
    assert files == ("report.html", "result.json")
    assert not (tmp_path / "tuned.yaml").exists()
    assert not (tmp_path / "serve.sh").exists()
