"""The loop: what is launched in which order, what is kept, and what is concluded.

The engine is a plain function from a point to outcomes, and time is a number that it moves.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import pytest
from client_fixtures import OWN
from hypothesis import given, settings
from hypothesis import strategies as st
from report_fixtures import FIXED_RATE, RUN, SPACE, confirmation, measured, trial, window

from autotune.domain.client import OwnError
from autotune.domain.event import (
    ClientTested,
    ConfirmStarted,
    EngineStopped,
    Event,
    QualityMeasured,
    Retried,
    RunEnded,
    RunStarted,
    TrialEnded,
    TrialStarted,
)
from autotune.domain.outcome import (
    Cause,
    Confirmation,
    Faulted,
    Infeasible,
    Measured,
    Outcome,
    Quality,
    Result,
    Stopped,
    Trial,
    Window,
)
from autotune.domain.run import Run
from autotune.domain.space import Parameter, Point, Preset
from autotune.engine.vllm import precision
from autotune.errors import SetupError
from autotune.journal import Journal, Started
from autotune.score.choose import verdict
from autotune.tune import Tuner

THE_RUN: Run = replace(
    RUN,
    trials=4,
    budget_s=None,
    space=replace(SPACE, presets=(Preset(name="many", settings={"max_num_seqs": 512}, why=""),)),
)
OOM = Infeasible(cause=Cause.OUT_OF_MEMORY, evidence="CUDA out of memory")
LATE = Faulted(reason="our own client was late", engine=False)
DIED = Faulted(reason="the engine ended with -11", engine=True)

Answer = Callable[[Point, int], Outcome]


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Lab:
    """A tuner's surroundings: an engine that answers by `answer`, and a notebook of what was asked of it.

    `answer` is given the point and how often it was launched before. Each launch takes `trial_s`, each
    confirmation `confirm_s`; `confirmed` says up to which speed a trial holds on held-out traffic (by
    default what `answer` says) and why it was not loaded.
    """

    folder: Path
    run: Run
    answer: Answer
    confirmed: Callable[[int], tuple[float, str | None]] | None = None
    trial_s: float = 100.0
    confirm_s: float = 50.0
    clock: Clock = field(default_factory=Clock)
    launches: list[Point] = field(default_factory=list)
    incumbents: list[float | None] = field(default_factory=list)
    left_s: list[float] = field(default_factory=list)
    confirms: list[tuple[int, tuple[float, ...], float]] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    own: OwnError = OWN

    def evaluate(
        self,
        point: Point,
        *,
        number: int,
        qualities: dict[str, Quality],
        incumbent: float | None,
        deadline: Callable[[], float],
    ) -> Generator[Event, None, Outcome]:
        before = self.launches.count(point)
        self.launches.append(point)
        self.incumbents.append(incumbent)
        self.left_s.append(deadline())
        outcome = self.answer(point, before)
        self.clock.now += self.trial_s
        quality = outcome.quality if isinstance(outcome, Measured | Infeasible) else None
        if quality is not None:
            yield QualityMeasured(number=number, quality=quality, cached=quality.precision in qualities)
        yield EngineStopped(number=number, seconds=1.0, forced=False)
        return outcome

    def confirm(
        self,
        point: Point,
        *,
        number: int,
        speeds: Sequence[float],
        window_s: float,
        deadline: Callable[[], float],
    ) -> Generator[Event, None, tuple[tuple[Window, ...], str | None]]:
        self.confirms.append((number, tuple(speeds), window_s))
        self.clock.now += self.confirm_s
        yield EngineStopped(number=number, seconds=1.0, forced=False)
        if self.confirmed is not None:
            limit, note = self.confirmed(number)
        else:  # what the search found holds
            found = self.answer(point, 0)
            limit = found.capacity.low_speed or 0.0 if isinstance(found, Measured) else 0.0
            note = None
        windows: list[Window] = []
        for speed in speeds if note is None else ():
            windows.append(window(speed, passed=speed <= limit, phase="confirm", trial=number))
            if speed <= limit:
                break
        return tuple(windows), note

    def deliver(self, outcome: Result) -> tuple[str, ...]:
        self.results.append(outcome)
        return ("tuned.yaml", "report.html")

    def tune(self) -> list[Event]:
        """All events of a run from where the folder's journal ends."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / "journal.jsonl").touch()
        with Journal(self.folder) as journal:
            tuner = Tuner(
                run=self.run,
                journal=journal,
                evaluate=self.evaluate,
                confirm=self.confirm,
                precision=precision,
                unfit=lambda _: None,
                deliver=self.deliver,
                client=lambda: self.own,
                start_s=30.0,
                clock=self.clock,
            )
            with closing(tuner.tune()) as events:
                return list(events)

    @property
    def result(self) -> Result:
        return self.results[-1]

    def lines(self) -> list[str]:
        """The events of the journal, in order."""
        text = (self.folder / "journal.jsonl").read_bytes()
        return [msgspec.json.decode(line)["event"] for line in text.splitlines()]


