"""Asking the upstream for token counts, in the one case where it would not send them."""

from __future__ import annotations

import msgspec

from autotune.record.framing import unchunked


def with_usage(raw: bytes, *, chunked: bool) -> bytes:
    """The body with `stream_options.include_usage`; unchanged where it does not stream or says so itself.

    The other fields keep their bytes. A server answers with one more event, which has no choices; the
    Responses API always sends counts and is left alone. Source: OpenAI's API reference, `stream_options`.
    """
    content = unchunked(raw) if chunked else raw
    try:
        fields = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return content
    options = fields.get("stream_options")
    if bytes(fields.get("stream", b"")) != b"true" or "input" in fields:
        return content
    try:
        asked = msgspec.json.decode(options, type=dict[str, msgspec.Raw] | None) if options else None
    except msgspec.DecodeError:
        return content
    if asked and "include_usage" in asked:
        return content
    fields["stream_options"] = msgspec.Raw(
        msgspec.json.encode((asked or {}) | {"include_usage": msgspec.Raw(b"true")})
    )
    return msgspec.json.encode(fields)
