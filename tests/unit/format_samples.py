"""A small file of each workload format, made by hand in its producer's layout, and bad rows for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """`text` is a good file of three requests or more; `bad` are rows that may be left out after it.

    `unreadable` are whole files with the line at fault.
    """

    text: str
    bad: Mapping[str, str] = field(default_factory=dict)
    unreadable: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    def broken(self) -> dict[str, tuple[str, int]]:
        """The good file with each bad row behind it, and the line of that row."""
        line = self.text.count("\n") + 1
        return {name: (f"{self.text}{row}\n", line) for name, row in self.bad.items()}


def row(**fields: object) -> str:
    """A line of JSON."""
    return json.dumps(fields)


NEST = "[" * 100_000
HUGE = "1" + "0" * 400

AZURE_HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
AZURE = Sample(
    text=AZURE_HEAD
    + (
        "2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.9951690,396,109\n"
        "2023-11-16 18:15:51.2224670,879,55\n"
    ),
    bad={
        "number": "2023-11-16 18:15:52.0,many,5",
        "float": "2023-11-16 18:15:52.0,5,4.5",
        "zero": "2023-11-16 18:15:52.0,5,0",
        "negative": "2023-11-16 18:15:52.0,-5,5",
        "huge": f"2023-11-16 18:15:52.0,{HUGE},5",
        "nan": "2023-11-16 18:15:52.0,nan,5",
        "stamp": "yesterday,5,5",
        "no such day": "2023-02-30 18:15:46.0,5,5",
        "far": "0001-01-01 00:00:00+14:00,5,5",
        "backwards": "2023-11-16 18:15:50.0,5,5",
        "cut": "2023-11-16 18:15:52.0,5",
        "json": row(offset_s=1, prompt_tokens=1, output_tokens=1),
    },
    unreadable={
        "wrong column": ("TIMESTAMP,ContextTokens,Answer\n2023-11-16 18:15:46.6,374,44\n", 1),
        "twice": ("TIMESTAMP,ContextTokens,GeneratedTokens,ContextTokens\n", 1),
    },
)

NATIVE_1 = Sample(
    text=(
        '{"offset_s": 0.0, "prompt_tokens": 374, "output_tokens": 44}\n'
        '{"offset_s": 4.3, "prompt_tokens": 396, "output_tokens": 109}\n'
        '{"offset_s": 4.5, "prompt_tokens": 879, "output_tokens": 55}\n'
    ),
    bad={
        "json": '{"offset_s": 5',
        "key": row(offset_s=5, prompt_tokens=1),
        "text": row(offset_s="5", prompt_tokens=1, output_tokens=1),
        "zero": row(offset_s=5, prompt_tokens=0, output_tokens=1),
        "float": row(offset_s=5, prompt_tokens=1.5, output_tokens=1),
        "nan": row(offset_s=float("nan"), prompt_tokens=1, output_tokens=1),
        "huge": f'{{"offset_s": 5, "prompt_tokens": {HUGE}, "output_tokens": 1}}',
        "far": row(offset_s=1e308, prompt_tokens=1, output_tokens=1),
        "negative": row(offset_s=-1, prompt_tokens=1, output_tokens=1),
        "backwards": row(offset_s=1, prompt_tokens=1, output_tokens=1),
        "nested": '{"offset_s": 5, "prompt_tokens": 1, "output_tokens": 1, "x": ' + NEST,
        "csv": "2023-11-16 18:15:52.0,5,5",
        "array": "[]",
        "blocks of no size": row(offset_s=5, prompt_tokens=1, output_tokens=1, blocks=[1]),
    },
)

NATIVE_2 = Sample(
    text=(
        '{"autotune_workload": 2, "block_tokens": 16, "timed": true, "counted": true, "text": true, '
        '"order": "end", "recorded_at": "2026-01-02T03:04:05Z", "salt": "not ours"}\n'
        '{"offset_s": 1.5, "prompt_tokens": 40, "output_tokens": 7, "blocks": [11, 12], "session": "a"}\n'
        '{"offset_s": 9.0, "failed": "503"}\n'
        '{"offset_s": 1.0, "prompt_tokens": 20, "output_tokens": 300, "blocks": [11], '
        '"path": "/v1/completions", "model": "m", "params": {"temperature": 0}, '
        '"body": {"prompt": "hello", "n": 1}}\n'
        '{"offset_s": 4.0, "prompt_tokens": 55, "output_tokens": 9, "blocks": [11, 12, -3], "session": "a", '
        '"think_s": 0.5}\n'
    ),
    bad={
        "json": '{"offset_s": 5',
        "think": row(offset_s=5, prompt_tokens=1, output_tokens=1, think_s=-1),
        "block": row(offset_s=5, prompt_tokens=1, output_tokens=1, blocks=[2**64]),
        "block text": row(offset_s=5, prompt_tokens=1, output_tokens=1, blocks=["a"]),
        "body": row(offset_s=5, prompt_tokens=1, output_tokens=1, body={"text": "hello"}),
        "body text": row(offset_s=5, prompt_tokens=1, output_tokens=1, body="hello"),
        "body nested": '{"offset_s": 5, "prompt_tokens": 1, "output_tokens": 1, "body": {"prompt": '
        + NEST
        + "]" * 100_000
        + "}}",
    },
    unreadable={
        "version": ('{"autotune_workload": 3}\n', 1),
        "order": ('{"autotune_workload": 2, "order": "none"}\n', 1),
        "block": ('{"autotune_workload": 2, "block_tokens": 0}\n', 1),
    },
)

MOONCAKE = Sample(
    text=(
        '{"timestamp": 27000, "input_length": 1025, "output_length": 52, "hash_ids": [46, 47, 48]}\n'
        '{"timestamp": 27000, "input_length": 672, "output_length": 26, "hash_ids": [46, 49]}\n'
        '{"timestamp": 30001, "input_length": 512, "output_length": 3, "hash_ids": [46]}\n'
    ),
    bad={
        "zero": row(timestamp=30002, input_length=655, output_length=0, hash_ids=[46, 47]),
        "blocks": row(timestamp=30002, input_length=512, output_length=1, hash_ids=[46, 47]),
        "key": row(timestamp=30002, output_length=1),
        "text": row(timestamp="30002", input_length=655, output_length=1),
        "negative": row(timestamp=-1, input_length=655, output_length=1),
        "backwards": row(timestamp=30000, input_length=655, output_length=1),
        "far": row(timestamp=1e308, input_length=655, output_length=1),
        "no stamp": row(input_length=655, output_length=1),
        "nan": row(timestamp=float("nan"), input_length=655, output_length=1),
        "block": f'{{"timestamp": 30002, "input_length": 5, "output_length": 1, "hash_ids": [{HUGE}]}}',
        "nested": '{"timestamp": 30002, "input_length": 5, "output_length": 1, "hash_ids": ' + NEST,
        "mixed": "2023-11-16 18:15:52.0,5,5",
    },
)

BAILIAN = Sample(
    text=(
        '{"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.25, "input_length": 33, "output_length": 132,'
        ' "type": "text", "turn": 1, "hash_ids": [1089, 1090, 1091]}\n'
        '{"chat_id": 160, "parent_chat_id": -1, "timestamp": 61.5, "input_length": 16, "output_length": 5, '
        '"type": "search", "turn": 1, "hash_ids": [7]}\n'
        '{"chat_id": 171, "parent_chat_id": 159, "timestamp": 75.25, "input_length": 200, "output_length": 80'
        ', "type": "text", "turn": 2, "hash_ids": [1089, 1090, 6326]}\n'
        '{"chat_id": 172, "parent_chat_id": 171, "timestamp": 80.25, "input_length": 300, "output_length": 8,'
        ' "type": "text", "turn": 3, "hash_ids": [1089, 1090, 6326, 6327]}\n'
    ),
    bad={
        "twice": row(chat_id=160, parent_chat_id=-1, timestamp=90, input_length=16, output_length=5),
        "zero": row(chat_id=180, parent_chat_id=-1, timestamp=90, input_length=16, output_length=0),
        "blocks": row(chat_id=180, timestamp=90, input_length=16, output_length=1, hash_ids=[1, 2]),
        "backwards": row(chat_id=180, timestamp=60, input_length=16, output_length=1),
        "parent": row(chat_id=180, parent_chat_id="a", timestamp=90, input_length=1, output_length=1),
    },
)

BURSTGPT_HEAD = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
)
BURSTGPT = Sample(
    text=BURSTGPT_HEAD
    + (
        "5,7f-a,2.5,ChatGPT,472,18,490,Conversation log\n"
        "45,,3,GPT-4,1087,230,1317,API log\n"
        "61,7f-a,1.5,ChatGPT,600,30,630,Conversation log\n"
        "62,7f-a,9,ChatGPT,600,0,600,Conversation log\n"
        "62,7f-a,9,ChatGPT,640,31,671,Conversation log\n"
    ),
    bad={
        "number": "70,,1,GPT-4,many,230,1317,API log",
        "stamp": "noon,,1,GPT-4,10,230,1317,API log",
        "nan": "nan,,1,GPT-4,10,230,240,API log",
        "far": "1e308,,1,GPT-4,10,230,240,API log",
        "infinite": "inf,,1,GPT-4,10,230,240,API log",
        "backwards": "61,,1,GPT-4,10,230,240,API log",
        "negative": "70,,1,GPT-4,10,-1,9,API log",
        "empty": "70,,1,GPT-4,0,10,10,API log",
        "elapsed": "70,b,long,GPT-4,10,230,240,API log",
        "cut": "70,,1,GPT-4,10",
    },
    unreadable={"wrong column": ("Timestamp,Model,Request tokens,Answer tokens\n5,GPT-4,1,2\n", 1)},
)

WEKA_ROWS = (
    (
        '    {"t": 0.0, "type": "n", "in": 130, "out": 20, "hash_ids": [1, 2], "stop": "tool_use", '
        '"api_time": 3.0, "think_time": 0.0}'
    ),
    '    {"t": 5.0, "type": "s", "in": 200, "out": 30, "hash_ids": [1, 2, 3], "think_time": 2.0}',
    (
        '    {"t": 8.5, "type": "subagent", "agent_id": "agent_001", "status": "completed", "requests": [\n'
        '      {"t": 0.0, "type": "n", "in": 64, "out": 5, "hash_ids": [9], "api_time": 1},\n'
        '      {"t": 4.0, "type": "n", "in": 70, "out": 6, "hash_ids": [9], "api_time": 1, "think_time": 3}\n'
        "    ]}"
    ),
    (
        '    {"t": 9.0, "type": "s", "in": 260, "out": 40, "hash_ids": [1, 2, 3, 4], "api_time": 2.0, '
        '"think_time": 4.0}'
    ),
)


def weka(*rows: str) -> str:
    """A session of these requests."""
    return (
        '{"id": "trace_0001", "models": ["m"], "block_size": 64, "hash_id_scope": "local",\n'
        '  "tool_tokens": 100, "system_tokens": 10, "requests": [\n'
        + ",\n".join(rows)
        + '\n  ], "totals": {"parent_tokens": {"input": 590}}}\n'
    )


WEKA = Sample(
    text=weka(*WEKA_ROWS),
    unreadable={
        "cut": (weka(*WEKA_ROWS)[:-60], 9),
        "nested": ('{"id": "a", "block_size": 64, "requests": ' + NEST, 1),
        "scope": (weka(*WEKA_ROWS).replace('"local"', '"global"'), 1),
        "size": (weka(*WEKA_ROWS).replace('"block_size": 64', '"block_size": 0'), 1),
    },
)
WEKA_BAD = {
    "zero": '    {"t": 9.5, "type": "n", "in": 1, "out": 0}',
    "no time": '    {"type": "n", "in": 1, "out": 1}',
    "backwards": '    {"t": 8.0, "type": "n", "in": 1, "out": 1}',
    "agent twice": '    {"t": 9.5, "type": "subagent", "agent_id": "agent_001", "requests": []}',
    "no agent": '    {"t": 9.5, "type": "subagent", "requests": []}',
    "blocks": '    {"t": 9.5, "type": "n", "in": 64, "out": 1, "hash_ids": [1, 2]}',
    "think": '    {"t": 9.5, "type": "n", "in": 64, "out": 1, "think_time": -1}',
}

SHAREGPT_ROWS = (
    (
        '  {"id": "one", "conversations": [\n'
        '    {"from": "system", "value": "Be kind."},\n'
        '    {"from": "human", "value": "Who are you?"},\n'
        '    {"from": "gpt", "value": "A model."},\n'
        '    {"from": "human", "value": "Bye"},\n'
        '    {"from": "gpt", "value": "See you!!"}\n'
        "  ]}"
    ),
    (
        '  {"id": "two", "conversations": [{"from": "gpt", "value": "lost"},\n'
        '   {"from": "human", "value": "äöü"}, {"from": "gpt", "value": ""}, {"from": "user", "value": "?"}]}'
    ),
    '  {"id": "none", "conversations": []}',
)


def sharegpt(*rows: str) -> str:
    """A file of these conversations."""
    return "[\n" + ",\n".join(rows) + "\n]\n"


SHAREGPT = Sample(
    text=sharegpt(*SHAREGPT_ROWS),
    unreadable={
        "cut": (sharegpt(*SHAREGPT_ROWS)[:-4], 11),
        "nested": ('[{"conversations": ' + NEST, 1),
    },
)
SHAREGPT_BAD = {
    "twice": '  {"id": "two", "conversations": []}',
    "speaker": '  {"id": "three", "conversations": [{"from": "parrot", "value": "a"}]}',
    "text": '  {"id": "three", "conversations": [{"from": "human", "value": 5}]}',
    "number": "  5",
}

MTBENCH = Sample(
    text=(
        '{"question_id": 81, "category": "writing", "turns": ["Write a story now", "Rewrite it"]}\n'
        '{"question_id": 82, "category": "math", "turns": ["Add"], "reference": ["2"]}\n'
    ),
    bad={
        "twice": row(question_id=81, turns=["again"]),
        "none": row(question_id=83, turns=[]),
        "text": row(question_id=83, turns=[5]),
        "no id": row(turns=["a"]),
    },
)

VLLM_CUSTOM = Sample(
    text=(
        '{"prompt": "What is the capital of India?", "output_tokens": 10}\n'
        '{"prompt": "What is the capital of Iran?", "output_tokens": 1520}\n'
        '{"prompt": "Hi"}\n'
    ),
    bad={
        "zero": row(prompt="a", output_tokens=0),
        "float": row(prompt="a", output_tokens=1.5),
        "list": row(prompt=["a"]),
        "none": row(output_tokens=5),
    },
)

GUIDELLM = Sample(
    text=(
        '{"prompt": "Describe a lake", "prompt_tokens_count": 4, "output_tokens_count": 20, '
        '"relative_timestamp": 0.5}\n'
        '{"prompt": "Describe a sea", "prompt_tokens_count": 5, "output_tokens_count": 30, '
        '"relative_timestamp": 1.5, "system_prompt": "Be brief."}\n'
        '{"prompt": "Describe", "prompt_tokens_count": 6, "output_tokens_count": 40, '
        '"relative_timestamp": 3}\n'
    ),
    bad={
        "zero": row(prompt="a", prompt_tokens_count=4, output_tokens_count=0, relative_timestamp=4),
        "count": row(prompt="a", prompt_tokens_count=4.5, output_tokens_count=1, relative_timestamp=4),
        "true": row(prompt="a", prompt_tokens_count=True, output_tokens_count=1, relative_timestamp=4),
        "no count": row(prompt="a", output_tokens_count=1, relative_timestamp=4),
        "no stamp": row(prompt="a", prompt_tokens_count=4, output_tokens_count=1),
        "text": row(prompt=5, prompt_tokens_count=4, output_tokens_count=1, relative_timestamp=4),
        "no prompt": row(prompt_tokens_count=4, output_tokens_count=1, relative_timestamp=4),
        "backwards": row(prompt="a", prompt_tokens_count=4, output_tokens_count=1, relative_timestamp=1),
        "array": "[]",
    },
)

AIPERF = Sample(
    text=(
        '{"timestamp": 500, "session_id": "s", "text_input": "Hello there", "output_length": 4}\n'
        '{"timestamp": 750, "payload": {"prompt": "Hello", "max_tokens": 50}}\n'
        '{"session_id": "s", "delay": 2000, "text_input": "More", "output_length": 6}\n'
        '{"timestamp": 1500, "messages": [{"role": "user", "content": "Weather?"}], "output_length": 9, '
        '"tools": [{"type": "function"}], "extra": {"temperature": 0.5}}\n'
    ),
    bad={
        "zero": row(timestamp=2000, text_input="a", output_length=0),
        "two": row(timestamp=2000, text_input="a", messages=[{"role": "user", "content": "a"}]),
        "none": row(timestamp=2000, output_length=5),
        "no stamp": row(text_input="a"),
        "backwards": row(timestamp=1000, text_input="a"),
        "delay": row(session_id="s", delay=-1, text_input="a"),
        "payload": row(timestamp=2000, payload={}),
        "asked": row(timestamp=2000, payload={"prompt": "a", "max_tokens": "many"}),
        "turns": row(session_id="t", turns=[]),
    },
)

OPENAI_LOG = Sample(
    text=(
        '{"timestamp": "2026-01-02T03:04:05.1234567Z", "id": "a", "usage": {"prompt_tokens": 12, '
        '"completion_tokens": 8, "total_tokens": 20}, "body": {"model": "m", "messages": '
        '[{"role": "user", "content": "Hello"}]}}\n'
        '{"timestamp": "2026-01-02T04:04:06.5+01:00", "id": "b", "prompt_tokens": 3, "output_tokens": 5, '
        '"session": "s", "body": {"prompt": "Hi"}}\n'
        '{"timestamp": 1767323047.5, "id": "c", "status": 503, "body": {"prompt": "Hi"}}\n'
        '{"timestamp": 1767323047.5, "id": "d", "usage": {"input_tokens": 4, "output_tokens": 6}, '
        '"body": {"input": "Hi"}}\n'
    ),
    bad={
        "twice": '{"timestamp": 1767323049, "id": "d", "prompt_tokens": 4, "output_tokens": 6, '
        '"body": {"input": "Hi"}}',
        "no usage": row(timestamp=1767323049, id="e", body={"input": "Hi"}),
        "no body": row(timestamp=1767323049, id="e", prompt_tokens=4, output_tokens=6),
        "null": row(timestamp=1767323049, prompt_tokens=4, output_tokens=6, body=None),
        "no prompt": row(timestamp=1767323049, prompt_tokens=4, output_tokens=6, body={}),
        "no stamp": row(id="e", prompt_tokens=4, output_tokens=6, body={"input": "Hi"}),
        "ms": row(timestamp=1767323049000, prompt_tokens=4, output_tokens=6, body={"input": "Hi"}),
        "zone": '{"timestamp": "2026-01-02T04:04:06+99:99", "prompt_tokens": 4, "output_tokens": 6, '
        '"body": {"input": "Hi"}}',
    },
)

SAMPLES: Mapping[str, Sample] = {
    "azure": AZURE,
    "native 1": NATIVE_1,
    "native 2": NATIVE_2,
    "mooncake": MOONCAKE,
    "bailian": BAILIAN,
    "burstgpt": BURSTGPT,
    "weka": WEKA,
    "sharegpt": SHAREGPT,
    "mtbench": MTBENCH,
    "vllm_custom": VLLM_CUSTOM,
    "guidellm": GUIDELLM,
    "aiperf": AIPERF,
    "openai_log": OPENAI_LOG,
}