def seqs(point: Point) -> int:
    return int(point["max_num_seqs"])


def faster_with_more(point: Point, _: int) -> Outcome:
    """Capacity grows with the sequences: 128 holds 1 ×, 1,024 holds 8 ×."""
    return measured(seqs(point) / 128, seqs(point) / 100)


def always(outcome: Outcome) -> Answer:
    return lambda _point, _before: outcome


def in_turn(*outcomes: Outcome) -> Answer:
    """The default answers so on its first, second … launch; any other point runs out of memory."""

    def answer(point: Point, before: int) -> Outcome:
        return outcomes[before] if point == SPACE.default_point() else OOM

    return answer


def of(events: Sequence[Event], kind: type[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, kind)]


# -- the order of trials --------------------------------------------------------------------------


def test_a_run_tries_the_defaults_the_presets_and_then_the_sampler(tmp_path: Path) -> None:
    lab = Lab(tmp_path, THE_RUN, faster_with_more)
    events = lab.tune()
    started = [event for event in events if isinstance(event, TrialStarted)]
    assert [event.number for event in started] == [0, 1, 2, 3]
    assert [event.origin for event in started] == ["default", "preset many", "tpe", "tpe"]
    assert [event.changed for event in started][:2] == [{}, {"max_num_seqs": 512}]
    assert lab.launches == [event.point for event in started]
    assert lab.lines() == ["client", *["begun", "trial"] * 4, "confirmation", "confirmation", "ended"]


def test_events_tell_the_story_in_order(tmp_path: Path) -> None:
    events = Lab(tmp_path, replace(THE_RUN, trials=2), faster_with_more).tune()
    assert [type(event).__name__ for event in events] == [
        "RunStarted",
        "ClientTested",
        *["TrialStarted", "EngineStopped", "TrialEnded"] * 2,
        *["ConfirmStarted", "EngineStopped"] * 2,
        "RunEnded",
    ]
    assert events[0] == RunStarted(
        id=RUN.id, folder=str(tmp_path), trials=2, budget_s=None, resumed=0, elapsed_s=0
    )
    assert events[-1] == RunEnded(
        folder=str(tmp_path),
        winner=1,
        reason="trial 1 carries the most traffic; 2 trials were asked for",
        seconds=300.0,  # two trials of 100 s, two confirmations of 50 s
        files=("tuned.yaml", "report.html"),
    )


def test_the_client_is_tested_once_a_run(tmp_path: Path) -> None:
    lab = Lab(tmp_path, replace(THE_RUN, trials=1), faster_with_more)
    assert ClientTested(own=OWN) in lab.tune()
    lab.run = replace(THE_RUN, trials=2)
    lab.own = replace(OWN, ttft_p99_s=9.0)  # would be refused, were it asked again
    assert not of(lab.tune(), ClientTested)
    assert lab.result.client == OWN


