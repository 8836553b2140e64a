from __future__ import annotations

from dataclasses import replace

import pytest
from report_fixtures import (
    FIXED_RATE,
    RUN,
    TTFT,
    UNEVEN,
    confirmation,
    measured,
    result,
    trial,
    window,
)

from autotune.domain.measurement import State
from autotune.domain.outcome import Capacity, Cause, Faulted, Infeasible, Outcome, Quality, Stopped
from autotune.domain.slo import Metric, Sla
from autotune.report.marks import Role
from autotune.report.table import Kind
from autotune.report.view import view
from autotune.report.words import Ratio, bracket, listed, percent, three

DEFAULT = trial(0, measured(2.0, 2.3))
TUNED = trial(7, measured(4.2, 4.6, trial=7), max_num_seqs=512)
OOM = Infeasible(cause=Cause.OUT_OF_MEMORY, evidence="CUDA out of memory")


def capacity(low: float | None, high: float | None) -> Capacity:
    return Capacity(low_speed=low, high_speed=high, low_rps=low, high_rps=high, output_tokens_per_s=None)


# The ratio


def test_the_ratio_interval_takes_the_far_ends_of_both_brackets() -> None:
    # 4.2 / 2.0 = 2.1; 4.2 / 2.3 = 1.826 rounds down, 4.6 / 2.0 = 2.3
    assert str(Ratio.of(capacity(4.2, 4.6), capacity(2.0, 2.3))) == "2.1× [1.8, 2.3]"


def test_interval_ends_are_rounded_outwards() -> None:
    # 3.0 / 1.6 = 1.875 → 1.8 and 3.01 / 1.5 = 2.0067 → 2.1
    assert str(Ratio.of(capacity(3.0, 3.01), capacity(1.5, 1.6))) == "2.0× [1.8, 2.1]"


def test_a_small_gain_keeps_two_decimals() -> None:
    # 1.1 / 1.0 = 1.1; 1.1 / 1.08 = 1.0185; 1.19 / 1.0 = 1.19
    assert str(Ratio.of(capacity(1.1, 1.19), capacity(1.0, 1.08))) == "1.10× [1.01, 1.19]"


def test_there_is_no_ratio_to_what_never_held() -> None:
    assert Ratio.of(capacity(4.2, 4.6), capacity(None, 0.1)) is None


def test_an_open_bracket_leaves_an_open_interval() -> None:
    assert str(Ratio.of(capacity(4.2, None), capacity(2.0, 2.3))) == "2.1× [1.8, not bounded above]"


# The headline


def test_a_gain_is_a_ratio_with_its_interval() -> None:
    headline = view(RUN, result(DEFAULT, TUNED, winner=7)).headline
    assert headline.sentence == (
        "Tuned settings carry 2.1× [1.8, 2.3] the traffic of the defaults inside ttft_p99 ≤ 500 ms"
        " (search, not confirmed)"
    )
    assert "8.40 against 4.00 req/s" in headline.details[0]


def test_several_objectives_are_all_named() -> None:
    run = replace(RUN, sla=Sla.parse(["ttft_p99=500ms", "tpot_p95=40ms"]))
    sentence = view(run, result(DEFAULT, TUNED, winner=7)).headline.sentence
    assert "inside ttft_p99 ≤ 500 ms and tpot_p95 ≤ 40 ms (search" in sentence


def test_without_a_failing_rate_the_gain_is_at_least_the_lower_end() -> None:
    best = trial(7, measured(4.2, None, trial=7))
    headline = view(RUN, result(DEFAULT, best, winner=7)).headline
    assert headline.sentence.startswith("Tuned settings carry at least 1.8× the traffic of the defaults")
    assert "no upper end" in headline.details[0]


def test_defaults_that_never_failed_leave_the_gain_open() -> None:
    headline = view(RUN, result(trial(0, measured(2.0, None)), TUNED, winner=7)).headline
    assert headline.sentence == (
        "Tuned settings hold ttft_p99 ≤ 500 ms at 8.40 – 9.20 req/s (search, not confirmed);"
        " the defaults met no failing rate, so the gain is open"
    )


