"""Spend logs of the LiteLLM proxy: what `GET /spend/logs` answers, one JSON array, or its rows a line each.

Source: model LiteLLM_SpendLogs in schema.prisma of BerriAI/litellm.
"""

from __future__ import annotations

import msgspec

from autotune.formats.bodies import recorded
from autotune.formats.calls import Call, read_calls
from autotune.formats.cells import decoded
from autotune.formats.outline import outline
from autotune.formats.reading import Recording, Source, request
from autotune.formats.stamps import epoch_s

_HINT = "a row holds call_type, startTime, prompt_tokens and completion_tokens"
_GENERATES = ("completion", "acompletion", "text_completion", "atext_completion", "responses", "aresponses")


class _Row(msgspec.Struct):
    startTime: str  # noqa: N815  their spelling
    prompt_tokens: int
    completion_tokens: int
    call_type: str = "acompletion"
    endTime: str | None = None  # noqa: N815  as above
    status: str | None = None
    cache_hit: str | bool | None = None
    session_id: str | None = None
    request_id: str | None = None
    messages: msgspec.Raw = msgspec.Raw()


_ROW = msgspec.json.Decoder(_Row)


def sniff(head: str) -> bool:
    """True when the first object has the columns of the spend logs."""
    return {"call_type", "startTime", "prompt_tokens", "completion_tokens"} <= outline(head).keys


def read(source: Source) -> Recording:
    """The calls that generated text, sorted; raises `InputError` with file:line.

    Calls that failed are left out as failed. Embeddings and the like are left out, and so are calls that
    LiteLLM answered from its own cache: no engine saw them.
    """
    return read_calls(source, _call, id_key="request_id", hint=_HINT)


def _call(where: str, text: str | bytes) -> list[Call] | None:
    row = decoded(where, _ROW, text, hint=_HINT)
    if row.call_type not in _GENERATES or str(row.cache_hit).lower() == "true":
        return []
    if row.status == "failure":
        return None
    found = request(
        where,
        offset_s=epoch_s(where, "startTime", row.startTime),
        prompt_tokens=row.prompt_tokens,
        output_tokens=row.completion_tokens,
        session=row.session_id or None,
        body=_body(where, row.messages),
    )
    end_s = None if row.endTime is None else epoch_s(where, "endTime", row.endTime)
    return [Call(request=found, end_s=end_s, id=row.request_id)]


def _body(where: str, messages: msgspec.Raw) -> str | None:
    """The request of kept messages; None where the proxy stores none, which it writes as {}."""
    text = bytes(messages).strip()
    if not text.startswith(b"[") or text == b"[]":
        return None
    return recorded(where, msgspec.Raw(b'{"messages": ' + text + b"}"))
