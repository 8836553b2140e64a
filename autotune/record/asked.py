"""What a request asks for, out of its body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from autotune.record.narrowed import as_ids, as_map, as_maps, as_text
from autotune.record.turns import item, message, opening, turn

_VALUES = (
    *("max_tokens", "max_completion_tokens", "max_output_tokens", "min_tokens", "ignore_eos", "n", "best_of"),
    *("stream", "echo", "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty"),
    *("repetition_penalty", "length_penalty", "logprobs", "top_logprobs", "prompt_logprobs"),
    *("use_beam_search", "parallel_tool_calls"),
)
"""Kept as they are where they are numbers or booleans: a string could hold anything."""
_COUNTS = ("stop", "stop_token_ids", "tools", "functions", "logit_bias", "bad_words")
"""Kept as how many there are."""
_PRESENT = (
    *("seed", "response_format", "structured_outputs"),
    *("guided_json", "guided_regex", "guided_choice", "guided_grammar"),
)
"""Kept as being there."""
_LONGEST_NAME = 200
_LARGEST = 1e15


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request. `turns` is empty for a completion, whose prompt is `ids` or `prompt`, None when several.

    `before` is what a template puts in front of the turns: tools and instructions. `follows` names an earlier
    response whose conversation the server puts in front.
    """

    fields: Mapping[str, Any]
    model: str | None
    params: dict[str, int | float | bool]
    before: bytes = b""
    turns: tuple[bytes, ...] = ()
    prompt: bytes | None = None
    ids: tuple[int, ...] | None = None
    follows: str | None = None

    @property
    def root(self) -> bytes:
        """Prompts of different roots share nothing in an engine's cache: another model, another salt."""
        return "\0".join([self.model or "", as_text(self.fields.get("cache_salt"))]).encode(errors="replace")

    def text(self, turns: tuple[bytes, ...]) -> bytes | None:
        """The prompt as bytes, with these turns for its own; None when it is ids or several prompts."""
        return self.before + b"".join(turns) + opening("assistant") if turns else self.prompt


def read_request(path: str, body: bytes) -> Asked | None:
    """The request in `body`; None when it is none of the API at `path`."""
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    model = as_text(fields.get("model"))[:_LONGEST_NAME] or None
    params = _params(fields)
    if path == "/v1/chat/completions":
        turns = tuple(map(message, as_maps(fields.get("messages"))))
        return (
            Asked(fields=fields, model=model, params=params, before=_tools(fields), turns=turns)
            if turns
            else None
        )
    if path == "/v1/responses":
        return _response(fields, model, params)
    if "prompt" not in fields:
        return None
    prompt = fields["prompt"]
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        prompt = prompt[0]
    text = prompt.encode(errors="replace") if isinstance(prompt, str) else None
    return Asked(fields=fields, model=model, params=params, prompt=text, ids=as_ids(prompt))


def _response(
    fields: dict[str, Any], model: str | None, params: dict[str, int | float | bool]
) -> Asked | None:
    given = fields.get("input")
    turns = (
        (turn("user", given),) if isinstance(given, str) else tuple(filter(None, map(item, as_maps(given))))
    )
    instructions = as_text(fields.get("instructions"))
    before = _tools(fields) + (turn("system", instructions) if instructions else b"")
    follows = as_text(fields.get("previous_response_id")) or None
    if not turns and not follows:
        return None
    return Asked(fields=fields, model=model, params=params, before=before, turns=turns, follows=follows)


def _tools(fields: dict[str, Any]) -> bytes:
    tools = as_maps(fields.get("tools"))
    return turn("tools", msgspec.json.encode(tools).decode()) if tools else b""


def _params(fields: dict[str, Any]) -> dict[str, int | float | bool]:
    kept: dict[str, int | float | bool] = {}
    for name in _VALUES:
        value = fields.get(name)
        if isinstance(value, int | float) and abs(value) <= _LARGEST:
            kept[name] = value
    for name in _COUNTS:
        value = fields.get(name)
        if value is not None:
            kept[name] = len(value) if isinstance(value, list | dict) else 1
    kept |= {name: True for name in _PRESENT if fields.get(name) is not None}
    if as_map(fields.get("stream_options")).get("include_usage") is True:
        kept["include_usage"] = True
    return kept
