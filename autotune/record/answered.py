"""What an answer holds, streamed or whole, out of its body.

Source: OpenAI's API reference (chat completions, completions, responses and their streams), and
vllm/entrypoints/openai of 0.32 for `token_ids`, `prompt_token_ids` and `reasoning`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from autotune.record.narrowed import as_count, as_ids, as_map, as_maps, as_text
from autotune.record.turns import item, message

_RESPONSE_ENDS = ("response.completed", "response.incomplete", "response.failed")


@dataclass(slots=True, kw_only=True)
class Answered:
    """One answer. Token counts are None where it does not say; `events` counts streamed pieces with content.

    `turns` is what a client sends back of it, `text` all that was generated. `reasoned` tells that more was
    generated than is sent back. `finished` is True once the server gave a reason for its end.
    """

    prompt_tokens: int | None = None
    output_tokens: int | None = None
    prompt_ids: tuple[int, ...] | None = None
    output_ids: int = 0
    events: int = 0
    choices: int = 0
    text: str = ""
    turns: tuple[bytes, ...] = ()
    reasoned: bool = False
    finished: bool = False
    error: bool = False
    id: str | None = None


@dataclass(slots=True)
class _Parts:
    """What came of the first choice so far."""

    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: dict[int, dict[str, str]] = field(default_factory=dict)

    def add(self, fields: dict[str, Any]) -> bool:
        """True when there was content in it."""
        said = as_text(fields.get("content")) or as_text(fields.get("text"))
        thought = as_text(fields.get("reasoning_content")) or as_text(fields.get("reasoning"))
        self.content.append(said)
        self.reasoning.append(thought)
        called = False
        for place, one in enumerate(as_maps(fields.get("tool_calls"))):
            function = as_map(one.get("function"))
            call = self.calls.setdefault(as_count(one.get("index")) or place, {"name": "", "arguments": ""})
            for name in call:
                call[name] += as_text(function.get(name))
                called = called or bool(function.get(name))
        return bool(said or thought or called)

    def message(self) -> dict[str, Any]:
        """The message as a client would send it back."""
        calls = [{"function": self.calls[place]} for place in sorted(self.calls)]
        return {"role": "assistant", "content": "".join(self.content), "tool_calls": calls}

    def text(self) -> str:
        """All that was generated."""
        calls = (call["name"] + call["arguments"] for call in self.calls.values())
        return "".join([*self.reasoning, *self.content, *calls])


def read_answer(path: str, body: bytes) -> Answered:
    """The answer in `body`, as far as it came."""
    answered, parts = Answered(), _Parts()
    streamed = body.lstrip()[:1] not in (b"{", b"[", b"")
    for fields in _events(body) if streamed else _whole(body):
        if fields.get("error") not in (None, {}, ""):
            answered.error = True
        if path == "/v1/responses":
            _add_response(answered, fields, streamed=streamed)
        else:
            _add_choices(answered, parts, fields)
    if path != "/v1/responses":
        answered.text = parts.text()
        answered.reasoned = any(parts.reasoning)
        answered.turns = (message(parts.message()),) if path == "/v1/chat/completions" else ()
    if not streamed:
        answered.events = 0
    return answered


def _add_choices(answered: Answered, parts: _Parts, fields: dict[str, Any]) -> None:
    _add_usage(answered, fields.get("usage"), "prompt_tokens", "completion_tokens")
    answered.id = answered.id or as_text(fields.get("id")) or None
    answered.prompt_ids = answered.prompt_ids or as_ids(fields.get("prompt_token_ids"))
    for choice in as_maps(fields.get("choices")):
        place = as_count(choice.get("index")) or 0
        answered.choices = max(answered.choices, place + 1)
        answered.output_ids += len(as_ids(choice.get("token_ids")) or ())
        answered.prompt_ids = answered.prompt_ids or as_ids(choice.get("prompt_token_ids"))
        answered.finished = answered.finished or choice.get("finish_reason") is not None
        said = next((choice[name] for name in ("delta", "message") if name in choice), choice)
        other = parts if place == 0 else _Parts()
        answered.events += other.add(as_map(said))


def _add_response(answered: Answered, fields: dict[str, Any], *, streamed: bool) -> None:
    kind = as_text(fields.get("type"))
    if streamed and kind not in _RESPONSE_ENDS:
        delta = as_text(fields.get("delta")) if kind.endswith(".delta") else ""
        answered.events += bool(delta)
        answered.text += delta
        answered.error = answered.error or kind == "error"
        return
    response = as_map(fields.get("response")) if streamed else fields
    _add_usage(answered, response.get("usage"), "input_tokens", "output_tokens")
    status = as_text(response.get("status"))
    answered.finished = status in ("completed", "incomplete")
    answered.error = answered.error or status == "failed"
    answered.id = as_text(response.get("id")) or None
    output = as_maps(response.get("output"))
    answered.turns = tuple(filter(None, map(item, output)))
    answered.reasoned = any(one.get("type") == "reasoning" for one in output)
    answered.choices = 1
    if not answered.text:
        answered.text = b"".join(answered.turns).decode(errors="replace")


def _add_usage(answered: Answered, usage: Any, prompt: str, output: str) -> None:
    counts = as_map(usage)
    known = as_count(counts.get(prompt)), as_count(counts.get(output))
    answered.prompt_tokens = answered.prompt_tokens if not known[0] else known[0]
    answered.output_tokens = answered.output_tokens if known[1] is None else known[1]


def _whole(body: bytes) -> Iterator[dict[str, Any]]:
    try:
        yield as_map(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return


def _events(body: bytes) -> Iterator[dict[str, Any]]:
    """The JSON of each event; an event that was cut off is left out."""
    for event in body.replace(b"\r\n", b"\n").split(b"\n\n"):
        lines = (line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:"))
        data = b"\n".join(lines)
        if data and data != b"[DONE]":
            yield from _whole(data)