def test_defaults_that_hold_nothing_are_named_with_the_lowest_rate_tried() -> None:
    headline = view(RUN, result(trial(0, measured(None, 0.2)), TUNED, winner=7)).headline
    assert headline.sentence == (
        "Tuned settings hold ttft_p99 ≤ 500 ms at 8.40 – 9.20 req/s (search, not confirmed);"
        " the defaults hold it at no rate tried (lowest: 0.400 req/s)"
    )


def test_defaults_that_cannot_run_are_said_to_be_so() -> None:
    sentence = view(RUN, result(trial(0, OOM), TUNED, winner=7)).headline.sentence
    assert sentence.endswith("the defaults cannot be used here (out of memory)")


def test_overlapping_brackets_are_owned_up_to() -> None:
    best = trial(7, measured(2.2, 2.4, trial=7))
    details = view(RUN, result(DEFAULT, best, winner=7)).headline.details
    assert details[-1] == "The interval includes 1: the brackets alone do not show a gain."


def test_keeping_the_defaults_is_an_answer() -> None:
    other = trial(1, measured(1.6, 2.0, trial=1), max_num_seqs=128)
    page = view(RUN, result(DEFAULT, other, winner=0))
    assert page.headline.sentence == (
        "Keep the defaults: nothing tried carries clearly more inside ttft_p99 ≤ 500 ms"
    )
    assert page.headline.details == ("1 other configuration tried.",)
    assert page.settings == ()
    assert page.deploy is None


@pytest.mark.parametrize(
    ("speed", "did"),
    [(None, "did not hold on held-out traffic"), (2.0, "carried no more on held-out traffic")],
)
def test_a_leader_that_lost_the_confirmation_is_not_called_absent(speed: float | None, did: str) -> None:
    lost = confirmation(7, window(4.0, passed=speed is not None, trial=7), speed=speed)
    page = view(RUN, result(DEFAULT, TUNED, winner=0, confirmations=(lost,)))
    assert page.headline.sentence.startswith("Keep the defaults: trial 7 led the search, but ")
    assert did in page.headline.sentence
    assert [line.name for line in page.load.lines] == ["Default (trial 0)", "Best other (trial 7)"]


def test_the_best_attainable_that_did_not_hold_again_is_neither_a_gain_nor_nothing() -> None:
    lost = confirmation(7, window(4.0, passed=False, trial=7), window(3.8, passed=False, trial=7), run=UNEVEN)
    page = view(UNEVEN, result(trial(0, OOM), TUNED, winner=None, confirmations=(lost,)))
    assert page.headline.sentence == (
        "The best attainable, trial 7, did not hold ttft_p99 ≤ 500 ms on held-out traffic"
    )
    # 4.2 × 2.5 = 10.5 in the search, 3.8 × 1.5 = 5.7 held out
    assert page.headline.details == (
        "In the search the highest rate that held was 10.5 req/s (4.20 × recorded).",
        "On held-out traffic trial 7 held at no rate tried; the lowest was 5.70 req/s (3.80 × recorded).",
        "2 trials: 1 measured and 1 infeasible (1 out of memory).",
    )
    assert page.deploy is None
    assert [line.name for line in page.load.lines] == ["Best other (trial 7)"]


def test_defaults_that_did_not_hold_again_are_kept_but_not_vouched_for() -> None:
    mine = confirmation(7, window(4.0, passed=False, trial=7))
    theirs = confirmation(0, window(1.9, passed=False), window(1.8, passed=False))
    page = view(RUN, result(DEFAULT, TUNED, winner=0, confirmations=(mine, theirs)))
    assert page.headline.details[0] == (
        "On held-out traffic the defaults held at no rate tried; the lowest was 3.60 req/s (1.80 × recorded)."
    )


def test_keeping_the_defaults_because_nothing_else_was_judged_says_so() -> None:
    late = trial(1, Faulted(reason="our own client was late", engine=False), max_num_seqs=128)
    headline = view(RUN, result(DEFAULT, late, winner=0)).headline
    assert headline.sentence == "Keep the defaults: no other configuration was judged"
    assert headline.details == ("1 other configuration tried, 0 judged.",)


def test_nothing_holds_is_said_with_the_lowest_rate_tried() -> None:
    page = view(RUN, result(trial(0, measured(None, 0.1)), trial(1, OOM), winner=None))
    assert page.headline.sentence == "Nothing tried holds ttft_p99 ≤ 500 ms"
    assert page.headline.details == (
        "The lowest rate tried was 0.200 req/s (0.100 × recorded).",
        "2 trials: 1 measured and 1 infeasible (1 out of memory).",
    )


