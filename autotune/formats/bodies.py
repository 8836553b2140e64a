"""Recorded request bodies: what makes one, and how long it is about where nobody counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from autotune.errors import InputError
from autotune.formats.cells import brief, decoded, shown

BYTES_PER_TOKEN = 4
"""UTF-8 bytes a token, where no tokenizer counted: about what English text takes."""

DEFAULT_OUTPUT_TOKENS = 256
"""Tokens of an answer of which nothing is known."""

FILLER = " and"
"""Four bytes, and one token in the vocabularies of Llama, Qwen and GPT."""

_LONGEST_FILLER = 1_000_000
_KEYS = ("messages", "prompt", "input")
_HINT = "a body is the JSON of a completion, chat or responses request"
_BODY = msgspec.json.Decoder(dict[str, Any])


def recorded(where: str, raw: msgspec.Raw) -> str | None:
    """The text of a recorded body, None for an absent one; raises `InputError` for no request body."""
    text = bytes(raw).decode()
    if text in ("", "null"):
        return None
    contents(where, text)
    return one_line(text)


def one_line(body: str) -> str:
    """The same JSON without line ends between its values."""
    return msgspec.json.format(body, indent=-1) if "\n" in body or "\r" in body else body


def contents(where: str, body: str) -> Mapping[str, Any]:
    """A body's fields; raises `InputError` for what is no request body."""
    fields = decoded(where, _BODY, body, hint=_HINT)
    if not any(key in fields for key in _KEYS):
        raise InputError(f"{where}: the body has no messages, prompt or input", hint=_HINT)
    return fields


def completion(prompt: str) -> str:
    """The body of a completion request of this prompt."""
    return msgspec.json.encode({"prompt": prompt}).decode()


def estimate(text: str) -> int:
    """About how many tokens a text has: a token for each four bytes of UTF-8, at least one."""
    return max(1, -(-len(text.encode()) // BYTES_PER_TOKEN))


def estimate_body(fields: Mapping[str, Any]) -> int:
    """About how many prompt tokens a body has; token ids count one each, other numbers and keys nothing."""
    prompt = next((fields[key] for key in _KEYS if key in fields), "")
    if isinstance(prompt, list) and prompt and all(type(one) is int for one in prompt):
        return len(prompt)
    return max(1, -(-sum(len(text.encode()) for text in _texts(prompt)) // BYTES_PER_TOKEN))


def asked_tokens(where: str, fields: Mapping[str, Any]) -> int:
    """The longest answer that a body allows, `DEFAULT_OUTPUT_TOKENS` where it does not say."""
    for key in ("max_completion_tokens", "max_output_tokens", "max_tokens"):
        value = fields.get(key)
        if value is not None:
            if type(value) is not int:
                raise InputError(f"{where}: {key} is {shown(str(value))}", hint="token counts are integers")
            return value
    return DEFAULT_OUTPUT_TOKENS


@dataclass(slots=True)
class Dialogue:
    """A conversation as it grows: each prompt is sent with all that was said before it."""

    messages: list[Mapping[str, Any]] = field(default_factory=list)
    tokens: int = 0

    def add(self, role: str, content: str) -> None:
        """Let somebody say something that is no request."""
        self.messages.append({"role": role, "content": content})
        self.tokens += estimate(content)

    def body(self) -> str:
        """The body of a chat request of all that was said."""
        return msgspec.json.encode({"messages": self.messages}).decode()

    def answered(self, where: str, tokens: int) -> None:
        """Add an answer that nobody recorded, as long as it was: a short word for each token.

        Raises `InputError` naming `where` for one that no conversation holds.
        """
        if not 0 < tokens <= _LONGEST_FILLER:
            raise InputError(
                f"{where}: an answer of {brief(tokens)} tokens", hint="from 1 to a million tokens"
            )
        self.messages.append({"role": "assistant", "content": FILLER * tokens})
        self.tokens += tokens


def _texts(value: Any) -> Iterator[str]:
    """The words of messages and prompts: strings, wherever `content`, `text` or a list holds them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, dict):
        for key in ("content", "text"):
            if key in value:
                yield from _texts(value[key])
