"""The bytes that the server of known truth sends: OpenAI's shapes, prepared in advance."""

from __future__ import annotations

import json

MODEL = "known-truth"
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: known-truth\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(body: object) -> bytes:
    """One server-sent event as one chunk."""
    return _chunk(b"data: %b\n\n" % json.dumps(body, separators=(",", ":")).encode())


def answer(body: object, status: str = "200 OK") -> bytes:
    """A whole JSON response."""
    text = json.dumps(body).encode()
    return b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        status.encode(), len(text), text,
    )  # fmt: skip


class Script:
    """The bytes of a stream, prepared in advance: one token, the last token, and what follows it."""

    __slots__ = ("closing", "last", "opening", "token")

    def __init__(self, *, chat: bool, token_ids: bool) -> None:
        kind = "chat.completion.chunk" if chat else "text_completion"
        name = "chatcmpl" if chat else "cmpl"
        self.opening = b""  # the role, which is no token
        if chat:
            role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
            self.opening = event(envelope(name, kind, role))
        ends: list[bytes] = []
        for finish in (None, "length"):
            text = {"delta": {"content": " token"}} if chat else {"text": " token", "stop_reason": None}
            choice: dict[str, object] = {"index": 0, **text, "logprobs": None, "finish_reason": finish}
            if token_ids:
                choice["token_ids"] = [1000]
            ends.append(event(envelope(name, kind, choice)))
        self.token, self.last = ends
        self.closing = _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def envelope(name: str, kind: str, choice: object) -> dict[str, object]:
    """What stands around a choice; None for a usage event."""
    return {
        "id": f"{name}-0123456789abcdef", "object": kind, "created": 1700000000, "model": MODEL,
        "choices": [] if choice is None else [choice],
    }  # fmt: skip


def whole(*, chat: bool, tokens: int, usage: dict[str, int]) -> bytes:
    """An answer that is not streamed."""
    text = " token" * tokens
    said = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    name, kind = ("chatcmpl", "chat.completion") if chat else ("cmpl", "text_completion")
    choice = {"index": 0, **said, "logprobs": None, "finish_reason": "length"}
    return answer({**envelope(name, kind, choice), "usage": usage})


def models() -> bytes:
    """The one model, as `/v1/models` lists it."""
    card = {"id": MODEL, "object": "model", "created": 0, "owned_by": "benchmark", "root": MODEL}
    return answer({"object": "list", "data": [{**card, "max_model_len": 8192}]})