def test_a_client_that_is_off_by_more_than_a_hundredth_of_the_limit_is_refused(tmp_path: Path) -> None:
    lab = Lab(tmp_path, THE_RUN, faster_with_more, own=replace(OWN, ttft_p99_s=OWN.true_ttft_p99_s + 0.006))
    with pytest.raises(SetupError, match="our own client is off by 6 ms at TTFT p99"):  # of 500 ms
        lab.tune()
    assert lab.launches == []
    assert lab.lines() == []


def test_each_trial_is_anchored_at_the_best_speed_so_far(tmp_path: Path) -> None:
    def answer(point: Point, _: int) -> Outcome:
        return {256: measured(2.0, 2.2), 512: measured(4.0, 4.4)}.get(seqs(point), OOM)

    lab = Lab(tmp_path, replace(THE_RUN, trials=3), answer)
    ended = [event for event in lab.tune() if isinstance(event, TrialEnded)]
    assert lab.incumbents == [None, 2.0, 4.0]
    assert [event.incumbent for event in ended] == [0, 1, 1]
    assert [event.capacity.low_rps for event in ended if event.capacity] == [4.0, 8.0, 8.0]


def test_a_trial_knows_how_much_time_has_passed_and_is_left(tmp_path: Path) -> None:
    lab = Lab(tmp_path, replace(THE_RUN, budget_s=2000.0, trials=2), faster_with_more)
    started = [event for event in lab.tune() if isinstance(event, TrialStarted)]
    assert [(event.elapsed_s, event.left_s) for event in started] == [(0.0, 2000.0), (100.0, 1900.0)]
    assert lab.left_s == [1500.0, 1400.0]  # the search has three quarters


def test_a_small_space_ends_the_run(tmp_path: Path) -> None:
    seqs_only = replace(THE_RUN.space, parameters=SPACE.parameters[:1])
    lab = Lab(tmp_path, replace(THE_RUN, space=seqs_only, trials=30), faster_with_more)
    lab.tune()
    assert sorted(seqs(point) for point in lab.launches) == [128, 256, 512, 1024]
    assert lab.result.reason == "trial " + str(lab.result.winner) + (
        " carries the most traffic; every point of the space was tried"
    )


# -- budgets --------------------------------------------------------------------------------------


def test_a_budget_leaves_a_quarter_for_the_finals(tmp_path: Path) -> None:
    # 750 s for the search: after seven trials of 100 s there are 50 s, and no trial took less than 100
    lab = Lab(tmp_path, replace(THE_RUN, budget_s=1000.0, trials=None), faster_with_more)
    lab.tune()
    assert len(lab.launches) == 7
    assert lab.result.reason.endswith("; the budget has no room for another trial")


def test_before_any_candidate_was_measured_a_start_and_two_windows_are_expected(tmp_path: Path) -> None:
    # 30 + 2 · 60 = 150 s: of 240 · 0.75 = 180 s there are 80 left after the defaults
    lab = Lab(tmp_path, replace(THE_RUN, budget_s=240.0, trials=None), faster_with_more)
    lab.tune()
    assert len(lab.launches) == 1


def test_the_defaults_are_tried_however_small_the_budget(tmp_path: Path) -> None:
    lab = Lab(tmp_path, replace(THE_RUN, budget_s=1.0, trials=None), always(Stopped(reason="", windows=())))
    lab.tune()
    assert len(lab.launches) == 1
    assert lab.result.winner is None
    assert lab.result.reason == "nothing was judged; the budget ended"


def test_a_trial_that_the_budget_stopped_is_the_last(tmp_path: Path) -> None:
    def answer(point: Point, before: int) -> Outcome:
        if seqs(point) == 512:
            return Stopped(reason="the budget ended before the first window", windows=())
        return faster_with_more(point, before)

    lab = Lab(tmp_path, replace(THE_RUN, trials=9), answer)
    lab.tune()
    assert len(lab.launches) == 2
    assert lab.result.winner == 0
    assert lab.result.reason.endswith("; the budget ended")


# -- faults ---------------------------------------------------------------------------------------