def test_a_run_without_a_measurement_has_no_answer() -> None:
    faulted = trial(0, Faulted(reason="port taken", engine=False))
    headline = view(RUN, result(faulted, winner=None)).headline
    assert headline.sentence == "No answer: the run ended before a trial was measured"


def test_an_empty_run_still_has_a_page() -> None:
    page = view(RUN, result(winner=None))
    assert page.tally == "0 trials"
    assert page.history == ()
    assert page.load.lines == ()


def test_at_a_fixed_rate_the_percentiles_decide() -> None:
    page = view(FIXED_RATE, result(trial(0, measured(1.0, None)), trial(1, measured(1.0, None)), winner=1))
    assert page.headline.sentence == (
        "Tuned settings hold ttft_p99 ≤ 500 ms at 1 × recorded (2.00 req/s; search, not confirmed);"
        " the defaults hold it too, with less to spare"
    )
    assert page.headline.details[0] == (
        "The tuned settings in the search: ttft_p99 300 ms (2 bad of 600 requests)."
    )
    assert page.history == ()


def test_at_a_fixed_rate_failing_defaults_are_named() -> None:
    page = view(FIXED_RATE, result(trial(0, measured(None, 1.0)), trial(1, measured(1.0, None)), winner=1))
    assert page.headline.sentence.endswith("; the defaults do not")


def test_at_a_fixed_rate_the_confirmations_are_compared_when_there_are_two() -> None:
    run = replace(UNEVEN, load=FIXED_RATE.load)
    mine = confirmation(1, window(1.0, passed=True, trial=1, value_s=0.2), speed=1.0, run=run)
    theirs = confirmation(0, window(1.0, passed=False, value_s=0.7), run=run)
    what = result(
        trial(0, measured(1.0, None)), trial(1, measured(1.0, None)), winner=1, confirmations=(mine, theirs)
    )
    headline = view(run, what).headline
    assert headline.sentence == (
        "Tuned settings hold ttft_p99 ≤ 500 ms at 1 × recorded (1.50 req/s) on held-out traffic;"
        " the defaults do not"
    )
    assert headline.details == (
        "The tuned settings on held-out traffic: ttft_p99 200 ms (2 bad of 600 requests).",
        "The default settings on held-out traffic: ttft_p99 700 ms (31 bad of 600 requests).",
    )


def test_at_a_fixed_rate_one_confirmation_leaves_the_comparison_to_the_search() -> None:
    mine = confirmation(1, window(1.0, passed=True, trial=1), speed=1.0)
    trials = (trial(0, measured(1.0, None)), trial(1, measured(1.0, None)))
    headline = view(FIXED_RATE, result(*trials, winner=1, confirmations=(mine,))).headline
    assert headline.sentence == (
        "Tuned settings hold ttft_p99 ≤ 500 ms at 1 × recorded (2.00 req/s) on held-out traffic;"
        " in the search the defaults hold it too, with less to spare"
    )


# The gain on held-out traffic


def test_two_confirmations_make_the_claim_and_the_search_stands_beside_it() -> None:
    mine = confirmation(7, window(4.0, passed=False), window(3.8, passed=True), speed=3.8, run=UNEVEN)
    theirs = confirmation(
        0,
        window(3.8, passed=False),
        window(1.9, passed=False),
        window(1.8, passed=True),
        speed=1.8,
        run=UNEVEN,
    )
    headline = view(UNEVEN, result(DEFAULT, TUNED, winner=7, confirmations=(mine, theirs))).headline
    # 3.8 / 1.8 = 2.11, 3.8 / 1.9 = 2.0, 4.0 / 1.8 = 2.22 rounds up; rates are 3.8 × 1.5 and 1.8 × 1.5
    assert headline.sentence == (
        "Tuned settings carry 2.1× [2.0, 2.3] the traffic of the defaults inside ttft_p99 ≤ 500 ms"
        " on held-out traffic"
    )
    assert headline.details == (
        (
            "2.1× compares the highest rates that held on held-out traffic, 5.70 against 2.70 req/s;"
            " the brackets behind them allow anything from 2.0× to 2.3×."
        ),
        "Search: 2.1× [1.8, 2.3] the traffic of the defaults.",
    )


