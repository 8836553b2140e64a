"""Recordings made from recordings."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.workload import Request
from autotune.traffic import edit
from autotune.traffic.profile import profile
from autotune.traffic.window import due_times_s


def asked(offset_s: float, session: str | None = None, *, tokens: int = 10, block: int = 0) -> Request:
    return Request(
        offset_s=offset_s, prompt_tokens=tokens, output_tokens=1, session=session, blocks=(block, block + 1)
    )


@st.composite
def recordings(draw: st.DrawFn) -> list[Request]:
    """Requests in order, some in sessions; each has its own length, so that none can stand for another."""
    gaps = draw(st.lists(st.floats(0, 50), min_size=1, max_size=30))
    names = draw(st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=len(gaps), max_size=len(gaps)))
    found: list[Request] = []
    for place, (gap, name) in enumerate(zip(gaps, names, strict=True)):
        before_s = found[-1].offset_s if found else 0.0
        found.append(asked(before_s + gap, name, tokens=place + 1, block=place))
    return list(edit.rebased(found))


def lengths(requests: list[Request]) -> list[int]:
    return [request.prompt_tokens for request in requests]


def in_order(requests: list[Request]) -> bool:
    return all(one.offset_s <= two.offset_s for one, two in pairwise(requests))


def sessions(requests: list[Request]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for request in requests:
        if request.session is not None:
            found.setdefault(request.session, []).append(request.prompt_tokens)
    return found


# -- slices ---------------------------------------------------------------------------------------

TALK = [
    asked(0, "a", tokens=1),
    asked(2, "b", tokens=2),
    asked(3, tokens=3),
    asked(5, "a", tokens=4),
    asked(6, "b", tokens=5),
    asked(7, tokens=6),
]


def test_a_slice_holds_what_starts_in_it_and_counts_from_there() -> None:
    cut = list(edit.between(TALK, from_s=2, to_s=6))
    assert [(one.offset_s, one.prompt_tokens) for one in cut] == [(0, 2), (1, 3), (4, 5)]


def test_the_first_sessions_are_taken_whole() -> None:
    assert edit.starts(TALK) == 4
    assert lengths(list(edit.leading(TALK, starts=2))) == [1, 2, 4, 5]


def test_the_busiest_window_is_the_earliest_that_holds_most() -> None:
    requests = [asked(second) for second in (0, 1, 10, 10.5, 11, 20, 20.5, 21)]
    assert edit.busiest(requests, window_s=2, by_tokens=False) == (10, 12)


def test_tokens_may_be_elsewhere_than_requests() -> None:
    requests = [asked(0), asked(0.5), asked(50, tokens=900)]
    assert edit.busiest(requests, window_s=5, by_tokens=False) == (0, 5)
    assert edit.busiest(requests, window_s=5, by_tokens=True) == (50, 55)


def test_a_session_counts_whole_where_it_starts() -> None:
    requests = [asked(0, "a"), asked(10), asked(11), asked(30, "a"), asked(60, "a")]
    assert edit.busiest(requests, window_s=5, by_tokens=False) == (0, 5)


@given(recordings(), st.floats(0, 200), st.floats(0.1, 300))
def test_slices_keep_sessions_whole(requests: list[Request], from_s: float, length_s: float) -> None:
    cut = list(edit.between(requests, from_s=from_s, to_s=from_s + length_s))
    for name, turns in sessions(cut).items():
        assert turns == sessions(requests)[name]
    assert in_order(cut)
    assert not cut or cut[0].offset_s == 0


@given(recordings(), st.floats(0, 200))
def test_two_slices_side_by_side_hold_every_request_once(requests: list[Request], at_s: float) -> None:
    left = edit.between(requests, from_s=0, to_s=at_s)
    right = edit.between(requests, from_s=at_s, to_s=float("inf"))
    assert sorted(lengths([*left, *right])) == lengths(requests)


@given(recordings(), st.floats(0.1, 100), st.booleans())
def test_no_window_holds_more_than_the_busiest(
    requests: list[Request], window_s: float, by_tokens: bool
) -> None:
    def held(from_s: float, to_s: float) -> int:
        cut = edit.between(requests, from_s=from_s, to_s=to_s)
        return sum(one.prompt_tokens + one.output_tokens if by_tokens else 1 for one in cut)

    most = held(*edit.busiest(requests, window_s=window_s, by_tokens=by_tokens))
    assert most == max(held(one.offset_s, one.offset_s + window_s) for one in requests)


# -- scale ----------------------------------------------------------------------------------------


def test_scaling_divides_gaps_between_sessions_and_keeps_those_inside() -> None:
    requests = [asked(0, "a"), asked(10, "b"), asked(20, "a"), asked(30)]
    scaled = list(edit.scale(requests, speed=2))
    assert [(one.offset_s, one.session) for one in scaled] == [(0, "a"), (5, "b"), (15, None), (20, "a")]


@given(recordings(), st.floats(0.01, 100))
def test_scaling_keeps_counts_and_order(requests: list[Request], speed: float) -> None:
    scaled = list(edit.scale(requests, speed=speed))
    assert in_order(scaled)
    assert sorted(lengths(scaled)) == lengths(requests)
    assert sessions(scaled) == sessions(requests)
    alone = [request.prompt_tokens for request in scaled if request.session is None]
    assert alone == [request.prompt_tokens for request in requests if request.session is None]


@given(recordings(), st.floats(0.01, 100))
def test_scaling_is_what_a_replay_at_that_speed_does(requests: list[Request], speed: float) -> None:
    due_s = due_times_s(requests, first=0, speed=speed)
    scaled = {one.prompt_tokens: one.offset_s for one in edit.scale(requests, speed=speed)}
    assert scaled == {one.prompt_tokens: due for one, due in zip(requests, due_s, strict=True)}


# -- merge ----------------------------------------------------------------------------------------


def test_recordings_are_laid_over_one_another_from_their_own_starts() -> None:
    merged = list(edit.merge([[asked(100, tokens=1), asked(103, tokens=2)], [asked(7, tokens=3)]]))
    assert [(one.offset_s, one.prompt_tokens) for one in merged] == [(0, 1), (0, 3), (3, 2)]


def test_sessions_and_blocks_of_different_recordings_stay_apart() -> None:
    large = 2**60
    one = [asked(0, "a", block=5), asked(1, "a", block=5), asked(2, block=large)]
    merged = list(edit.merge([one, one]))
    assert {request.session for request in merged} == {"1/a", "2/a", None}
    ids = [{id_ for request in merged[place::2] for id_ in request.blocks} for place in (0, 1)]
    assert ids[0].isdisjoint(ids[1])
    assert [len(some) for some in ids] == [4, 4]
    assert all(0 <= id_ < 2**63 for some in ids for id_ in some)


@given(st.lists(recordings(), min_size=1, max_size=4))
def test_a_merge_holds_all_requests(several: list[list[Request]]) -> None:
    merged = list(edit.merge(several))
    assert in_order(merged)
    assert sorted(lengths(merged)) == sorted(length for one in several for length in lengths(one))


@given(recordings())
def test_a_merge_with_itself_reuses_what_one_reuses(requests: list[Request]) -> None:
    alone = profile(requests, block_tokens=1, timed=True).prefix_share
    assert profile(
        edit.merge([requests, requests]), block_tokens=1, timed=True
    ).prefix_share == pytest.approx(alone)


# -- arrivals -------------------------------------------------------------------------------------


def test_requests_of_one_stamp_are_spread_over_the_step_in_their_order() -> None:
    requests = [asked(3.0 * (place // 5), tokens=place + 1) for place in range(50)]
    found = list(edit.spread(requests, step_s=3.0, seed=1))
    assert lengths(found) == lengths(requests)
    assert in_order(found)
    origin_s = -found[0].offset_s
    assert origin_s == 0
    assert len({one.offset_s for one in found}) == 50


@given(recordings(), st.floats(0.1, 20), st.integers(0, 9))
def test_spreading_moves_no_request_past_the_next_stamp(
    requests: list[Request], step_s: float, seed: int
) -> None:
    found = list(edit.spread(requests, step_s=step_s, seed=seed))
    assert in_order(found)
    assert lengths(found) == lengths(requests)
    assert all(
        abs(one.offset_s - two.offset_s) <= step_s + 1e-3 for one, two in zip(found, requests, strict=True)
    )
    assert found == list(edit.spread(requests, step_s=step_s, seed=seed))


def test_prompts_without_times_arrive_as_a_poisson_process() -> None:
    found = edit.arrive([asked(0, tokens=place + 1) for place in range(5_000)], rate_rps=4, seed=2)
    looked_at = profile(found, block_tokens=None, timed=True)
    assert found[0].offset_s == 0
    assert lengths(found) == list(range(1, 5_001))
    assert looked_at.rate_rps == pytest.approx(4, rel=0.05)
    assert looked_at.gap_cv == pytest.approx(1, abs=0.05)


def test_the_turns_of_a_session_share_its_start() -> None:
    talk = [asked(0, "a"), asked(0, "a"), asked(0, "b"), asked(0)]
    found = edit.arrive(talk, rate_rps=1, seed=0)
    assert found[0].offset_s == found[1].offset_s == 0
    assert 0 < found[2].offset_s < found[3].offset_s
    assert found == edit.arrive(talk, rate_rps=1, seed=0)
    assert found != edit.arrive(talk, rate_rps=1, seed=1)