def test_a_fault_is_tried_again_and_what_comes_then_counts(tmp_path: Path) -> None:
    lab = Lab(tmp_path, replace(THE_RUN, trials=1), in_turn(LATE, LATE, measured(2.0, 2.2)))
    events = lab.tune()
    assert of(events, Retried) == [
        Retried(number=0, reason="our own client was late", attempt=1),
        Retried(number=0, reason="our own client was late", attempt=2),
    ]
    assert lab.result.trials[0].outcome == measured(2.0, 2.2)
    assert lab.result.trials[0].launches == 3
    assert lab.result.trials[0].seconds == 300.0


def test_a_third_fault_is_kept_and_the_run_goes_on(tmp_path: Path) -> None:
    lab = Lab(tmp_path, replace(THE_RUN, trials=2), in_turn(LATE, LATE, LATE))
    events = lab.tune()
    assert [one.outcome for one in lab.result.trials] == [LATE, OOM]
    assert lab.result.trials[0].launches == 3
    assert len(of(events, Retried)) == 2


CRASHED = Infeasible(cause=Cause.CRASH, evidence="the engine ended with -11 (twice)")


@pytest.mark.parametrize(
    ("faults", "outcome"),
    [
        ((DIED, DIED), CRASHED),
        ((LATE, DIED, DIED), CRASHED),
        ((DIED, LATE, DIED), CRASHED),
        ((LATE, DIED, LATE), LATE),
        ((DIED, LATE, LATE), LATE),
        ((LATE, LATE, DIED), DIED),
        ((DIED, OOM), OOM),
    ],
)
def test_an_engine_that_dies_twice_for_no_known_cause_is_a_finding(
    tmp_path: Path, faults: tuple[Outcome, ...], outcome: Outcome
) -> None:
    lab = Lab(tmp_path, replace(THE_RUN, trials=1), in_turn(*faults))
    lab.tune()
    assert lab.result.trials[0].outcome == outcome
    assert lab.result.trials[0].launches == len(faults)


def test_a_finding_is_not_tried_again(tmp_path: Path) -> None:
    lab = Lab(tmp_path, replace(THE_RUN, trials=3), always(OOM))
    events = lab.tune()
    assert len(lab.launches) == 3
    assert of(events, Retried) == []
    assert all(lab.launches.count(point) == 1 for point in lab.launches)
    assert lab.result.reason.startswith("no trial held the SLA; the default precision does not run here")


# -- quality --------------------------------------------------------------------------------------


def gate(point: Point) -> Quality:
    worse = point["kv_cache_dtype"] == "fp8"
    return Quality(
        precision=precision(point),
        perplexity=11.0 if worse else 10.0,
        reference=10.0,
        increase=0.1 if worse else 0.0,
        limit=0.01,
        tokens=1000,
        seconds=1.0,
    )


def gated(point: Point, before: int) -> Outcome:
    quality = gate(point)
    if not quality.passed:
        return Infeasible(cause=Cause.QUALITY, evidence="worse", quality=quality)
    return replace(measured(2.0, 2.2), quality=quality)


def test_a_precision_that_lost_the_gate_is_launched_once(tmp_path: Path) -> None:
    presets = (Preset(name="fp8", settings={"kv_cache_dtype": "fp8"}, why=""),)
    run = replace(THE_RUN, trials=20, space=replace(SPACE, presets=presets))
    lab = Lab(tmp_path, run, gated)
    lab.tune()
    assert len(lab.launches) == 20
    assert [number for number, point in enumerate(lab.launches) if point["kv_cache_dtype"] == "fp8"] == [1]
    assert lab.lines().count("quality") == 2  # each precision is journalled once


def test_a_precision_that_lost_is_not_tried_together_with_another(tmp_path: Path) -> None:
    quantised = Parameter(name="quantization", levels=("none", "fp8"), default="none", ordered=False)
    presets = (Preset(name="fp8", settings={"kv_cache_dtype": "fp8"}, why=""),)
    space = replace(SPACE, parameters=(*SPACE.parameters, quantised), presets=presets)
    lab = Lab(tmp_path, replace(THE_RUN, trials=20, space=space), gated)
    lab.tune()
    assert [number for number, point in enumerate(lab.launches) if point["kv_cache_dtype"] == "fp8"] == [1]
    assert any(point["quantization"] == "fp8" for point in lab.launches)


