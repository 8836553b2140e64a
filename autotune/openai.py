"""The wire: what a request looks like, and what its stream of events says.

Source: `CompletionRequest`, `ChatCompletionRequest` and `ResponsesRequest` with their stream responses in
vllm/entrypoints/openai/{completion,chat_completion,responses}/protocol.py; the HTML standard, section 9.2.6,
for events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from autotune.errors import InputError

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
_PATHS = {"messages": CHAT, "prompt": COMPLETIONS, "input": RESPONSES}
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_SEVERAL = ("n", "best_of", "use_beam_search", "background")
"""Recorded fields that ask for more or less than one streamed answer."""
_STOPS = ("stop", "stop_token_ids")
_VLLM = ("ignore_eos", "min_tokens", "return_token_ids", "cache_salt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How all requests of a window are asked.

    Answers are forced to their recorded length, or end where the model ends them with `natural_stops`.
    Without `vllm_fields` nothing is sent that OpenAI's own API does not know; lengths are then upper bounds.
    """

    model: str
    cache_salt: str
    natural_stops: bool = False
    vllm_fields: bool = True


def synthetic(prompt: Sequence[int], output_tokens: int, manner: Manner) -> tuple[str, bytes]:
    """Path and body of a streamed completion of a prompt given as token ids."""
    body = {"prompt": prompt, **_asked(COMPLETIONS, output_tokens, manner), "max_tokens": output_tokens}
    return COMPLETIONS, msgspec.json.encode(body)


def recorded(text: str, output_tokens: int, manner: Manner) -> tuple[str, bytes]:
    """Path and body of a recorded request asked again: its words, tools and sampling, our length and model.

    Raises `InputError` when the text is no JSON object with `messages`, `prompt` or `input`.
    """
    try:
        body = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError) as reason:
        raise InputError(
            f"a recorded body is no JSON object: {reason}", hint="record it again with --keep-text"
        ) from None
    path = next((_PATHS[key] for key in _PATHS if key in body), None)
    if path is None:
        raise InputError(
            "a recorded body has none of messages, prompt and input",
            hint="only chat completions, completions and responses can be replayed",
        )
    forced: dict[str, int] = {}
    dropped = {*_SEVERAL, *(() if manner.vllm_fields else _VLLM)}
    if not manner.natural_stops:
        # OpenAI's newer models know only the newer name of the limit; vLLM reads both.
        named = next((name for name in _LIMITS if name in body), "max_tokens")
        forced = {_limit(path, "max_tokens" if manner.vllm_fields else named): output_tokens}
        dropped |= {*_LIMITS, *_STOPS}
    kept = {key: value for key, value in body.items() if key not in dropped}
    return path, msgspec.json.encode(kept | forced | _asked(path, output_tokens, manner))


def _limit(path: str, name: str) -> str:
    if path == RESPONSES:
        return "max_output_tokens"
    return name if name != "max_output_tokens" else "max_tokens"


def _asked(path: str, output_tokens: int, manner: Manner) -> dict[str, Any]:
    """What overrides a recorded body, and all but the words of one that was not recorded."""
    fields: dict[str, Any] = {"model": manner.model, "temperature": 0, "stream": True}
    if path == RESPONSES:
        fields["store"] = False
    else:
        fields["stream_options"] = {"include_usage": True}
    if manner.vllm_fields:
        fields["cache_salt"] = manner.cache_salt
        if path != RESPONSES:
            fields["return_token_ids"] = True
        if not manner.natural_stops:
            fields["ignore_eos"] = True
            if path != RESPONSES:  # vLLM's responses know no min_tokens
                fields["min_tokens"] = output_tokens
    return fields


class _Delta(msgspec.Struct):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None
    tool_calls: Any = None
    function_call: Any = None

    def holds_anything(self) -> bool:
        return bool(
            self.content
            or self.reasoning_content
            or self.reasoning
            or self.tool_calls
            or self.refusal
            or self.function_call
        )


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    token_ids: list[int] | None = None
    finish_reason: str | None = None

    def holds_anything(self) -> bool:
        return bool(self.text) or (self.delta is not None and self.delta.holds_anything())


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class _Response(msgspec.Struct):
    usage: _Usage | None = None
    error: Any = None


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None
    type: str | None = None
    delta: Any = None
    response: _Response | None = None
    message: Any = None


