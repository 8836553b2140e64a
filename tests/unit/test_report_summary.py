from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

from report_fixtures import FIXED_RATE, RUN, UNEVEN, confirmation, measured, result, trial, window
from rich.console import Console

from autotune.cli.summary import summary
from autotune.domain.measurement import State
from autotune.domain.outcome import Result
from autotune.domain.run import Run
from autotune.domain.slo import Slo

ITL = Slo.parse("itl_p99=40ms")
DEFAULT = trial(0, measured(2.0, 2.3))
TUNED = trial(7, measured(4.2, 4.6, trial=7), max_num_seqs=512)


def said(run: Run, what: Result) -> list[str]:
    """The lines of the last screen, unbroken."""
    shown = io.StringIO()
    summary(run, what, Path("run"), ("tuned.yaml",), Console(file=shown, width=1000))
    return shown.getvalue().splitlines()


def line(run: Run, what: Result, label: str) -> list[str]:
    return [one.removeprefix(label).strip() for one in said(run, what) if one.startswith(label)]


def test_the_gain_is_that_of_the_confirmations_with_the_search_beside_it() -> None:
    mine = confirmation(7, window(4.0, passed=False), window(3.8, passed=True), speed=3.8)
    theirs = confirmation(
        0, window(3.8, passed=False), window(1.9, passed=False), window(1.8, passed=True), speed=1.8
    )
    # 3.8 / 1.8 = 2.11, 3.8 / 1.9 = 2.0, 4.0 / 1.8 = 2.22 rounds up
    assert line(RUN, result(DEFAULT, TUNED, winner=7, confirmations=(mine, theirs)), "gain") == [
        "2.1× [2.0, 2.3] the traffic of the defaults on held-out traffic (search: 2.1× [1.8, 2.3])"
    ]


def test_without_both_confirmations_the_gain_is_that_of_the_search() -> None:
    mine = confirmation(7, window(4.0, passed=True), speed=4.0)
    none = confirmation(0, note="the budget left no time for it")
    for confirmations in ((), (mine,), (mine, none)):
        assert line(RUN, result(DEFAULT, TUNED, winner=7, confirmations=confirmations), "gain") == [
            "2.1× [1.8, 2.3] the traffic of the defaults (search, not confirmed)"
        ]


def test_at_a_fixed_rate_the_lowest_percentile_is_named_and_no_gain() -> None:
    default = replace(measured(1.0, None), windows=(window(1.0, passed=True, value_s=0.41),))
    what = result(trial(0, default), trial(1, measured(1.0, None), max_num_seqs=128), winner=1)
    lines = said(FIXED_RATE, what)
    assert not any(one.startswith("gain") for one in lines)
    # 410 of 500 ms are 82 %, 300 of 500 ms are 60 %
    assert "defaults  holds at 1× recorded (2.00 req/s): ttft_p99 410 ms, 82 % of its limit" in lines
    assert "tuned     holds at 1× recorded (2.00 req/s): ttft_p99 300 ms, 60 % of its limit" in lines
    assert (
        "latency   trial 1 passes with the lowest percentile of its tightest objective: ttft_p99 300 ms,"
        " 60 % of its limit; defaults: ttft_p99 410 ms, 82 % of its limit (search, not confirmed)"
    ) in lines


def test_at_a_fixed_rate_confirmations_speak_before_the_search() -> None:
    mine = confirmation(1, window(1.0, passed=True, value_s=0.2), speed=1.0)
    theirs = confirmation(0, window(1.0, passed=True, value_s=0.45), speed=1.0)
    what = result(
        trial(0, measured(1.0, None)), trial(1, measured(1.0, None)), winner=1, confirmations=(mine, theirs)
    )
    assert line(FIXED_RATE, what, "latency") == [
        (
            "trial 1 passes with the lowest percentile of its tightest objective: ttft_p99 200 ms,"
            " 40 % of its limit; defaults: ttft_p99 450 ms, 90 % of its limit on held-out traffic"
        )
    ]


def test_a_confirmation_is_said_with_speed_rate_and_attempts() -> None:
    held = window(4.0, passed=True, n=2_940, bad=8, state=State.PASS, needed=None)
    mine = confirmation(7, held, speed=4.0, run=UNEVEN)
    first, second = window(4.0, passed=False), window(1.9, passed=True, needed=None)
    theirs = confirmation(0, first, second, speed=1.9, run=UNEVEN)
    # 4.0 × 1.5 = 6.0 and 1.9 × 1.5 = 2.85, though 8.0 and 3.8 req/s were offered
    assert line(UNEVEN, result(DEFAULT, TUNED, winner=7, confirmations=(mine, theirs)), "held out") == [
        "trial 7 holds at 4× recorded (6.00 req/s), first attempt; ttft_p99 8 bad of 2,940 requests: PASS",
        (
            "defaults hold at 1.9× recorded (2.85 req/s), attempt 2 of held-out traffic, each judged on its"
            " own; ttft_p99 2 bad of 600 requests: UNDECIDED"
        ),
    ]


def test_a_confirmation_that_was_cut_short_says_why() -> None:
    short = confirmation(7, window(4.0, passed=False, needed=None), note="the budget ended")
    none = confirmation(0, note="the budget left no time for it")
    assert line(RUN, result(DEFAULT, TUNED, winner=0, confirmations=(short, none)), "held out") == [
        (
            "trial 7 fails at 4× recorded (8.00 req/s), first attempt;"
            " ttft_p99 31 bad of 600 requests: UNDECIDED; the budget ended"
        ),
        "defaults: not confirmed, the budget left no time for it",
    ]


def test_a_window_is_as_large_as_its_requests_not_their_gaps() -> None:
    gaps = window(2.0, passed=True, n=30_000, requests=300, slo=ITL)
    what = result(trial(0, replace(measured(2.0, 2.3), windows=(gaps,))), winner=0)
    assert any("single windows of at most 300 requests" in one for one in said(RUN, what))


def test_a_confirmation_counts_gaps_and_the_requests_they_came_from() -> None:
    gaps = window(2.0, passed=True, n=30_000, requests=300, bad=12, slo=ITL, needed=None)
    what = result(DEFAULT, winner=0, confirmations=(confirmation(0, gaps, speed=2.0),))
    assert "itl_p99 12 bad of 30,000 gaps of 300 requests" in line(RUN, what, "held out")[0]


def test_the_reason_is_shown_as_it_is() -> None:
    for reason in (
        "nothing was judged",
        "trial 7 is the best attainable, but did not hold on held-out traffic",
    ):
        assert f"{reason}." in said(RUN, result(DEFAULT, TUNED, winner=None, reason=reason))


def test_a_run_without_trials_is_summed_up_too() -> None:
    assert "0 trials in 1 h 47 min" in said(RUN, result(winner=None))


def test_capacities_of_the_search_are_called_so() -> None:
    assert line(RUN, result(DEFAULT, TUNED, winner=7), "tuned") == [
        "8.40 req/s (4.2× recorded, fails at 9.20) in the search"
    ]
