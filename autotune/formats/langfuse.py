"""Observations that Langfuse exported to blob storage or by its API: JSONL, or one JSON array.

Source: "Blob storage export field reference" in Langfuse's documentation. Of `usage_details` every kind with
"input" in its name belongs to the prompt, with "output" to the answer: "Model usage and cost tracking" there.
"""

from __future__ import annotations

import msgspec

from autotune.errors import InputError
from autotune.formats.calls import Call, read_calls
from autotune.formats.cells import decoded
from autotune.formats.outline import outline
from autotune.formats.reading import Recording, Source, request
from autotune.formats.stamps import epoch_s

_HINT = "a row holds type, start_time and usage_details, of the field groups core and usage"


class _Row(msgspec.Struct):
    type: str
    start_time: str
    id: str | None = None
    end_time: str | None = None
    level: str | None = None
    session_id: str | None = None
    usage_details: dict[str, int | None] | None = None


_ROW = msgspec.json.Decoder(_Row)


def sniff(head: str) -> bool:
    """True when the first object is an observation of a trace."""
    return {"type", "trace_id", "start_time", "usage_details"} <= outline(head).keys


def read(source: Source) -> Recording:
    """The generations, sorted; raises `InputError` with file:line.

    Those of level ERROR are left out as failed; spans, tools and other observations are no requests.
    """
    return read_calls(source, _call, id_key="id", hint=_HINT)


def _call(where: str, text: str | bytes) -> list[Call] | None:
    row = decoded(where, _ROW, text, hint=_HINT)
    if row.type != "GENERATION":
        return []
    if row.level == "ERROR":
        return None
    usage = row.usage_details or {}
    prompt, output = (
        sum(count or 0 for kind, count in usage.items() if side in kind) for side in ("input", "output")
    )
    if not prompt or not output:
        raise InputError(f"{where}: usage_details count no input or no output", hint=_HINT)
    found = request(
        where,
        offset_s=epoch_s(where, "start_time", row.start_time),
        prompt_tokens=prompt,
        output_tokens=output,
        session=row.session_id or None,
    )
    end_s = None if row.end_time is None else epoch_s(where, "end_time", row.end_time)
    return [Call(request=found, end_s=end_s, id=row.id)]
