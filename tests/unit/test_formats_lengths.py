"""Recordings of lengths: every value that a trace gives, worked out by hand from the samples."""

from __future__ import annotations

from pathlib import Path

import format_samples as samples
import pytest

from autotune.domain.workload import Request, Workload
from autotune.errors import InputError
from autotune.formats.workloads import gather, open_recording, read_workload

SHIPPED = Path(__file__).parents[2] / "workloads"


def read(folder: Path, text: str) -> Workload:
    path = folder / "trace"
    path.write_text(text, encoding="utf-8")
    return read_workload(path)


# -- Azure ----------------------------------------------------------------------------------------


def test_an_azure_trace_is_read_with_its_seven_digits(tmp_path: Path) -> None:
    first, second, third = read(tmp_path, samples.AZURE.text).requests
    assert first == Request(offset_s=0.0, prompt_tokens=374, output_tokens=44)
    assert (second.prompt_tokens, second.output_tokens) == (396, 109)
    assert second.offset_s == pytest.approx(50.995169 - 46.68059, abs=1e-6)
    assert third.offset_s == pytest.approx(51.222467 - 46.68059, abs=1e-6)


def test_a_zone_counts_and_none_is_utc(tmp_path: Path) -> None:
    rows = "2024-05-10 00:00:00.25+00:00,1,2\n2024-05-10 02:00:01.75+02:00,3,4\n2024-05-10 00:00:02,5,6\n"
    requests = read(tmp_path, samples.AZURE_HEAD + rows).requests
    assert [one.offset_s for one in requests] == [0, 1.5, 1.75]


def test_columns_are_found_by_name_and_others_are_left_alone(tmp_path: Path) -> None:
    text = (
        "Kind,GeneratedTokens,TIMESTAMP,ContextTokens\n"
        'chat, "44" ,2023-11-16 18:15:46, 374\ncode,109,2023-11-16 18:15:50.5,396\n'
    )
    assert read(tmp_path, text.replace(' "44" ', '"44"')).requests == (
        Request(offset_s=0.0, prompt_tokens=374, output_tokens=44),
        Request(offset_s=4.5, prompt_tokens=396, output_tokens=109),
    )


def test_the_shipped_traces_are_read_whole() -> None:
    workload = read_workload(SHIPPED / "azure-conv-20min.csv")
    lines = (SHIPPED / "azure-conv-20min.csv").read_text().split()  # a stamp holds one blank
    assert len(workload.requests) == (len(lines) - 1) / 2
    assert workload.requests[0] == Request(offset_s=0.0, prompt_tokens=374, output_tokens=44)
    assert 19 * 60 < workload.duration_s <= 20 * 60
    assert len(read_workload(SHIPPED / "azure-conv-cpu.csv").requests) == 385


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("2023-11-16 18:15:46.68,374\n", ":2: 2 cells where the header has 3"),
        ("2023-11-16 18:15:46.68,374,44,1\n", ":2: 4 cells where the header has 3"),
        ("yesterday,374,44\n", ":2: TIMESTAMP is 'yesterday'"),
        ("2023-11-16 18:15:46.abc,374,44\n", ":2: TIMESTAMP is '2023-11-16 18:15:46.abc'"),
        ("2023-02-30 18:15:46,374,44\n", ":2: TIMESTAMP is '2023-02-30 18:15:46'"),
        ("1969-12-31 23:59:59,374,44\n", ":2: the time -1 s is negative"),
        ("2023-11-16 18:15:46.68,many,44\n", ":2: ContextTokens is 'many', not a whole number"),
        ("2023-11-16 18:15:46.68,374,4.5\n", ":2: GeneratedTokens is '4.5', not a whole number"),
        ("2023-11-16 18:15:46.68,374,\n", ":2: GeneratedTokens is '', not a whole number"),
        ("2023-11-16 18:15:46.68,374,0\n", ":2: 374 prompt and 0 output tokens"),
        ("2023-11-16 18:15:46.68,-1,44\n", ":2: -1 prompt and 44 output tokens"),
        (
            "2023-11-16 18:15:46.68,374," + "4" * 100 + "\n",
            ":2: 374 prompt and more than 10^12 output tokens",
        ),
        ("2023-11-16 18:15:46.68,374," + "4" * 5000 + "\n", ":2: GeneratedTokens is '4444"),
        ("2023-11-16 18:15:46.68,37\r4,44\n", ":2: new-line character seen in unquoted field"),
        ("2023-11-16 18:15:46.68," + "3" * 200_000 + ",44\n", ":2: field larger than field limit"),
    ],
)
def test_a_bad_row_is_refused_with_its_place(tmp_path: Path, rows: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, samples.AZURE_HEAD + rows)
    assert caught.value.message.startswith(f"{tmp_path / 'trace'}{message}")
    assert caught.value.hint


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, "TIMESTAMP,ContextTokens\n")
    assert caught.value.message.endswith(":1: no column GeneratedTokens, only 'TIMESTAMP, ContextTokens'")