def test_defaults_that_fail_where_the_winner_holds_bound_the_gain_by_one() -> None:
    mine = confirmation(7, window(4.0, passed=True), speed=4.0)
    theirs = confirmation(0, window(4.0, passed=False), window(2.0, passed=True), speed=2.0)
    headline = view(RUN, result(DEFAULT, TUNED, winner=7, confirmations=(mine, theirs))).headline
    # 4.0 / 2.0 = 2.0; 4.0 / 4.0 = 1.0: what the defaults carry is below 4.0, so the gain is above 1
    assert headline.sentence.startswith("Tuned settings carry 2.0× [1.0, not bounded above] the traffic")
    assert headline.details[0].endswith(
        "8.00 against 4.00 req/s."
        " No rate tried was too high for the tuned settings, so the gain has no upper end."
    )
    assert not any("includes 1" in detail for detail in headline.details)


def test_one_confirmation_is_no_comparison() -> None:
    mine = confirmation(7, window(4.0, passed=True), speed=4.0)
    theirs = confirmation(0, window(4.0, passed=False), window(1.9, passed=False))
    headline = view(RUN, result(DEFAULT, TUNED, winner=7, confirmations=(mine, theirs))).headline
    assert headline.sentence.endswith("[1.8, 2.3] the traffic of the defaults inside ttft_p99 ≤ 500 ms"
                                      " (search, not confirmed)")  # fmt: skip
    assert headline.details[-1] == (
        "On held-out traffic the defaults held at no rate tried; the lowest was 3.80 req/s (1.90 × recorded)."
    )


def test_a_confirmed_winner_without_a_ratio_claims_the_confirmed_rate() -> None:
    mine = confirmation(7, window(4.0, passed=True), speed=4.0, run=UNEVEN)
    what = result(trial(0, measured(None, 0.2)), TUNED, winner=7, confirmations=(mine,))
    # 4.0 × 1.5 = 6.0 held out; the defaults were tried at 0.2 × 2.5 = 0.5 in the search
    assert view(UNEVEN, what).headline.sentence == (
        "Tuned settings hold ttft_p99 ≤ 500 ms at 6.00 req/s (4.00 × recorded) on held-out traffic;"
        " the defaults hold it at no rate tried (lowest: 0.500 req/s)"
    )


# One definition of a rate


def test_a_rate_is_the_speed_times_the_recorded_rate_of_its_slice() -> None:
    held = window(4.0, passed=True, trial=7, state=State.PASS, needed=None)
    own = confirmation(7, held, speed=4.0, run=UNEVEN)
    page = view(UNEVEN, result(DEFAULT, TUNED, winner=7, confirmations=(own,)))
    # Confirmed 4.0 × 1.5; in the search 4.2 × 2.5 and 4.6 × 2.5; every window was offered 2.0 × its speed.
    assert [(one.rate, one.offered, one.speed) for one in page.load.lines[1].points] == [
        ("6.00", "8.00", "4.00"),
        ("10.5", "8.40", "4.20"),
        ("11.5", "9.20", "4.60"),
    ]
    assert [one.rate_rps for one in page.latency.curves] == pytest.approx([5.0, 5.75, 10.5])
    assert page.proof.confirmed_rps == 6.0
    assert [row.rate for row in page.proof.rows] == [
        "6.00 req/s (4.00 × recorded)",
        "10.5 req/s (4.20 × recorded)",
    ]
    assert "at 6.00 req/s (4.00 × recorded), on a fresh launch" in page.proof.sentences[0]


def test_the_lowest_rate_tried_is_a_speed_of_the_search_slice() -> None:
    # Offered 0.2 req/s, but 0.1 × recorded is 0.25 req/s of a slice recorded at 2.5.
    headline = view(UNEVEN, result(trial(0, measured(None, 0.1)), winner=None)).headline
    assert headline.details[0] == "The lowest rate tried was 0.250 req/s (0.100 × recorded)."


def test_both_slices_are_named_with_their_rates() -> None:
    page = view(UNEVEN, result(DEFAULT, winner=0))
    held = next(fact for fact in page.environment if fact.label == "Held out")
    assert held.text == "the last 3,000 requests"
    assert held.note.startswith("recorded at 1.50 req/s")
    assert held.note.endswith("recorded at 2.50 req/s")


