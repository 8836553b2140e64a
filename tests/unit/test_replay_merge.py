"""What the frames of several workers make of a window."""

from __future__ import annotations

import json
from dataclasses import replace

from autotune.domain.slo import Sla
from autotune.domain.workload import Request
from autotune.replay.frames import Alive, Done, Ended, Frame, Frames, Ready, Running, Tick, packed
from autotune.replay.job import Job, Progress
from autotune.replay.merge import Merged
from autotune.traffic import Due

MS = 1_000_000
SHARES = tuple(
    tuple(
        Due(
            index=index,
            due_s=0.01 * index,
            request=Request(offset_s=0.0, prompt_tokens=7, output_tokens=3),
            measured=index > 0,
        )
        for index in numbers
    )
    for numbers in ((0, 2, 4), (1, 3))
)
JOB = Job(
    url="http://127.0.0.1:1",
    key="",
    model="m",
    vocabulary=100,
    block_tokens=None,
    seed=0,
    salt="",
    cache_salt="",
    due=SHARES[0] + SHARES[1],
    sla=Sla.parse(["ttft_p90=100ms", "itl_p90=20ms"]),
    allowed=(1, 1),
    run_to_end=False,
    drain_s=1.0,
)
DONE = Done(
    loop_lags_s=[0.001, 0.003], send_lags_s=[0.0, 0.002], cpu_s=1.0, waited_s=0.5, wall_s=10.0, reconnects=1
)


def body(*at_ms: int, finish: bool = True) -> list[tuple[int, bytes]]:
    """A token at each of these times, and the engine's own count of the prompt."""
    pieces = []
    for at in at_ms:
        reason = "length" if finish and at == at_ms[-1] else None
        event = {"choices": [{"text": "x", "token_ids": [5], "finish_reason": reason}]}
        pieces.append((at * MS, f"data: {json.dumps(event)}\n\n".encode()))
    if finish:
        pieces.append(
            (at_ms[-1] * MS, b'data: {"choices":[],"usage":{"prompt_tokens":8}}\n\ndata: [DONE]\n\n')
        )
    return pieces


def ended(
    position: int,
    due_ms: int,
    pieces: list[tuple[int, bytes]],
    *,
    cut: bool = False,
    status: int | None = 200,
    error: str | None = None,
) -> Ended:
    last = pieces[-1][0] if pieces else (due_ms + 300) * MS
    return Ended(position, due_ms * MS, due_ms * MS + 5, last, status, error, cut, pieces)


def test_answers_become_timings_in_order_of_their_due_times() -> None:
    merged = Merged(JOB, SHARES)
    merged.take(0, ended(0, 0, body(50, 60, 70)))  # lead-in
    merged.take(0, ended(2, 40, body(90, 100, 110)))
    merged.take(1, ended(1, 30, body(80, 90, 100)))
    merged.take(0, DONE)
    waiting = merged.whole
    merged.take(1, replace_waited(DONE, None))
    assert (waiting, merged.whole) == (False, True)
    merged.close(curtailed=False)
    replayed = merged.replayed(curtailed=False)
    assert [timing.index for timing in replayed.timings] == [3, 4]
    first = replayed.timings[0]
    assert (first.due_ns, first.sent_ns, first.ended_ns) == (30 * MS, 30 * MS + 5, 100 * MS)
    assert first.token_ns == (80 * MS, 90 * MS, 100 * MS)
    assert (first.prompt_tokens, first.seen_prompt_tokens, first.finished) == (7, 8, True)
    client = replayed.client
    assert (client.workers, client.reconnects, client.cpu_s) == (2, 2, 2.0)
    assert (client.cpu_share, client.waited_share) == (0.1, 0.05)
    assert (client.send_lag_p99_s, client.loop_lag_p99_s) == (0.002, 0.003)


def replace_waited(done: Done, waited_s: float | None) -> Done:
    return Done(done.loop_lags_s, done.send_lags_s, done.cpu_s, waited_s, done.wall_s, done.reconnects)