# -- Mooncake -------------------------------------------------------------------------------------


def test_a_mooncake_trace_has_blocks_of_512_and_stamps_in_ms(tmp_path: Path) -> None:
    workload = read(tmp_path, samples.MOONCAKE.text)
    assert workload.block_tokens == 512
    assert workload.requests == (
        Request(offset_s=0.0, prompt_tokens=1025, output_tokens=52, blocks=(46, 47, 48)),
        Request(offset_s=0.0, prompt_tokens=672, output_tokens=26, blocks=(46, 49)),
        Request(offset_s=pytest.approx(3.001), prompt_tokens=512, output_tokens=3, blocks=(46,)),  # type: ignore[arg-type]
    )


def test_the_size_of_blocks_follows_from_lengths_and_ids(tmp_path: Path) -> None:
    # 40 tokens in 3 blocks: 16 fits (48), 32 would take 2 and 512 one
    rows = (
        samples.row(timestamp=0, input_length=40, output_length=1, hash_ids=[1, 2, 3]),
        samples.row(timestamp=1, input_length=16, output_length=1, hash_ids=[1]),
    )
    assert read(tmp_path, "\n".join(rows)).block_tokens == 16
    no_ids = (samples.row(timestamp=at, input_length=40, output_length=1) for at in (0, 1))
    assert read(tmp_path, "\n".join(no_ids)).block_tokens is None


def test_a_session_of_new_tokens_grows_by_what_was_said_before(tmp_path: Path) -> None:
    rows = (
        samples.row(timestamp=100, session_id="s", input_length=1100, output_length=40, hash_ids=[1, 2, 3]),
        samples.row(timestamp=400, input_length=30, output_length=5),
        samples.row(session_id="s", delay=2500, input_length=150, output_length=20, hash_ids=[9]),
    )
    first, other, second = read(tmp_path, "\n".join(rows)).requests
    assert (first.session, first.offset_s, first.prompt_tokens) == ("s", 0.0, 1100)
    assert other.session is None
    # 1,100 + 40 + 150 tokens, two full blocks of 512 in the first 1,100; put where the row before it stands
    assert second == Request(
        offset_s=pytest.approx(0.3),  # type: ignore[arg-type]
        prompt_tokens=1290,
        output_tokens=20,
        blocks=(1, 2),
        session="s",
        think_s=2.5,
    )


def test_a_session_of_whole_prompts_keeps_them(tmp_path: Path) -> None:
    mode = "message_array_with_responses"
    rows = (
        samples.row(timestamp=0, session_id=7, input_length=600, output_length=9, hash_ids=[1, 2]),
        samples.row(
            timestamp=9, session_id=7, input_length=700, output_length=9, hash_ids=[1, 3], context_mode=mode
        ),
    )
    second = read(tmp_path, "\n".join(rows)).requests[1]
    assert (second.session, second.prompt_tokens, second.blocks) == ("7", 700, (1, 3))


def test_lengths_without_stamps_are_no_arrivals(tmp_path: Path) -> None:
    text = "\n".join(samples.row(input_length=10 + n, output_length=4) for n in range(2))
    workload = read(tmp_path, text)
    assert not workload.timed
    assert [one.prompt_tokens for one in workload.requests] == [10, 11]
    unknown = read(tmp_path, samples.row(input_length=10) + "\n" + samples.row(input_length=10))
    assert unknown.requests[0].output_tokens == 256


# -- Bailian --------------------------------------------------------------------------------------


