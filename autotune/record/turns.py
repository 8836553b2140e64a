"""What was said, by whom, in one form for requests and answers of the three APIs.

A turn is bytes, so that an answer and the message in which a client sends it back are equal: role, text and
tool calls count, and what clients add or drop on the way (ids, empty fields, reasoning) does not.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from autotune.record.narrowed import as_map, as_maps, as_text

END = b"\x1e"
"""Behind every turn; `opening` and this stand for some five tokens of a chat template."""
_CALL = "\x1d"


def opening(role: str) -> bytes:
    """What stands before a turn's text; the role has a place of its own so that no text can pass for one."""
    return b"\x1c\x1c\x1c" + _bytes(role) + b"\n"


def turn(role: str, text: str) -> bytes:
    """One turn."""
    return opening(role) + _bytes(text) + END


def message(fields: dict[str, Any]) -> bytes:
    """A message of the chat API, as a client sends it or as an answer brings it."""
    calls = (as_map(one.get("function")) for one in as_maps(fields.get("tool_calls")))
    said = _CALL.join([content(fields.get("content")), *(_call(one) for one in calls)])
    return turn(as_text(fields.get("role")) or "assistant", said)


def item(fields: dict[str, Any]) -> bytes:
    """An item of the Responses API, of its input or its output; empty for reasoning."""
    kind = as_text(fields.get("type")) or "message"
    match kind:
        case "message":
            return turn(as_text(fields.get("role")) or "assistant", content(fields.get("content")))
        case "function_call":
            return turn("assistant", _CALL + _call(fields))
        case "function_call_output":
            return turn("tool", content(fields.get("output")))
        case "reasoning":
            return b""
        case _:
            return turn(kind, _digest({name: value for name, value in fields.items() if name != "id"}))


def content(value: Any) -> str:
    """The text of a message; what is no text (an image) by its digest."""
    if isinstance(value, list):
        return "".join(content(part) for part in value)
    if isinstance(value, dict):
        text = value.get("text")
        return text if isinstance(text, str) else _digest(value)
    return as_text(value)


def _call(function: dict[str, Any]) -> str:
    return as_text(function.get("name")) + as_text(function.get("arguments"))


def _digest(value: dict[str, Any]) -> str:
    return blake2b(msgspec.json.encode(value, order="sorted"), digest_size=16).hexdigest()


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")