# The proof


def test_a_pass_is_a_proof_with_its_n() -> None:
    held = window(4.0, passed=True, trial=7, n=2_940, bad=8, state=State.PASS, needed=None, phase="confirm")
    proof = view(
        RUN, result(DEFAULT, TUNED, winner=7, confirmations=(confirmation(7, held, speed=4.0),))
    ).proof
    assert proof.state is State.PASS
    assert len(proof.sentences) == 1
    assert proof.sentences[0] == (
        "Tuned settings (trial 7): proven at 95 % to hold ttft_p99 ≤ 500 ms at 8.00 req/s (4.00 × recorded),"
        " on a fresh launch and held-out traffic: 8 bad of 2,940 requests."
    )
    assert proof.confirmed_rps == 8.0
    assert "design effect of 3" in proof.caveat


def test_undecided_says_how_many_requests_are_missing() -> None:
    held = window(4.0, passed=True, trial=7, n=900, bad=4, needed=2_247)
    proof = view(
        RUN, result(DEFAULT, TUNED, winner=7, confirmations=(confirmation(7, held, speed=4.0),))
    ).proof
    assert proof.state is State.UNDECIDED
    assert "held by the point rule, but not proven" in proof.sentences[0]
    assert proof.sentences[0].endswith("At the share seen, 2,247 more requests would prove it.")
    assert proof.rows[0].needed == "2,247 more requests"
    assert proof.confirmed_rps is None


def test_a_share_over_the_limit_cannot_be_waited_away() -> None:
    lost = window(4.0, passed=False, trial=7, needed=None)
    proof = view(RUN, result(DEFAULT, TUNED, winner=7, confirmations=(confirmation(7, lost),))).proof
    assert proof.sentences[0].endswith("At the share seen no number of requests would prove it.")


def test_later_attempts_are_counted() -> None:
    first = window(4.0, passed=False, trial=7, state=State.FAIL)
    second = window(3.8, passed=True, trial=7, state=State.PASS)
    both = confirmation(7, first, second, speed=3.8)
    proof = view(RUN, result(DEFAULT, TUNED, winner=7, confirmations=(both,))).proof
    assert proof.sentences[0].endswith(
        "This was attempt 2, slower than those before; each was judged on its own."
    )
    assert [row.subject for row in proof.rows] == [
        "Tuned settings (trial 7), attempt 1",
        "Tuned settings (trial 7), attempt 2",
        "Search, trial 7 (point rule)",
    ]


def test_an_unconfirmed_winner_is_called_so() -> None:
    proof = view(RUN, result(DEFAULT, TUNED, winner=7)).proof
    assert proof.state is None
    assert proof.sentences == ("The winner was not confirmed: its figures rest on search windows alone.",)


def test_a_confirmation_without_time_keeps_its_note() -> None:
    none = confirmation(7, note="the budget left no time for it")
    proof = view(RUN, result(DEFAULT, TUNED, winner=7, confirmations=(none,))).proof
    assert proof.sentences == ("Tuned settings (trial 7): not confirmed. The budget left no time for it.",)


# Tables


def test_settings_and_deployment_name_what_changed() -> None:
    page = view(RUN, result(DEFAULT, trial(7, TUNED.outcome, async_scheduling=False), winner=7))
    assert [(one.name, one.default, one.tuned) for one in page.settings] == [
        ("async_scheduling", "true", "false")
    ]
    assert page.deploy == "./serve.sh"
    assert "not enough" not in page.deploy_note


def test_environment_variables_are_not_in_the_configuration_file() -> None:
    page = view(RUN, result(DEFAULT, TUNED, winner=7), variables=("VLLM_A", "VLLM_B"))
    assert page.deploy_note.endswith(" tuned.yaml alone is not enough: serve.sh also sets VLLM_A and VLLM_B.")