def test_a_bailian_session_is_all_that_goes_back_to_one_root(tmp_path: Path) -> None:
    workload = read(tmp_path, samples.BAILIAN.text)
    assert workload.block_tokens == 16
    assert [one.session for one in workload.requests] == ["159", "160", "159", "159"]
    assert [one.offset_s for one in workload.requests] == [0, 0.25, 14, 19]
    assert {one.think_s for one in workload.requests} == {None}
    assert workload.requests[2].blocks == (1089, 1090, 6326)


def test_followers_of_a_chat_before_the_trace_are_one_session(tmp_path: Path) -> None:
    rows = [
        samples.row(chat_id=chat, parent_chat_id=5, timestamp=chat, input_length=1, output_length=1)
        for chat in (10, 11)
    ]
    assert [one.session for one in read(tmp_path, "\n".join(rows)).requests] == ["5", "5"]


# -- BurstGPT -------------------------------------------------------------------------------------


def test_burstgpt_leaves_failed_requests_out_and_counts_them(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(samples.BURSTGPT.text)
    opened = open_recording(path)
    workload = gather(opened)
    assert opened.source.failed == 1
    assert [(one.offset_s, one.prompt_tokens, one.output_tokens) for one in workload.requests] == [
        (0, 472, 18),
        (40, 1087, 230),
        (56, 600, 30),
        (57, 640, 31),
    ]


def test_burstgpt_thinks_from_the_end_of_the_answer_before(tmp_path: Path) -> None:
    first, alone, second, third = read(tmp_path, samples.BURSTGPT.text).requests
    assert (first.session, alone.session, second.session) == ("7f-a", None, "7f-a")
    assert (first.think_s, alone.think_s) == (None, None)
    assert second.think_s == 53.5  # 61 − (5 + 2.5)
    assert third.think_s is None  # 62 is before 61 + 1.5


def test_burstgpt_of_the_first_release_has_no_sessions(tmp_path: Path) -> None:
    text = (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n45.5,GPT-4,1087,230,1317,API log\n"
    )
    assert read(tmp_path, text).requests == (
        Request(offset_s=0.0, prompt_tokens=472, output_tokens=18),
        Request(offset_s=40.5, prompt_tokens=1087, output_tokens=230),
    )


# -- agentic sessions -----------------------------------------------------------------------------


def test_an_agentic_session_waits_for_its_answers_and_sub_agents_start_on_their_own(tmp_path: Path) -> None:
    workload = read(tmp_path, samples.WEKA.text)
    assert workload.block_tokens == 64
    assert [(one.offset_s, one.session, one.think_s) for one in workload.requests] == [
        (0.0, "trace_0001", None),
        (5.0, "trace_0001", 2.0),
        (8.5, "trace_0001/agent_001", None),
        (9.0, "trace_0001", None),  # the request before it has no service time
        (12.5, "trace_0001/agent_001", 3.0),
    ]
    assert [(one.prompt_tokens, one.output_tokens, one.blocks) for one in workload.requests] == [
        (130, 20, (1, 2)),
        (200, 30, (1, 2, 3)),
        (64, 5, (9,)),
        (260, 40, (1, 2, 3, 4)),
        (70, 6, (9,)),
    ]


def test_a_sub_agent_may_count_from_the_start_of_the_session(tmp_path: Path) -> None:
    text = samples.WEKA.text.replace('{"t": 0.0, "type": "n", "in": 64', '{"t": 8.75, "type": "n", "in": 64')
    text = text.replace('{"t": 4.0, "type": "n", "in": 70', '{"t": 10.0, "type": "n", "in": 70')
    requests = [one for one in read(tmp_path, text).requests if one.session == "trace_0001/agent_001"]
    assert [one.offset_s for one in requests] == [8.75, 10.0]


def test_a_bad_request_of_a_sub_agent_is_named_by_its_own_line(tmp_path: Path) -> None:
    text = samples.WEKA.text.replace('"in": 70, "out": 6', '"in": 70, "out": 0')
    with pytest.raises(InputError) as caught:
        read(tmp_path, text)
    assert caught.value.message.startswith(f"{tmp_path / 'trace'}:7: 70 prompt and 0 output tokens")


def test_a_left_out_request_leaves_no_think_time_behind(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(samples.WEKA.text.replace('"in": 130, "out": 20', '"in": 130, "out": 0'))
    opened = open_recording(path, skip_bad=1)
    requests = gather(opened).requests
    assert [one.think_s for one in requests if one.session == "trace_0001"] == [None, None]
    assert requests[0].offset_s == 0