def test_a_resumed_run_remembers_which_precision_lost(tmp_path: Path) -> None:
    presets = (Preset(name="fp8", settings={"kv_cache_dtype": "fp8"}, why=""),)
    run = replace(THE_RUN, trials=2, space=replace(SPACE, presets=presets))
    Lab(tmp_path, run, gated).tune()
    lab = Lab(tmp_path, replace(run, trials=15), gated)
    lab.tune()
    assert len(lab.launches) == 13
    assert all(point["kv_cache_dtype"] == "auto" for point in lab.launches)


# -- interruptions --------------------------------------------------------------------------------


def interrupted_after(launches: int, answer: Answer) -> Answer:
    """Ctrl-C during the launch after so many."""
    done = iter(range(launches))

    def interrupting(point: Point, before: int) -> Outcome:
        if next(done, None) is None:
            raise KeyboardInterrupt
        return answer(point, before)

    return interrupting


def test_an_interrupted_trial_is_launched_again_with_the_same_point(tmp_path: Path) -> None:
    first = Lab(tmp_path, THE_RUN, interrupted_after(2, faster_with_more))
    with pytest.raises(KeyboardInterrupt):
        first.tune()
    assert first.lines()[-1] == "begun"
    second = Lab(tmp_path, THE_RUN, faster_with_more)
    events = second.tune()
    assert isinstance(events[0], RunStarted)
    assert events[0].resumed == 2
    assert second.launches[0] == first.launches[-1]
    again = events[1]
    assert isinstance(again, TrialStarted)
    assert (again.number, again.origin, again.elapsed_s) == (2, "tpe", 200.0)


def test_what_was_begun_goes_on_even_when_the_search_would_ask_something_else(tmp_path: Path) -> None:
    Lab(tmp_path, replace(THE_RUN, trials=1), faster_with_more).tune()
    point = {**SPACE.default_point(), "max_num_seqs": 1024}
    with Journal(tmp_path) as journal:
        journal.write("begun", trial=Started(number=1, point=point, origin="by hand"))
    lab = Lab(tmp_path, replace(THE_RUN, trials=3), faster_with_more)
    lab.tune()
    assert [one.origin for one in lab.result.trials] == ["default", "by hand", "preset many"]
    assert lab.launches[0] == point


@settings(max_examples=15)
@given(interruptions=st.lists(st.integers(0, 6), max_size=4))
def test_a_run_that_was_interrupted_anywhere_ends_like_one_that_was_not(
    tmp_path_factory: pytest.TempPathFactory, interruptions: list[int]
) -> None:
    run = replace(THE_RUN, trials=7)
    whole = Lab(tmp_path_factory.mktemp("run"), run, faster_with_more)
    whole.tune()
    folder = tmp_path_factory.mktemp("run")
    for launches in interruptions:
        lab = Lab(folder, run, interrupted_after(launches, faster_with_more))
        try:
            lab.tune()
        except KeyboardInterrupt:
            continue
    last = Lab(folder, run, faster_with_more)
    last.tune()
    assert [one.point for one in last.result.trials] == [one.point for one in whole.result.trials]
    assert [one.origin for one in last.result.trials] == [one.origin for one in whole.result.trials]
    assert (last.result.winner, last.result.reason) == (whole.result.winner, whole.result.reason)
    assert last.result.confirmations == whole.result.confirmations


def test_a_run_that_ended_is_not_run_again(tmp_path: Path) -> None:
    first = Lab(tmp_path, THE_RUN, faster_with_more)
    first.tune()
    second = Lab(tmp_path, THE_RUN, faster_with_more)
    events = second.tune()
    assert (second.launches, second.confirms) == ([], [])
    assert second.result.trials == first.result.trials
    assert isinstance(events[-1], RunEnded)
    assert events[-1].winner == first.result.winner


