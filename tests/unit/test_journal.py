"""The run folder: what is written comes back, and what is damaged is named."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_fixtures import RUN, confirmation, measured, trial, window
from timing_fixtures import timing

from autotune.domain.outcome import (
    Cause,
    Faulted,
    Infeasible,
    Measured,
    Outcome,
    Quality,
    Stopped,
    Window,
)
from autotune.domain.slo import Sla
from autotune.domain.space import Value
from autotune.errors import InputError, JournalError
from autotune.journal import Journal, Launched, Started, check_folder, create, load, now, result
from autotune.score.measure import measure
from autotune.score.verdict import judge

QUALITY = Quality(
    precision="base",
    perplexity=20.3,
    reference=20.3,
    increase=0.0,
    limit=0.01,
    tokens=1378,
    seconds=4.5,
)


def loaded(folder: Path) -> Journal:
    folder.mkdir(exist_ok=True)
    (folder / "journal.jsonl").touch()
    return Journal(folder)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with loaded(tmp_path / "run") as one:
        yield one


def curtailed_window() -> Window:
    """A real window that was cut off before any time per token was known."""
    measurement = measure(
        [timing(output_tokens=4, ended_ms=900, cancelled=True) for _ in range(9)],
        sla=Sla.parse(["ttft_p99=500ms", "tpot_p95=40ms"]),
        speed=2.0,
        rate_rps=4.0,
        planned=500,
        curtailed=True,
        engine={"preemptions": 0.0},
    )
    return replace(
        window(2.0, passed=False),
        measurement=measurement,
        verdict=judge(measurement, confidence=0.95, design_effect=3.0),
    )


OUTCOMES: list[Outcome] = [
    measured(2.0, 2.2, quality=QUALITY),
    measured(None, 0.05),
    replace(measured(None, 2.0), windows=(curtailed_window(),)),
    Infeasible(cause=Cause.OUT_OF_MEMORY, evidence='CUDA "out of" memory\n\x85 …'),
    Infeasible(cause=Cause.QUALITY, evidence="worse", quality=replace(QUALITY, increase=0.1)),
    Stopped(reason="the budget ended", windows=(window(1.0, passed=True),)),
    Faulted(reason="late", engine=True),
]


# -- there and back -------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_trial_of_every_kind_comes_back_as_it_was(journal: Journal, outcome: Outcome) -> None:
    written = replace(trial(3, outcome, max_num_seqs=512, kv_cache_dtype="fp8"), launches=2)
    journal.trial(written)
    assert journal.history().trials == [written]


def test_an_objective_without_values_survives_the_way_through_json(journal: Journal) -> None:
    journal.trial(trial(0, replace(measured(None, 2.0), windows=(curtailed_window(),))))
    outcome = journal.history().trials[0].outcome
    assert isinstance(outcome, Measured)
    tpot = outcome.windows[0].verdict.judgements[1]
    assert (tpot.count.n, tpot.needed) == (0, None)
    assert tpot.margin < 0


def test_the_types_of_a_point_survive(journal: Journal) -> None:
    point: dict[str, Value] = {"a": 1, "b": 1.0, "c": True, "d": "true", "e": 0.92}
    journal.trial(replace(trial(0, OUTCOMES[-1]), point=point))
    back = journal.history().trials[0].point
    assert [(name, type(value), value) for name, value in back.items()] == [
        (name, type(value), value) for name, value in point.items()
    ]


def test_history_gathers_what_was_written(journal: Journal) -> None:
    journal.trial(trial(0, OUTCOMES[0]))
    journal.trial(trial(1, OUTCOMES[3]))
    journal.write("quality", quality=QUALITY)
    held = confirmation(0, window(1.9, passed=True, phase="confirm"), speed=1.9)
    journal.write("confirmation", confirmation=held, seconds=100.0)
    history = journal.history()
    assert [one.number for one in history.trials] == [0, 1]
    assert history.qualities == {"base": QUALITY}
    assert history.confirmations == [held]
    assert history.spent_s == 231.0 + 231.0 + 100.0
    assert (history.begun, history.launched, history.ended) == (None, [], None)


def test_a_trial_that_was_begun_is_known_until_it_ends(journal: Journal) -> None:
    begun = Started(number=0, point={"max_num_seqs": 64}, origin="preset small")
    journal.write("begun", trial=begun)
    assert journal.history().begun == begun
    journal.trial(trial(0, OUTCOMES[0]))
    assert journal.history().begun is None


def test_an_engine_is_known_until_it_was_stopped(journal: Journal) -> None:
    journal.write("launched", process=Launched(session=100, began=5.5, boot="b"))
    journal.write("launched", process=Launched(session=200, began=6.5, boot="b"))
    journal.write("stopped", session=100)
    assert journal.history().launched == [Launched(session=200, began=6.5, boot="b")]


def test_an_ended_run_says_why(journal: Journal) -> None:
    journal.write("ended", reason="the budget ended", winner=0, seconds=1.0)
    assert journal.history().ended == "the budget ended"


def test_a_later_line_of_one_precision_counts(journal: Journal) -> None:
    journal.write("quality", quality=QUALITY)
    journal.write("quality", quality=replace(QUALITY, perplexity=21.0))
    assert journal.history().qualities["base"].perplexity == 21.0


def test_events_of_a_newer_version_are_passed_over(journal: Journal) -> None:
    journal.write("weather", sky="blue")
    journal.trial(trial(0, OUTCOMES[0]))
    assert len(journal.history().trials) == 1


def test_every_line_is_dated_with_its_zone(journal: Journal) -> None:
    journal.write("ended", reason="", winner=None, seconds=0.0)
    line = msgspec.json.decode(journal.path.read_bytes())
    assert datetime.fromisoformat(line["at"]).utcoffset() == datetime.now(UTC).utcoffset()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", now())


def test_a_result_holds_the_history(journal: Journal) -> None:
    journal.trial(trial(0, OUTCOMES[0]))
    final = result(journal.history(), winner=0, reason="done", seconds=9.0)
    assert [one.number for one in final.trials] == [0]
    assert (final.winner, final.reason, final.seconds, final.confirmations) == (0, "done", 9.0, ())


# -- damage ---------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(data=st.data())
def test_a_journal_cut_anywhere_holds_the_lines_that_were_whole(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("run")
    with loaded(folder) as one:
        for number, outcome in enumerate(OUTCOMES):
            one.trial(trial(number, outcome))
    whole = (folder / "journal.jsonl").read_bytes()
    kept = data.draw(st.integers(0, len(whole)))
    (folder / "journal.jsonl").write_bytes(whole[:kept])
    lines = whole[:kept].count(b"\n")
    with Journal(folder) as one:
        assert [found.number for found in one.history().trials] == list(range(lines))
        one.trial(trial(lines, OUTCOMES[-1]))
        assert len(one.history().trials) == lines + 1


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b"5",
        b"",
        b"{}",
        b'{"event": "trial"}',
        b'{"event": "trial", "kind": "Measured", "trial": {}}',
        b'{"event": "trial", "kind": "Lucky", "trial": {"outcome": {}}}',
        b'{"event": "trial", "kind": "Faulted", "trial": {"outcome": {"reason": 5, "engine": true}}}',
        b'{"event": "begun", "trial": {"number": "one"}}',
        b'{"event": "launched", "process": null}',
        b'{"event": "ended"}',
        b'{"event": "ended", "reason": "\xff"}',
    ],
)
def test_a_damaged_line_is_named(journal: Journal, line: bytes) -> None:
    journal.trial(trial(0, OUTCOMES[0]))
    with journal.path.open("ab") as stream:
        stream.write(line + b"\n")
    journal.trial(trial(1, OUTCOMES[0]))
    with pytest.raises(JournalError) as caught:
        journal.history()
    assert caught.value.message.startswith(f"{journal.path}:2: damaged line: ")


def test_a_folder_serves_one_tuner_at_a_time(journal: Journal) -> None:
    with pytest.raises(JournalError, match="is in use by another autotune"):
        Journal(journal.folder)


def test_a_closed_journal_can_be_opened_again(tmp_path: Path) -> None:
    with loaded(tmp_path):
        pass
    with Journal(tmp_path) as one:
        assert one.history().trials == []


# -- the folder -----------------------------------------------------------------------------------


def test_a_run_comes_back_as_it_was_created(tmp_path: Path) -> None:
    create(tmp_path / "runs" / "a", RUN)
    assert load(tmp_path / "runs" / "a") == RUN
    assert sorted(path.name for path in (tmp_path / "runs" / "a").iterdir()) == [
        "journal.jsonl",
        "run.yaml",
        "trials",
    ]


@given(
    text=st.text(max_size=20),
    level=st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=10),
)
def test_any_text_and_any_level_survive_in_a_run(
    tmp_path_factory: pytest.TempPathFactory, text: str, level: bool | float | str
) -> None:
    space = replace(RUN.space, fixed={"setting": level})
    run = replace(RUN, workload_path=text, space=space)
    folder = tmp_path_factory.mktemp("run")
    create(folder, run)
    back = load(folder)
    assert back == run
    assert type(back.space.fixed["setting"]) is type(level)


def test_an_edited_run_is_refused(tmp_path: Path) -> None:
    create(tmp_path / "a", RUN)
    path = tmp_path / "a" / "run.yaml"
    path.write_text(path.read_text().replace("seed: 7", "seed: 8"))
    with pytest.raises(JournalError, match=r"run\.yaml was edited after the run began"):
        load(tmp_path / "a")


def test_what_is_no_run_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"is not a run folder"):
        load(tmp_path / "none")
    (tmp_path / "run.yaml").write_bytes(b"")
    with pytest.raises(JournalError, match=r"was edited"):
        load(tmp_path)


def test_a_run_of_another_version_is_refused(tmp_path: Path) -> None:
    create(tmp_path / "a", RUN)
    path = tmp_path / "a" / "run.yaml"
    body = path.read_bytes().partition(b"\n")[2].replace(b"holdout:", b"held_out:")
    path.write_bytes(f"# sha256 of what follows: {hashlib.sha256(body).hexdigest()}\n".encode() + body)
    with pytest.raises(JournalError, match=r"was written by another version of autotune"):
        load(tmp_path / "a")


def test_a_folder_that_holds_something_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep me")
    with pytest.raises(InputError) as caught:
        create(tmp_path, RUN)
    assert caught.value.message == f"--out {tmp_path} is not empty"
    assert caught.value.hint == "choose another folder"
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_folder_with_a_run_is_offered_for_resuming(tmp_path: Path) -> None:
    create(tmp_path / "a", RUN)
    with pytest.raises(InputError) as caught:
        check_folder(tmp_path / "a")
    assert caught.value.hint == f"autotune resume {tmp_path / 'a'}"


def test_a_file_in_the_folders_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(InputError, match="is a file"):
        create(tmp_path / "a", RUN)


def test_an_empty_folder_will_do(tmp_path: Path) -> None:
    create(tmp_path, RUN)
    assert load(tmp_path) == RUN