def test_every_kind_of_outcome_has_its_row() -> None:
    quality = Quality(
        precision="int4", perplexity=7.84, reference=7.41, increase=0.058, limit=0.01, tokens=4096, seconds=9
    )
    rows = view(
        RUN,
        result(
            DEFAULT,
            trial(1, measured(None, 0.2)),
            trial(2, Infeasible(cause=Cause.QUALITY, evidence="perplexity rose", quality=quality)),
            trial(3, Stopped(reason="the budget ended", windows=(window(1.0, passed=True),))),
            trial(4, Faulted(reason="our own client was late", engine=False)),
            trial(5, measured(2.5, None), origin="preset throughput"),
            winner=5,
        ),
    ).trials
    assert [row.kind for row in rows] == [
        Kind.MEASURED,
        Kind.NEVER_HELD,
        Kind.INFEASIBLE,
        Kind.STOPPED,
        Kind.FAULTED,
        Kind.MEASURED,
    ]
    assert [row.rates for row in rows] == ["4.00 – 4.60", "< 0.400", "", "", "", "≥ 5.00"]
    assert rows[0].speeds == "2.00 – 2.30"
    assert (rows[2].cause, rows[2].quality) == ("quality gate", "7.84 (+5.80 %)")
    assert rows[3].windows == 1
    assert rows[4].evidence == "our own client was late"
    assert [row.winner for row in rows] == [False] * 5 + [True]


# Charts


def test_the_best_so_far_never_falls() -> None:
    outcomes: tuple[Outcome, ...] = (OOM, measured(2.0, 2.3), measured(1.0, 1.2), measured(3.0, 3.2))
    trials = (trial(number, outcome) for number, outcome in enumerate(outcomes))
    history = view(RUN, result(*trials, winner=3)).history
    assert [point.best_rps for point in history] == [None, 4.0, 4.0, 6.0]


def test_curves_show_each_best_window_and_where_the_defaults_first_failed() -> None:
    shown = view(RUN, result(DEFAULT, TUNED, winner=7)).latency
    assert [(one.role, one.held, one.rate_rps) for one in shown.curves] == [
        (Role.DEFAULT, True, 4.0),
        (Role.DEFAULT, False, 4.6),
        (Role.TUNED, True, 8.4),
    ]
    assert shown.slo == TTFT


def test_a_pass_above_a_fail_is_not_the_best_window() -> None:
    noisy = measured(2.0, 2.3)
    lucky = replace(noisy, windows=(*noisy.windows, window(2.6, passed=True)))
    shown = view(RUN, result(trial(0, lucky), winner=0)).latency
    assert [one.rate_rps for one in shown.curves] == [4.0, 4.6]


def test_without_a_limit_on_a_first_or_last_token_the_curves_show_ttft() -> None:
    run = replace(RUN, sla=Sla.parse(["itl_p99=40ms"]))
    shown = view(run, result(DEFAULT, winner=0)).latency
    assert (shown.metric, shown.slo) == (Metric.TTFT, None)


def test_the_load_curve_holds_confirmations_too() -> None:
    held = window(4.0, passed=True, trial=7, phase="confirm")
    page = view(RUN, result(DEFAULT, TUNED, winner=7, confirmations=(confirmation(7, held, speed=4.0),)))
    tuned = page.load.lines[1]
    assert [(one.rate_rps, one.confirmation) for one in tuned.points] == [
        (8.0, True),
        (8.4, False),
        (9.2, False),
    ]
    assert page.load.name == "TTFT p99"


def test_the_method_defines_the_metrics_of_the_sla() -> None:
    run = replace(RUN, sla=Sla.parse(["ttft_p99=500ms", "tpot_p95=40ms"]))
    method = {fact.label: fact.text for fact in view(run, result(DEFAULT, winner=0)).method}
    assert {"TTFT", "TPOT", "Point rule", "Bound rule", "Design effect"} <= method.keys()
    assert "1 % (for a p99) and 5 % (for a p95)" in method["Point rule"]


# Words


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.4123, "0.412"), (4.2, "4.20"), (61.34, "61.3"), (612.7, "613"), (1234.0, "1,230")],
)
def test_three_figures(value: float, text: str) -> None:
    assert three(value) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0.0002, "0.02 %"), (0.0147, "1.5 %"), (0.0, "0 %"), (0.314, "31 %")]
)
def test_shares_are_percentages(share: float, text: str) -> None:
    assert percent(share) == text


def test_an_empty_bracket_says_that_nothing_was_tried() -> None:
    assert bracket(None, None) == "no rate tried"


def test_lists_read_like_a_sentence() -> None:
    assert [listed(one) for one in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a and b", "a, b and c"]