def test_the_time_of_finished_trials_counts_against_a_resumed_budget(tmp_path: Path) -> None:
    run = replace(THE_RUN, budget_s=1000.0, trials=None)
    first = Lab(tmp_path, run, interrupted_after(4, faster_with_more))
    with pytest.raises(KeyboardInterrupt):
        first.tune()
    second = Lab(tmp_path, run, faster_with_more)
    second.tune()
    assert len(second.launches) == 3  # seven in all, as without the interruption


def test_a_confirmation_that_was_done_is_not_done_again(tmp_path: Path) -> None:
    first = Lab(tmp_path, replace(THE_RUN, trials=2), faster_with_more)

    def interrupting(number: int) -> tuple[float, str | None]:
        if number == 0:
            raise KeyboardInterrupt
        return 1e9, None

    first.confirmed = interrupting
    with pytest.raises(KeyboardInterrupt):
        first.tune()
    second = Lab(tmp_path, replace(THE_RUN, trials=2), faster_with_more)
    second.tune()
    assert [number for number, *_ in first.confirms] == [1, 0]
    assert [number for number, *_ in second.confirms] == [0]
    assert [one.trial for one in second.result.confirmations] == [1, 0]


# -- finals ---------------------------------------------------------------------------------------


def test_the_winner_and_the_defaults_are_confirmed_on_held_out_traffic(tmp_path: Path) -> None:
    lab = Lab(tmp_path, replace(THE_RUN, trials=2), faster_with_more)
    events = lab.tune()
    # 512 sequences hold 4 ×, the defaults 2 ×. Twice a window of 60 s; a proof takes 3,000 requests
    assert [(number, window_s) for number, _, window_s in lab.confirms] == [(1, 120.0), (0, 120.0)]
    # 0.95 · 4, then a fifth less five times; the defaults first where the winner holds,
    # then from 0.95 · 2 down
    assert lab.confirms[0][1] == pytest.approx((3.8, 3.04, 2.432, 1.9456, 1.55648, 1.245184))
    assert lab.confirms[1][1] == pytest.approx((3.8, 1.9, 1.52, 1.216, 0.9728, 0.77824, 0.622592))
    assert [event.number for event in events if isinstance(event, ConfirmStarted)] == [1, 0]
    assert [(one.trial, one.default) for one in lab.result.confirmations] == [(1, False), (0, True)]
    assert [one.speed for one in lab.result.confirmations] == pytest.approx([3.8, 1.9])
    assert [one.rate_rps for one in lab.result.confirmations] == pytest.approx([7.6, 3.8])  # 2 req/s recorded


def test_a_busier_held_out_slice_is_replayed_slower_to_offer_the_same_rate(tmp_path: Path) -> None:
    run = replace(THE_RUN, trials=1, search_rate_rps=2.0, held_rate_rps=4.0)
    lab = Lab(tmp_path, run, always(measured(2.0, 2.2)))  # 4 requests/s
    lab.tune()
    assert lab.confirms[0][1][0] == pytest.approx(0.95)  # 3.8 requests/s of 4 recorded


def test_a_winner_that_the_defaults_match_on_held_out_traffic_wins_nothing(tmp_path: Path) -> None:
    lab = Lab(tmp_path, replace(THE_RUN, trials=2), faster_with_more, confirmed=lambda _: (1e9, None))
    lab.tune()
    assert lab.result.winner == 0
    assert [one.speed for one in lab.result.confirmations] == pytest.approx([3.8, 3.8])


def test_the_defaults_alone_are_confirmed_when_nothing_beat_them(tmp_path: Path) -> None:
    lab = Lab(tmp_path, THE_RUN, always(measured(2.0, 2.2)))
    lab.tune()
    assert [number for number, *_ in lab.confirms] == [0]
    assert lab.result.winner == 0


def test_defaults_that_held_nowhere_are_not_confirmed(tmp_path: Path) -> None:
    def answer(point: Point, before: int) -> Outcome:
        return measured(None, 0.1) if seqs(point) == 256 else faster_with_more(point, before)

    lab = Lab(tmp_path, replace(THE_RUN, trials=2), answer)
    lab.tune()
    assert [number for number, *_ in lab.confirms] == [1]
    assert lab.result.winner == 1