def test_a_window_is_decided_by_the_sum_over_its_workers() -> None:
    merged = Merged(JOB, SHARES)
    merged.take(0, ended(1, 0, body(150, 160, 170)))  # a first token after 150 ms
    assert merged.bad() == [1, 0]
    assert not merged.decided()
    merged.take(1, ended(0, 0, body(101, 110, 120)))
    assert merged.bad() == [2, 0]
    assert merged.decided()
    assert merged.progress() == Progress(sent=2, finished=2, bad=2, allowed=1)
    assert not Merged(replace(JOB, run_to_end=True), SHARES).decided()


def test_a_lead_in_is_neither_counted_nor_judged() -> None:
    merged = Merged(JOB, SHARES)
    merged.take(0, ended(0, 0, body(500, 900, 950)))
    merged.take(0, Tick(900 * MS, [Running(0, 0, 0, 0, 0)]))
    assert merged.progress() == Progress(sent=0, finished=0, bad=0, allowed=1)


def test_a_request_under_way_is_bad_once_nothing_can_make_it_good() -> None:
    merged = Merged(JOB, SHARES)
    merged.take(0, Tick(100 * MS, [Running(1, 0, 5, 0, 0)]))
    assert merged.bad() == [0, 0]
    merged.take(0, Tick(101 * MS, [Running(1, 0, 5, 0, 0)]))
    assert merged.bad() == [1, 0]
    merged.take(0, Tick(200 * MS, [Running(1, 0, 5, 60 * MS, 190 * MS)]))
    assert merged.bad() == [0, 0]  # it streams: its gaps are judged when they have been read
    merged.take(0, Tick(211 * MS, [Running(1, 0, 5, 60 * MS, 190 * MS)]))
    assert merged.bad() == [0, 1]  # and silent for 21 ms
    merged.take(0, ended(1, 0, body(60, 125, 190)))
    assert merged.bad() == [0, 2]


def test_what_was_cut_off_is_judged_by_why() -> None:
    def cut(pieces: list[tuple[int, bytes]], *, curtailed: bool) -> tuple[str | None, bool]:
        merged = Merged(JOB, SHARES)
        merged.take(0, ended(1, 0, pieces, cut=True))
        merged.close(curtailed=curtailed)
        (timing,) = merged.timings()
        assert not timing.finished
        return timing.error, timing.cancelled

    assert cut([], curtailed=True) == ("cancelled", True)
    assert cut(body(50, finish=False), curtailed=True) == ("cancelled", True)
    assert cut([], curtailed=False) == ("timed out", False)
    assert cut(body(50, finish=False), curtailed=False) == ("still running when the window closed", True)


def test_a_refusal_is_told_with_its_status_and_words() -> None:
    merged = Merged(JOB, SHARES)
    merged.take(0, ended(1, 0, [(9 * MS, b"No"), (9 * MS, b" room")], status=503))
    merged.take(0, ended(2, 0, [], status=None, error="no connection: Connection refused"))
    assert [timing.error for timing in merged.timings()] == [
        "HTTP 503: No room",
        "no connection: Connection refused",
    ]


def test_a_natural_stop_may_be_shorter_than_recorded() -> None:
    merged = Merged(replace(JOB, natural_stops=True), SHARES)
    merged.take(0, ended(1, 0, body(50, 60)))
    (timing,) = merged.timings()
    assert timing.finished
    assert len(timing.token_ns) == 2


def test_frames_come_through_a_pipe_however_it_cuts_them() -> None:
    sent: list[Frame] = [
        Alive(),
        Ready(),
        Tick(5, [Running(1, 2, 3, 4, 5)]),
        ended(0, 1, body(2, 3, 4)),
        DONE,
    ]
    data = b"".join(map(packed, sent))
    for size in (1, 7, 64, len(data)):
        frames = Frames()
        got = [one for at in range(0, len(data), size) for one in frames.feed(data[at : at + size])]
        assert got == sent
