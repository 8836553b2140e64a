"""Windows cut from a recording, and the prompts they are made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.workload import Request, Workload
from autotune.traffic import Due, cut, first_of_search, holdout, offered_rps, prompt


def recorded(*offsets_s: float) -> list[Request]:
    return [
        Request(offset_s=offset, prompt_tokens=10 + index, output_tokens=1 + index)
        for index, offset in enumerate(offsets_s)
    ]


EVERY_SECOND = recorded(*range(10))


def window(
    requests: list[Request] = EVERY_SECOND,
    *,
    first: int = 3,
    end: int = 10,
    speed: float = 1.0,
    count: int = 100,
    lead_in_s: float = 2.0,
    at_least_s: float = 0.0,
    at_most_s: float = 60.0,
) -> tuple[Due, ...]:
    return cut(
        requests,
        first=first,
        end=end,
        speed=speed,
        count=count,
        at_least_s=at_least_s,
        at_most_s=at_most_s,
        lead_in_s=lead_in_s,
    )


def indexes(due: tuple[Due, ...], *, measured: bool) -> list[int]:
    return [one.index for one in due if one.measured is measured]


# -- windows --------------------------------------------------------------------------------------


def test_at_speed_one_the_recorded_gaps_are_replayed() -> None:
    due = window(recorded(0, 0.25, 1.5, 1.5, 4.0), first=0, end=5)
    assert [one.due_s for one in due] == [0, 0.25, 1.5, 1.5, 4.0]
    assert [(one.request.prompt_tokens, one.request.output_tokens) for one in due] == [
        (10, 1),
        (11, 2),
        (12, 3),
        (13, 4),
        (14, 5),
    ]


def test_speed_divides_the_gaps() -> None:
    due = window(recorded(0, 0.25, 1.5, 4.0), first=0, end=4, speed=2)
    assert [one.due_s for one in due] == [0, 0.125, 0.75, 2.0]


def test_what_came_before_the_first_measured_request_leads_in() -> None:
    due = window(first=3, lead_in_s=2.0)
    assert indexes(due, measured=False) == [1, 2]
    assert indexes(due, measured=True) == [3, 4, 5, 6, 7, 8, 9]
    assert [one.due_s for one in due][:3] == [0, 1, 2]


def test_the_lead_in_is_in_replayed_time() -> None:
    assert indexes(window(first=5, speed=2, lead_in_s=2.0), measured=False) == [1, 2, 3, 4]


def test_the_first_request_of_a_recording_has_no_lead_in() -> None:
    assert indexes(window(first=0), measured=False) == []


def test_a_window_goes_on_until_it_has_its_count_and_its_time() -> None:
    assert indexes(window(count=2), measured=True) == [3, 4]
    assert indexes(window(count=2, at_least_s=3.0), measured=True) == [3, 4, 5, 6]
    assert indexes(window(count=4, at_least_s=1.0), measured=True) == [3, 4, 5, 6]


def test_a_window_ends_at_its_longest_and_with_its_slice() -> None:
    assert indexes(window(at_most_s=2.0), measured=True) == [3, 4, 5]
    assert indexes(window(at_most_s=2.0, speed=2), measured=True) == [3, 4, 5, 6, 7]
    assert indexes(window(end=5), measured=True) == [3, 4]


def test_the_time_of_a_window_does_not_count_its_lead_in() -> None:
    assert indexes(window(at_most_s=1.0, lead_in_s=3.0), measured=True) == [3, 4]


def test_the_offered_rate_counts_gaps_of_the_measured_part() -> None:
    assert offered_rps(window(speed=2)) == pytest.approx(2.0)  # 6 gaps in 3 s
    assert offered_rps(window(count=1)) is None
    assert offered_rps(window(recorded(0, 1, 1), first=1, end=3)) is None


@given(
    gaps=st.lists(st.floats(0, 3), min_size=20, max_size=60),
    speed=st.floats(0.1, 50),
    window_s=st.floats(1, 100),
    count=st.integers(1, 60),
)
def test_the_search_never_sees_what_is_held_out(
    gaps: list[float], speed: float, window_s: float, count: int
) -> None:
    offsets = [sum(gaps[:index]) for index in range(len(gaps))]
    requests, split = recorded(*offsets), holdout(len(gaps))
    searched = window(
        requests,
        first=first_of_search(len(gaps)),
        end=split,
        speed=speed,
        count=count,
        at_most_s=window_s,
    )
    confirmed = window(requests, first=split, end=len(gaps), speed=speed, count=len(gaps), at_most_s=window_s)
    assert searched
    assert confirmed
    assert max(one.index for one in searched) < split
    assert min(indexes(confirmed, measured=True)) == split
    for due in (searched, confirmed):
        assert [one.due_s for one in due] == sorted(one.due_s for one in due)
        assert due[0].due_s == 0


@pytest.mark.parametrize(("requests", "first", "split"), [(1000, 100, 550), (30, 3, 16), (20, 2, 11)])
def test_a_recording_is_split_into_search_and_held_out(requests: int, first: int, split: int) -> None:
    assert first_of_search(requests) == first
    assert holdout(requests) == split


def test_a_workload_knows_its_rate_and_its_longest_request() -> None:
    workload = Workload(name="w", source="w.csv", sha256="", requests=tuple(recorded(1, 2, 5)))
    assert workload.duration_s == 4
    assert workload.rate_rps == 0.5  # two gaps in 4 s
    assert workload.longest_tokens == 15


# -- sessions -------------------------------------------------------------------------------------


def turn(offset_s: float, session: str) -> Request:
    return Request(offset_s=offset_s, prompt_tokens=1, output_tokens=1, session=session)


TURNS = [turn(0, "a"), turn(4, "b"), turn(6, "a"), turn(8, "b")]


def test_speed_divides_the_gaps_between_sessions_and_not_those_within() -> None:
    due = window(TURNS, first=0, end=4, speed=2)
    # a begins at 0 and b at 4 / 2; a's second turn comes 6 s after its first, b's 4 s after its own
    assert [(one.index, one.due_s) for one in due] == [(0, 0), (1, 2), (2, 6), (3, 6)]
    assert [one.after for one in due] == [None, None, 0, 1]


def test_a_turn_whose_predecessor_is_outside_the_window_waits_for_none() -> None:
    due = window(TURNS, first=1, end=4, lead_in_s=0)
    assert [(one.index, one.due_s, one.after) for one in due] == [(1, 0, None), (2, 2, None), (3, 4, 1)]


def test_a_fast_window_holds_late_turns_of_sessions_that_began_long_before_it() -> None:
    requests = [turn(0, "a"), *recorded(10, 20), turn(21, "a")]
    due = window(requests, first=1, end=4, speed=10, lead_in_s=0)
    # a began 1 s before the window's first request, its second turn is due 21 s later; 20 s is 1 s after 10 s
    assert [(one.index, one.due_s) for one in due] == [(1, 0), (2, 1), (3, 20)]


def test_a_window_into_which_no_request_falls_is_empty() -> None:
    assert window([turn(0, "a"), turn(500, "a")], first=1, end=2, speed=100, at_most_s=5, lead_in_s=0) == ()


# -- prompts --------------------------------------------------------------------------------------


def lengths(tokens: int, blocks: tuple[int, ...] = ()) -> Request:
    return Request(offset_s=0, prompt_tokens=tokens, output_tokens=1, blocks=blocks)


def test_equal_blocks_are_equal_tokens_and_the_rest_is_each_requests_own() -> None:
    def ids(index: int, tokens: int, *blocks: int, salt: str = "s") -> list[int]:
        return prompt(lengths(tokens, blocks), index, block_tokens=16, vocabulary=49_152, seed=0, salt=salt)

    long, short = ids(1, 40, 7, 8), ids(2, 24, 7, 8)
    assert (len(long), len(short)) == (40, 24)
    assert short == long[:24]  # two blocks of 16, the second cut off by the prompt's end
    assert ids(3, 40, 7, 8)[:32] == long[:32]
    assert ids(3, 40, 7, 8)[32:] != long[32:]
    assert ids(1, 16, 9) != long[:16]
    assert ids(1, 16, 7, salt="t") != long[:16]  # another window shares nothing
    assert len(ids(1, 10, 7, 8, 9)) == 10  # more blocks than the prompt is long


def test_a_prompt_is_the_same_on_every_machine() -> None:
    # Read off once: another sequence would make resumed windows unlike the ones before them.
    ids = prompt(lengths(5), 0, block_tokens=None, vocabulary=49_152, seed=0, salt="climb-0-1")
    assert ids == [4778, 13636, 7906, 11854, 16409]


@pytest.mark.parametrize("change", [{"index": 8}, {"seed": 1}, {"salt": "other"}])
def test_another_index_seed_or_salt_makes_another_prompt(change: dict[str, int | str]) -> None:
    plain: dict[str, int | str] = {"index": 7, "seed": 0, "salt": "climb"}

    def ids(index: int, seed: int, salt: str) -> list[int]:
        return prompt(lengths(50), index, block_tokens=None, vocabulary=49_152, seed=seed, salt=salt)

    assert ids(**plain) == ids(**plain)  # type: ignore[arg-type]
    assert ids(**plain) != ids(**{**plain, **change})  # type: ignore[arg-type]


@given(tokens=st.integers(1, 200), vocabulary=st.integers(1, 200_000), seed=st.integers())
def test_a_prompt_has_its_length_and_lies_inside_the_vocabulary(
    tokens: int, vocabulary: int, seed: int
) -> None:
    ids = prompt(lengths(tokens), 0, block_tokens=None, vocabulary=vocabulary, seed=seed, salt="")
    assert len(ids) == tokens
    assert min(ids) >= 0
    assert max(ids) < vocabulary


def test_a_prompt_keeps_clear_of_special_tokens() -> None:
    ids = prompt(lengths(20_000), 0, block_tokens=None, vocabulary=49_152, seed=0, salt="")
    assert min(ids) >= 256
    assert max(ids) < 28_000  # seven eighths of 32,000
