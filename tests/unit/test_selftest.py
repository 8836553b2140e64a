"""What is replayed against the server of known timing, and which client is refused."""

from __future__ import annotations

from dataclasses import replace

from client_fixtures import OWN

from autotune.domain.slo import Sla
from autotune.domain.workload import Request
from autotune.replay.selftest import busiest, refusal
from autotune.traffic import Due


def due(index: int, due_s: float, tokens: int = 10) -> Due:
    request = Request(offset_s=due_s, prompt_tokens=5, output_tokens=tokens, session="a")
    return Due(
        index=index, due_s=due_s, request=request, measured=False, after=None if index == 0 else index - 1
    )


def test_the_seconds_with_the_most_tokens_are_played_from_their_begin() -> None:
    window = [due(0, 0.0, 50), due(1, 1.0), due(2, 4.0, 40), due(3, 6.0, 30), due(4, 7.5, 15)]
    part = busiest(window, seconds=3.0)  # 60 tokens up to 3 s, 70 from 4 to 7 s
    assert [(one.index, one.due_s, one.after) for one in part] == [(2, 0.0, None), (3, 2.0, None)]
    assert [one.index for one in busiest(window, seconds=100.0)] == [0, 1, 2, 3, 4]


def test_a_client_off_by_more_than_a_hundredth_of_the_limit_is_refused() -> None:
    assert refusal(OWN, Sla.parse(["ttft_p99=300ms"])) is None
    assert refusal(OWN, Sla.parse(["ttft_p99=299ms"])) == (
        "our own client is off by 3 ms at TTFT p99 with 300 requests/s and 19,200 token events/s, allowed "
        "3 ms (1 % of the limit); send fewer streams, leave the client more cores than its 2, stop other "
        "programs, or send from another machine"
    )
    assert refusal(OWN, Sla.parse(["ttft_p99=9s, e2el_p90=200ms"])) is not None
    assert refusal(OWN, Sla.parse(["tpot_p99=1ms"])) is None


def test_a_client_that_loses_requests_is_refused_whatever_the_limit() -> None:
    lossy = replace(OWN, failed=3)
    assert (
        refusal(lossy, Sla.parse(["tpot_p99=1s"])) == "3 of 900 requests failed against the built-in server"
    )
