"""Which point is asked next, and what the sampler is told of each outcome."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.trial import TrialState
from report_fixtures import RUN, measured, window

from autotune import search
from autotune.domain.measurement import Count
from autotune.domain.outcome import (
    Cause,
    Faulted,
    Infeasible,
    Measured,
    Outcome,
    Quality,
    Stopped,
    Trial,
)
from autotune.domain.run import Run
from autotune.domain.slo import Sla, Slo
from autotune.domain.space import Parameter, Point, Preset, Rule, SearchSpace, Value
from autotune.journal import Journal

SEQS = Parameter(name="max_num_seqs", levels=(32, 64, 128, 256), default=128, ordered=True)
TOKENS = Parameter(name="max_num_batched_tokens", levels=(64, 512, 2048), default=2048, ordered=True)
KV = Parameter(name="kv_cache_dtype", levels=("auto", "fp8"), default="auto", ordered=False)
EAGER = Parameter(name="enforce_eager", levels=(False, True), default=False, ordered=False)
SPACE = SearchSpace(
    name="test",
    engine="vllm",
    device="cuda",
    versions=">=0.26",
    parameters=(SEQS, TOKENS, KV, EAGER),
    rules=(Rule(left="max_num_batched_tokens", right="max_num_seqs", why="one token each"),),
    presets=(
        Preset(name="fp8-kv", settings={"kv_cache_dtype": "fp8"}, why=""),
        Preset(name="broken", settings={"max_num_batched_tokens": 64}, why=""),
        Preset(name="again", settings={"kv_cache_dtype": "fp8"}, why=""),
    ),
    fixed={},
)
SLA = Sla.parse(["ttft_p99=500ms", "tpot_p95=40ms"])
THE_RUN: Run = replace(RUN, space=SPACE, sla=SLA, seed=11)
DEFAULT = SPACE.default_point()
OOM = Infeasible(cause=Cause.OUT_OF_MEMORY, evidence="CUDA out of memory")
WORSE = Quality(
    precision="kv_cache_dtype=fp8",
    perplexity=11,
    reference=10,
    increase=0.1,
    limit=0.01,
    tokens=1000,
    seconds=1,
)
LOST = Infeasible(cause=Cause.QUALITY, evidence="perplexity", quality=WORSE)
FAULTED = Faulted(reason="our own client was late", engine=False)
STOPPED = Stopped(reason="the budget ended", windows=())

Refusal = Callable[[Point], str | None]


def rules_only(point: Point) -> str | None:
    rule = SPACE.broken_rule(point)
    return rule.why if rule else None


def trial(number: int, point: Point, outcome: Outcome) -> Trial:
    return Trial(
        number=number,
        point=dict(point),
        origin="tpe",
        outcome=outcome,
        started_at="2026-01-01T00:00:00.000+00:00",
        seconds=60.0,
    )


def engine(point: Point) -> Outcome:
    """A made-up engine: out of memory with many sequences and long steps, faster with more of either."""
    seqs, tokens = int(point["max_num_seqs"]), int(point["max_num_batched_tokens"])
    if seqs == 256 and tokens == 2048:
        return OOM
    if seqs == 32:
        return measured(None, 1.0)
    speed = seqs / 64 + tokens / 2048 + (point["kv_cache_dtype"] == "fp8")
    return measured(speed, speed * 1.08)


def asked(trials: Sequence[Trial], run: Run = THE_RUN, refused: Refusal = rules_only) -> search.Ask | None:
    return search.ask(run, trials, refused=refused)


def searched(
    count: int, run: Run = THE_RUN, refused: Refusal = rules_only
) -> tuple[list[Trial], list[search.Ask]]:
    """So many trials against the engine above, with what was asked before each."""
    trials: list[Trial] = []
    asks: list[search.Ask] = []
    while len(trials) < count and (ask := asked(trials, run, refused)) is not None:
        asks.append(ask)
        trials.append(trial(len(trials), ask.point, engine(ask.point)))
    return trials, asks


# -- the order of asking --------------------------------------------------------------------------


def test_the_defaults_come_first_and_then_the_presets_that_hold_the_rules() -> None:
    assert search.enqueued(SPACE) == (
        search.Ask(point=DEFAULT, origin="default"),
        search.Ask(point={**DEFAULT, "kv_cache_dtype": "fp8"}, origin="preset fp8-kv"),
    )


def test_what_is_enqueued_is_asked_before_the_sampler() -> None:
    _, asks = searched(4)
    assert [ask.origin for ask in asks] == ["default", "preset fp8-kv", "tpe", "tpe"]


def test_a_refused_preset_is_left_out() -> None:
    def no_fp8(point: Point) -> str | None:
        return "lost the gate" if point["kv_cache_dtype"] == "fp8" else rules_only(point)

    _, asks = searched(10, refused=no_fp8)
    assert [ask.origin for ask in asks][:2] == ["default", "tpe"]
    assert all(ask.point["kv_cache_dtype"] == "auto" for ask in asks)


def test_every_point_is_asked_once_until_the_space_is_exhausted() -> None:
    small = replace(THE_RUN, space=replace(SPACE, parameters=(SEQS, TOKENS, KV)))
    trials, asks = searched(100, small)
    points = [tuple(ask.point.values()) for ask in asks]
    allowed = {
        (seqs, tokens, kv)
        for seqs, tokens, kv in itertools.product((32, 64, 128, 256), (64, 512, 2048), ("auto", "fp8"))
        if tokens >= seqs
    }
    assert len(points) == len(set(points))
    assert set(points) == allowed  # 64 tokens go with 32 and 64 sequences only: (4 · 3 − 2) · 2
    assert len(allowed) == 20
    assert asked(trials, small) is None


def test_a_space_without_parameters_has_one_point() -> None:
    run = replace(THE_RUN, space=replace(SPACE, parameters=(), presets=()))
    assert asked([], run) == search.Ask(point={}, origin="default")
    assert asked([trial(0, {}, OOM)], run) is None


def test_a_faulted_point_is_not_asked_again() -> None:
    ask = asked([trial(0, DEFAULT, FAULTED)])
    assert ask is not None
    assert ask.origin == "preset fp8-kv"


# -- resuming -------------------------------------------------------------------------------------


def test_the_next_ask_depends_on_the_trials_so_far_and_on_nothing_else() -> None:
    trials, asks = searched(14)
    random.seed(1)
    for k in reversed(range(len(trials))):
        random.random()  # whatever else draws a number
        assert asked(trials[:k]) == asks[k], f"after {k} trials"


def test_a_search_that_was_read_back_from_disk_goes_on_the_same(tmp_path: Path) -> None:
    trials, asks = searched(12)
    (tmp_path / "journal.jsonl").touch()
    with Journal(tmp_path) as journal:
        for k, one in enumerate(trials):
            assert asked(journal.history().trials) == asks[k], f"after {k} trials"
            journal.trial(one)


def test_asking_twice_gives_the_same() -> None:
    trials, _ = searched(8)
    assert asked(trials) == asked(trials)


def test_another_seed_searches_another_way() -> None:
    _, asks = searched(10)
    _, others = searched(10, replace(THE_RUN, seed=12))
    assert asks[:2] == others[:2]
    assert asks != others


@pytest.mark.parametrize("seed", [-1, 2**32 - 1, 2**40])
def test_any_integer_is_a_seed(seed: int) -> None:
    _, asks = searched(4, replace(THE_RUN, seed=seed))
    assert len(asks) == 4


# -- constraints ----------------------------------------------------------------------------------


def counted(slo: Slo, n: int, bad: int) -> Count:
    return Count(slo=slo, n=n, bad=bad, requests=n, value_s=0.9)


def failing(ttft_bad: int, tpot_bad: int, *, n: int = 1000, speed: float = 1.0) -> Measured:
    """It held nowhere; the slowest window had so many bad of `n`."""
    counts = (counted(SLA.slos[0], n, ttft_bad), counted(SLA.slos[1], n, tpot_bad))
    plain = window(speed, passed=False)
    slow = replace(plain, measurement=replace(plain.measurement, counts=counts))
    return replace(measured(None, speed), windows=(window(speed * 2, passed=False), slow))


def gated(increase: float) -> Measured:
    return measured(2.0, 2.2, quality=replace(WORSE, increase=increase))


OUTCOMES: dict[str, Outcome | None] = {
    "held": measured(2.0, 2.2),
    "held with quality": gated(0.004),
    "held nowhere": failing(31, 500),
    "held nowhere without values": failing(0, 0, n=0),
    "out of memory": OOM,
    "quality lost": LOST,
    "stopped": STOPPED,
    "faulted": FAULTED,
    "refused": None,
}


@pytest.mark.parametrize("kind", OUTCOMES)
def test_constraints_have_the_same_keys_in_the_same_order_whatever_happened(kind: str) -> None:
    found = search.constraints(SLA, OUTCOMES[kind], refused=OUTCOMES[kind] is None)
    assert list(found) == ["ttft_p99", "tpot_p95", "quality", "runs"]
    assert all(math.isfinite(value) for value in found.values())


@pytest.mark.parametrize(
    ("kind", "violated"),
    [
        ("held", set()),
        ("held with quality", set()),
        ("held nowhere", {"ttft_p99", "tpot_p95"}),
        ("held nowhere without values", {"ttft_p99", "tpot_p95"}),
        ("out of memory", {"runs"}),
        ("quality lost", {"quality", "runs"}),
        ("refused", {"quality", "runs"}),
    ],
)
def test_a_constraint_is_positive_exactly_when_it_was_violated(kind: str, violated: set[str]) -> None:
    found = search.constraints(SLA, OUTCOMES[kind], refused=OUTCOMES[kind] is None)
    assert {key for key, value in found.items() if value > 0} == violated


def test_a_violated_objective_says_by_how_much_in_the_slowest_window() -> None:
    # 3.1 % bad where 1 % may be: 2.1 too many; 2 % where 5 % may be: 0.6 to spare
    found = search.constraints(SLA, failing(31, 20))
    assert found["ttft_p99"] == pytest.approx(2.1)
    assert found["tpot_p95"] == pytest.approx(-0.6)


def test_what_held_nowhere_violates_something_even_when_its_last_window_looks_fine() -> None:
    assert search.constraints(SLA, failing(0, 0))["ttft_p99"] > 0


def test_the_room_left_by_the_gate_is_known() -> None:
    assert search.constraints(SLA, gated(0.004))["quality"] == pytest.approx(-0.006)


# -- what the study holds -------------------------------------------------------------------------


def test_faulted_and_stopped_trials_teach_the_sampler_nothing() -> None:
    trials = [trial(0, DEFAULT, FAULTED), trial(1, DEFAULT, STOPPED), trial(2, DEFAULT, measured(2.0, 2.2))]
    study = search.rebuild(THE_RUN, trials)
    assert [one.value for one in study.trials] == [math.log(4.0)]  # 2 × recorded is 4 requests/s


def test_what_cannot_run_is_complete_below_everything_and_infeasible() -> None:
    trials = [
        trial(0, DEFAULT, measured(2.0, 2.2)),
        trial(1, {**DEFAULT, "max_num_seqs": 64}, measured(0.5, 0.6)),
        trial(2, {**DEFAULT, "max_num_seqs": 256}, OOM),
        trial(3, {**DEFAULT, "max_num_seqs": 32}, failing(1000, 1000)),
    ]
    study = search.rebuild(THE_RUN, trials)
    assert {one.state for one in study.trials} == {TrialState.COMPLETE}
    assert study.direction is optuna.study.StudyDirection.MAXIMIZE
    # 0.5 × recorded is 1 request/s, log 1 = 0; half of that is the floor
    assert [one.value for one in study.trials] == pytest.approx(
        [math.log(4), 0.0, -math.log(2), -math.log(2)]
    )
    assert [max(one.constraints.values()) > 0 for one in study.trials] == [False, False, True, True]


def test_the_floor_of_an_empty_study_is_half_a_request_a_second() -> None:
    assert search.floor(THE_RUN, []) == pytest.approx(-math.log(2))


def test_at_a_fixed_speed_the_value_is_the_margin_of_the_tightest_objective() -> None:
    fixed = replace(THE_RUN, load=replace(THE_RUN.load, at=1.0))
    slo = SLA.slos
    counts = (replace(counted(slo[0], 100, 0), value_s=0.25), replace(counted(slo[1], 100, 0), value_s=0.032))
    plain = window(1.0, passed=True)
    held = replace(
        measured(1.0, None),
        windows=(replace(plain, measurement=replace(plain.measurement, counts=counts)),),
    )
    assert search.value(fixed, held) == pytest.approx(math.log(1.25))  # 40 / 32, not 500 / 250
    assert search.value(fixed, measured(None, 1.0)) is None
    assert search.value(THE_RUN, held) == pytest.approx(math.log(2))


# -- points and Optuna's parameters ---------------------------------------------------------------


@given(st.tuples(*(st.sampled_from(parameter.levels) for parameter in SPACE.parameters)))
def test_a_point_survives_its_way_through_optuna(values: tuple[Value, ...]) -> None:
    point = dict(zip(DEFAULT, values, strict=True))
    params = search.encode(SPACE, point)
    back = search.decode(SPACE, params)
    assert back == point
    assert [type(value) for value in back.values()] == [type(value) for value in point.values()]
    for name, distribution in search.distributions(SPACE).items():
        assert distribution._contains(distribution.to_internal_repr(params[name]))


def test_ordered_levels_are_ranks_and_others_names() -> None:
    point = {**DEFAULT, "max_num_seqs": 256, "enforce_eager": True}
    assert search.encode(SPACE, point) == {
        "max_num_seqs": 3,
        "max_num_batched_tokens": 2,
        "kv_cache_dtype": "auto",
        "enforce_eager": "True",
    }


def test_a_single_level_is_no_parameter_and_is_kept() -> None:
    space = replace(SPACE, parameters=(SEQS, replace(KV, levels=("fp8",), default="fp8")))
    assert set(search.distributions(space)) == {"max_num_seqs"}
    assert search.decode(space, {"max_num_seqs": 0}) == {"max_num_seqs": 32, "kv_cache_dtype": "fp8"}
