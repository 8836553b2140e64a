"""Logs of gateways honour the contract of formats."""

from __future__ import annotations

import json

from autotune.formats import langfuse, litellm
from autotune.testing.contracts import FormatContract


def lite(second: float, **changes: object) -> str:
    stamp = f"2026-03-01T10:00:{second:06.3f}Z"
    row = {"request_id": f"r{second}", "call_type": "acompletion", "startTime": stamp, "endTime": stamp}
    counts = {"prompt_tokens": 30, "completion_tokens": 4, "session_id": "a", "messages": {}}
    return json.dumps(row | counts | changes) + "\n"


def fuse(second: float, **changes: object) -> str:
    stamp = f"2026-03-01 10:00:{second:09.6f}"
    row = {"id": f"o{second}", "trace_id": "t", "type": "GENERATION", "start_time": stamp, "end_time": stamp}
    return json.dumps(row | {"session_id": "a", "usage_details": {"input": 20, "output": 3}} | changes) + "\n"


LITELLM = lite(1) + lite(2.5) + lite(4)
LANGFUSE = fuse(1) + fuse(2.5) + fuse(4)


class TestLiteLlm(FormatContract):
    format = litellm
    example = LITELLM
    broken = {
        "stamp": (LITELLM + lite(5, startTime="soon"), 4),
        "zero": (LITELLM + lite(5, completion_tokens=0), 4),
        "twice": (LITELLM + lite(1), 4),
        "cut": (LITELLM + '{"call_type"\n', 4),
    }


class TestLangfuse(FormatContract):
    format = langfuse
    example = LANGFUSE
    broken = {
        "stamp": (LANGFUSE + fuse(5, start_time="soon"), 4),
        "uncounted": (LANGFUSE + fuse(5, usage_details={}), 4),
        "twice": (LANGFUSE + fuse(1), 4),
        "cut": (LANGFUSE + '{"type"\n', 4),
    }