def test_nothing_is_confirmed_when_nothing_held(tmp_path: Path) -> None:
    lab = Lab(tmp_path, THE_RUN, always(measured(None, 0.1)))
    lab.tune()
    assert (lab.confirms, lab.result.winner, lab.result.confirmations) == ([], None, ())


def test_a_fixed_speed_is_confirmed_at_that_speed(tmp_path: Path) -> None:
    run = replace(THE_RUN, trials=1, load=FIXED_RATE.load)
    lab = Lab(tmp_path, run, always(replace(measured(1.0, None), windows=(window(1.0, passed=True),))))
    lab.tune()
    assert [speeds for _, speeds, _ in lab.confirms] == [(1.0,)]


def test_a_proof_needs_no_more_than_3000_requests(tmp_path: Path) -> None:
    # 500 × recorded is 1,000 requests/s: 3,000 of them in 3 s
    lab = Lab(tmp_path, replace(THE_RUN, trials=1), always(measured(500.0, None)))
    lab.tune()
    assert lab.confirms[0][2] == 3.0


def test_finals_share_what_the_budget_left(tmp_path: Path) -> None:
    # 1,000 − 200 s: half each, less a start of 30 s, half of it for attempts that fail: 185; the defaults get
    # the same window, no longer one
    lab = Lab(tmp_path, replace(THE_RUN, trials=2, budget_s=1000.0), faster_with_more)
    lab.tune()
    assert [window_s for *_, window_s in lab.confirms] == [185.0, 185.0]


def test_finals_without_time_are_noted_and_not_claimed(tmp_path: Path) -> None:
    # 495 − 2 · 220 = 55 s, less a start 25 s, and a window takes 60 s
    lab = Lab(tmp_path, replace(THE_RUN, trials=2, budget_s=495.0), faster_with_more, trial_s=220.0)
    lab.tune()
    assert lab.result.confirmations[0] == Confirmation(
        trial=1,
        default=False,
        speed=None,
        rate_rps=None,
        windows=(),
        note="the budget left no time for it",
    )


def test_the_winner_alone_is_confirmed_when_there_is_no_time_for_both(tmp_path: Path) -> None:
    # 378 − 2 · 130 = 118 s: 59 s each would leave 29 s, the winner alone has 88 s, half for failures
    lab = Lab(tmp_path, replace(THE_RUN, trials=2, budget_s=378.0), faster_with_more, trial_s=130.0)
    lab.confirm_s = 118.0
    lab.tune()
    assert [(number, window_s) for number, *_, window_s in lab.confirms] == [(1, 44.0)]


def test_a_confirmation_that_fails_for_no_fault_of_the_point_is_noted(tmp_path: Path) -> None:
    lab = Lab(tmp_path, replace(THE_RUN, trials=2), faster_with_more)
    lab.confirmed = lambda number: (2.0, "our own client was late" if number == 1 else None)
    lab.tune()
    assert lab.result.confirmations[0] == Confirmation(
        trial=1,
        default=False,
        speed=None,
        rate_rps=None,
        windows=(),
        window_s=120.0,
        note="our own client was late",
    )
    assert lab.result.confirmations[1].speed is not None


# -- what is concluded ----------------------------------------------------------------------------

DEFAULT, TUNED = trial(0, measured(2.0, 2.2)), trial(1, measured(4.0, 4.4), max_num_seqs=512)
NOWHERE = trial(0, measured(None, 0.1))


def held(number: int, speed: float, value_s: float = 0.3) -> Confirmation:
    return confirmation(number, window(speed, passed=True, value_s=value_s, phase="confirm"), speed=speed)


def lost(number: int) -> Confirmation:
    return confirmation(number, window(1.0, passed=False, phase="confirm"))


def unconfirmed(number: int) -> Confirmation:
    return confirmation(number, note="the budget left no time for it")


