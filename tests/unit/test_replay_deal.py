"""How many processes send a window, and which sends what."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.workload import Request
from autotune.replay.deal import deal, workers
from autotune.traffic import Due


def due(
    index: int, due_s: float, *, tokens: int = 10, session: str | None = None, after: int | None = None
) -> Due:
    request = Request(offset_s=due_s, prompt_tokens=5, output_tokens=tokens, session=session)
    return Due(index=index, due_s=due_s, request=request, measured=True, after=after)


def test_one_worker_for_each_ten_thousand_token_events_a_second() -> None:
    window = [due(index, 0.1 * index, tokens=1_000) for index in range(101)]  # 101,000 tokens in 10 s
    assert workers(window, cores=16) == 2  # 10,100 events/s
    assert workers(window[:-1], cores=16) == 2  # 100,000 in 9.9 s
    assert workers(window, cores=1) == 1
    assert workers([due(index, 0.1 * index, tokens=100) for index in range(101)], cores=16) == 1


def test_a_burst_is_taken_to_last_a_second() -> None:
    assert workers([due(index, 0.0, tokens=100) for index in range(350)], cores=16) == 4  # 35,000 tokens
    assert workers([due(0, 0.0, tokens=100_000)], cores=16) == 1  # one request cannot be shared
    assert workers([], cores=16) == 1


def test_requests_are_dealt_in_turn_by_due_time() -> None:
    window = [due(0, 3.0), due(1, 1.0), due(2, 2.0), due(3, 4.0), due(4, 5.0)]
    assert [[one.index for one in share] for share in deal(window, 2)] == [[1, 0, 4], [2, 3]]


def test_a_session_stays_with_one_worker() -> None:
    window = [
        due(0, 0.0, session="a"),
        due(1, 1.0),
        due(2, 2.0, session="a", after=0),
        due(3, 3.0),
        due(4, 4.0, after=3),  # without a name, but it waits
    ]
    assert [[one.index for one in share] for share in deal(window, 2)] == [[0, 2, 3, 4], [1]]


@given(
    st.lists(st.tuples(st.floats(0, 100), st.sampled_from([None, "a", "b", "c"])), max_size=40),
    st.integers(1, 5),
)
def test_nothing_is_lost_doubled_or_torn_apart(rows: list[tuple[float, str | None]], count: int) -> None:
    window = [due(index, at, session=session) for index, (at, session) in enumerate(rows)]
    shares = deal(window, count)
    assert sorted(one.index for share in shares for one in share) == list(range(len(rows)))
    assert all(share == tuple(sorted(share, key=lambda one: one.due_s)) for share in shares)
    for name in "abc":
        assert sum(any(one.request.session == name for one in share) for share in shares) <= 1
