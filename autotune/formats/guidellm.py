"""Prompts for guidellm: JSONL with a text column and, optionally, token counts, a prefix, stamps and turns.

Source: class GenerativeColumnMapper of src/guidellm/data/preprocessors/mappers.py in vllm-project/guidellm:
the names below, each also with a turn's number after - or _; relative_timestamp is in seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from autotune.domain.workload import Request
from autotune.errors import InputError
from autotune.formats.bodies import DEFAULT_OUTPUT_TOKENS, Dialogue
from autotune.formats.cells import decoded, number, shown
from autotune.formats.outline import outline
from autotune.formats.reading import Recording, Source, request

_COLUMNS = {
    "text": (
        "prompt",
        "instruction",
        "question",
        "input",
        "context",
        "content",
        "conversation",
        "turn",
        "text",
    ),
    "prompt_tokens": ("prompt_tokens_count", "input_tokens_count"),
    "output_tokens": ("output_tokens_count", "completion_tokens_count"),
    "prefix": ("system_prompt", "system", "prefix"),
    "stamp": ("relative_timestamp",),
}
_PATTERNS = {
    column: re.compile(rf"(?P<name>{'|'.join(names)})s?(?:[-_](?P<turn>\d{{1,6}}))?", re.IGNORECASE)
    for column, names in _COLUMNS.items()
}
_HINT = "a row holds prompt and, optionally, prompt_tokens_count and output_tokens_count"
_ROW = msgspec.json.Decoder(dict[str, Any])


def sniff(head: str) -> bool:
    """True when the first row has a text column, and counts, a stamp or turns beside it."""
    first = outline(head)
    keys = first.keys
    texts = [match for key in keys if (match := _PATTERNS["text"].fullmatch(key))]
    columns = ("prompt_tokens", "output_tokens", "stamp")
    beside = any(_PATTERNS[column].fullmatch(key) for key in keys for column in columns)
    return (
        first.opens == "{"
        and not first.ours
        and bool(texts)
        and (beside or any(match["turn"] for match in texts))
    )


def read(source: Source) -> Recording:
    """A request for each turn of each row, those of one row a session; raises `InputError` with file:line.

    Tokens are counted where the first row counts prompts and answers, else estimated from the text.
    """
    _, first = next(source.lines())
    keys = outline(first).keys
    has = {column for column, pattern in _PATTERNS.items() for key in keys if pattern.fullmatch(key)}
    counted = {"prompt_tokens", "output_tokens"} <= has
    reader = _Reader(timed="stamp" in has, counted=counted)
    return Recording(requests=source.rows(reader), timed="stamp" in has, counted=counted)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """A row as the turns of one conversation."""

    timed: bool
    counted: bool

    def __call__(self, where: str, line: str) -> list[Request]:
        row = decoded(where, _ROW, line, hint=_HINT)
        prompts = _turns(row, "text")
        if not prompts:
            raise InputError(f"{where}: no prompt", hint=_HINT)
        said = Dialogue()
        for prefix in _turns(row, "prefix").values():
            said.add("system", _text(where, prefix))
        stamps, inputs, outputs = (_turns(row, name) for name in ("stamp", "prompt_tokens", "output_tokens"))
        found: list[Request] = []
        for turn, prompt in sorted(prompts.items()):
            said.add("user", _text(where, prompt))
            output_tokens = _tokens(where, outputs.get(turn), needed=self.counted)
            input_tokens = _tokens(where, inputs.get(turn), needed=self.counted)
            found.append(
                request(
                    where,
                    offset_s=_seconds(where, stamps) if self.timed else 0.0,
                    prompt_tokens=said.tokens if input_tokens is None else input_tokens,
                    output_tokens=DEFAULT_OUTPUT_TOKENS if output_tokens is None else output_tokens,
                    session=f"row {where.rpartition(':')[2]}" if len(prompts) > 1 else None,
                    body=said.body(),
                )
            )
            said.answered(where, found[-1].output_tokens)
        return found


def _turns(row: Mapping[str, Any], column: str) -> dict[int, Any]:
    """The values of a column by turn, under the first of its names that the row has."""
    found: dict[int, Any] = {}
    chosen = None
    for key, value in row.items():
        match = _PATTERNS[column].fullmatch(key)
        if match is None or value is None:
            continue
        chosen = chosen or match["name"].lower()
        if match["name"].lower() == chosen:
            found[int(match["turn"] or len(found))] = value
    return found


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"{where}: a prompt is {shown(str(value))}, not text", hint=_HINT)
    return value


def _tokens(where: str, value: Any, *, needed: bool) -> int | None:
    if value is None and not needed:
        return None
    if type(value) is not int:
        raise InputError(f"{where}: a token count is {shown(str(value))}", hint="token counts are integers")
    return value


def _seconds(where: str, stamps: Mapping[int, Any]) -> float:
    value = next(iter(stamps.values()), None)
    if type(value) not in (int, float):
        raise InputError(f"{where}: relative_timestamp is {shown(str(value))}", hint="write seconds")
    return number(where, "relative_timestamp", str(value))