@pytest.mark.parametrize(
    ("trials", "confirmations", "winner", "reason"),
    [
        ([], [], None, "nothing was judged"),
        (
            [trial(0, Faulted(reason="port 8100 was taken", engine=False)), trial(1, LATE)],
            [],
            None,
            "nothing was judged: our own client was late",  # the last fault is the one to mend
        ),
        ([trial(0, LATE), trial(1, OOM)], [], None, "no trial held the SLA"),
        ([NOWHERE, trial(1, OOM)], [], None, "no trial held the SLA"),
        (
            [DEFAULT],
            [held(0, 1.9)],
            0,
            "keep the engine's defaults: no other configuration was judged",
        ),
        (
            [DEFAULT, trial(1, OOM)],
            [held(0, 1.9)],
            0,
            "keep the engine's defaults: nothing beat them",
        ),
        (
            [DEFAULT, trial(1, OOM)],
            [lost(0)],
            0,
            "keep the engine's defaults: nothing beat them, but they did not hold on held-out traffic",
        ),
        ([DEFAULT, TUNED], [held(1, 3.8), held(0, 1.9)], 1, "trial 1 carries the most traffic"),
        ([DEFAULT, TUNED], [held(1, 3.8), lost(0)], 1, "trial 1 carries the most traffic"),
        ([DEFAULT, TUNED], [held(1, 3.8), unconfirmed(0)], 1, "trial 1 carries the most traffic"),
        ([DEFAULT, TUNED], [], 1, "trial 1 carries the most traffic, not confirmed on held-out traffic"),
        (
            [DEFAULT, TUNED],
            [unconfirmed(1)],
            1,
            "trial 1 carries the most traffic, not confirmed on held-out traffic",
        ),
        (
            [DEFAULT, TUNED],
            [lost(1), lost(0)],
            0,
            "keep the engine's defaults: trial 1 did not hold on held-out traffic, nor did they",
        ),
        ([NOWHERE, TUNED], [held(1, 3.8)], 1, "trial 1 carries the most traffic"),
        (
            [DEFAULT, TUNED],
            [held(1, 1.9), held(0, 1.9)],
            0,
            "keep the engine's defaults: trial 1 was no better on held-out traffic",
        ),
        (
            [DEFAULT, TUNED],
            [lost(1), held(0, 1.9)],
            0,
            "keep the engine's defaults: trial 1 did not hold on held-out traffic",
        ),
        (
            [NOWHERE, TUNED],
            [lost(1)],
            None,
            "trial 1 is the best attainable, but did not hold on held-out traffic",
        ),
    ],
)
def test_the_verdict_is_never_worse_than_the_defaults(
    trials: list[Trial], confirmations: list[Confirmation], winner: int | None, reason: str
) -> None:
    assert verdict(THE_RUN, trials, confirmations) == (winner, reason)


def at_one(value_s: float) -> Measured:
    return replace(measured(1.0, None), windows=(window(1.0, passed=True, value_s=value_s),))


@pytest.mark.parametrize(
    ("mine", "default", "winner"),
    [
        (held(1, 1.0, value_s=0.2), held(0, 1.0, value_s=0.4), 1),
        (held(1, 1.0, value_s=0.4), held(0, 1.0, value_s=0.2), 0),
        (held(1, 0.95, value_s=0.2), held(0, 1.0, value_s=0.4), 0),
        (held(1, 1.0, value_s=0.4), held(0, 0.95, value_s=0.2), 1),
    ],
)
def test_at_a_fixed_speed_the_latency_on_held_out_traffic_decides(
    mine: Confirmation, default: Confirmation, winner: int
) -> None:
    trials = [trial(0, at_one(0.4)), trial(1, at_one(0.2), max_num_seqs=512)]
    assert verdict(FIXED_RATE, trials, [mine, default])[0] == winner


def test_a_winner_that_does_not_hold_on_held_out_traffic_is_not_delivered(tmp_path: Path) -> None:
    lab = Lab(tmp_path, replace(THE_RUN, trials=2), faster_with_more, confirmed=lambda _: (2.0, None))
    events = lab.tune()
    assert lab.result.winner == 0
    assert isinstance(events[-1], RunEnded)
    assert events[-1].winner == 0