_EVENT = msgspec.json.Decoder(_Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A parsed stream: a stamp for each token, and why it did not end well (None when it did).

    `prompt_tokens` is the engine's own count of the prompt, None when it did not tell.
    """

    token_ns: tuple[int, ...]
    error: str | None
    prompt_tokens: int | None = None


def read_stream(chunks: Sequence[tuple[int, bytes]], output_tokens: int | None) -> Answer:
    """Stamps of the tokens in raw chunks of an event stream, `(arrival in ns, bytes)`.

    An event is stamped with the chunk that completed it. Tokens are counted by `token_ids` where the engine
    sends them, else by the usage beside them, else one for each event that holds words, reasoning or a part
    of a tool call; the usage at the end has the last word. A role, an empty delta and a usage are no token.

    A stream is complete only with a finish reason, without an `error` object and, unless `output_tokens` is
    None, with every token asked for: `[DONE]` alone proves nothing, vLLM sends it after a fatal error too.
    """
    reading = _Reading()
    for at_ns, payload in _events(chunks):
        reading.take(at_ns, payload)
    token_ns, error = reading.token_ns(), reading.error
    if error is None and not reading.ended:
        error = "stream ended without a finish reason"
    if error is None and output_tokens is not None and len(token_ns) != output_tokens:
        short = "short" if len(token_ns) < output_tokens else "long"
        error = f"{short} output: {len(token_ns)} of {output_tokens} tokens"
    return Answer(token_ns=token_ns, error=error, prompt_tokens=reading.prompt_tokens)


def _events(chunks: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """The data of each complete event, with the stamp of the chunk that completed it."""
    rest = b""
    for at_ns, chunk in chunks:
        *events, rest = (rest + chunk).replace(b"\r\n", b"\n").split(b"\n\n")
        for event in events:
            if event.startswith(b"data:") and b"\n" not in event:
                yield at_ns, event[5:].strip()
            elif data := [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]:
                yield at_ns, b"\n".join(data)


class _Reading:
    """What a stream has said so far."""

    def __init__(self) -> None:
        self.error: str | None = None
        self.ended = False
        self.prompt_tokens: int | None = None
        self._arrivals: list[int] = []
        self._said: int | None = None  # tokens so far by usage

    def token_ns(self) -> tuple[int, ...]:
        """A stamp a token.

        When the usage disagrees with what was counted, the usage is right: so many tokens are spread evenly
        over the arrivals, the first on the first and the last on the last. TTFT, TPOT, E2EL and gaps do not
        depend on which token in between came with which arrival.
        """
        arrivals, n = self._arrivals, self._said
        if not n or not arrivals or n == len(arrivals):
            return tuple(arrivals)
        last = len(arrivals) - 1
        return tuple(arrivals[round(i * last / (n - 1)) if n > 1 else 0] for i in range(n))

    def take(self, at_ns: int, payload: bytes) -> None:
        """Read one event."""
        if payload == b"[DONE]":
            return
        try:
            event = _EVENT.decode(payload)
        except msgspec.DecodeError as reason:
            self.error = self.error or f"unreadable event: {reason}"
            return
        if event.error is not None:
            self._fail(event.error)
        usage = event.usage
        if event.type is not None:
            usage = self._take_response(at_ns, event) or usage
        for choice in event.choices:
            self._arrivals.extend([at_ns] * self._count(choice, usage))
            self.ended = self.ended or choice.finish_reason is not None
        if usage is not None:
            self._take_usage(usage)

    def _count(self, choice: _Choice, usage: _Usage | None) -> int:
        if choice.token_ids is not None:
            return len(choice.token_ids)
        return self._by_usage(usage) if choice.holds_anything() else 0

    def _by_usage(self, usage: _Usage | None) -> int:
        """Tokens of an event that does not list them, from a usage that counts along."""
        if usage is None or not usage.completion_tokens:
            return 1
        return max(usage.completion_tokens - len(self._arrivals), 1)

    def _take_response(self, at_ns: int, event: _Event) -> _Usage | None:
        """An event of the responses API: a delta of anything is a token."""
        kind = event.type or ""
        if kind.endswith(".delta") and event.delta:
            self._arrivals.append(at_ns)
        elif kind in ("response.completed", "response.incomplete"):
            self.ended = True
        elif kind == "response.failed":
            self._fail(event.response.error if event.response else None)
        elif kind == "error" and event.error is None:
            self._fail(event.message)
        return event.response.usage if event.response else None

    def _take_usage(self, usage: _Usage) -> None:
        prompt = usage.prompt_tokens if usage.prompt_tokens is not None else usage.input_tokens
        output = usage.completion_tokens if usage.completion_tokens is not None else usage.output_tokens
        self.prompt_tokens = prompt or self.prompt_tokens
        self._said = output or self._said

    def _fail(self, what: Any) -> None:
        said = msgspec.json.encode(what).decode()
        self.error = self.error or f"engine error in stream: {said[:200]}"
