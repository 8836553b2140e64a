"""The wire: what a completion request looks like, and what its stream says.

Source: `CompletionRequest` and `CompletionStreamResponse` in vllm/entrypoints/openai/completion/protocol.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

PATH = "/v1/completions"


class _Choice(msgspec.Struct):
    text: str = ""
    token_ids: list[int] | None = None
    finish_reason: str | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    error: Any = None


_EVENT = msgspec.json.Decoder(_Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A parsed stream: a stamp for each token, and why it did not end well (None when it did)."""

    token_ns: tuple[int, ...]
    error: str | None


def completion_body(*, model: str, prompt: Sequence[int], output_tokens: int, cache_salt: str) -> bytes:
    """A streamed completion of exact length.

    The prompt is given as token ids and the output is forced to `output_tokens`; `cache_salt` keeps the
    prefix cache of one window from answering another.
    """
    return msgspec.json.encode(
        {
            "model": model,
            "prompt": prompt,
            "max_tokens": output_tokens,
            "min_tokens": output_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "return_token_ids": True,
            "cache_salt": cache_salt,
        }
    )


def read_stream(chunks: Sequence[tuple[int, bytes]], output_tokens: int) -> Answer:
    """Stamps of the tokens in raw chunks of an event stream, `(arrival in ns, bytes)`.

    An event is stamped with the chunk that completed it. Tokens are counted by `token_ids`; an engine
    that does not send them is taken to send one token an event. A stream is complete only with a finish
    reason, without an `error` object and with every token asked for: `[DONE]` alone proves nothing,
    vLLM sends it after a fatal error too.
    """
    token_ns: list[int] = []
    error: str | None = None
    ended = False
    rest = b""
    for at_ns, chunk in chunks:
        *events, rest = (rest + chunk).replace(b"\r\n", b"\n").split(b"\n\n")
        for event in events:
            payload = event.removeprefix(b"data:").strip()
            if not event.startswith(b"data:") or payload == b"[DONE]":
                continue
            try:
                message = _EVENT.decode(payload)
            except msgspec.DecodeError as reason:
                error = error or f"unreadable event: {reason}"
                continue
            if message.error is not None:
                said = msgspec.json.encode(message.error).decode()
                error = error or f"engine error in stream: {said[:200]}"
            for choice in message.choices:
                count = len(choice.token_ids) if choice.token_ids is not None else bool(choice.text)
                token_ns.extend([at_ns] * count)
                ended = ended or choice.finish_reason is not None
    if error is None and not ended:
        error = "stream ended without a finish reason"
    if error is None and len(token_ns) != output_tokens:
        error = f"short output: {len(token_ns)} of {output_tokens} tokens"
    return Answer(token_ns=tuple(token_ns), error=error)
