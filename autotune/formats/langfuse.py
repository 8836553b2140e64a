"""Observations that Langfuse exported to blob storage or by its API: JSONL, or one JSON array.

Source: "Blob storage export field reference" in Langfuse's documentation. Of `usage_details` every kind with
"input" in its name belongs to the prompt, with "output" to the answer: "Model usage and cost tracking" there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from autotune.domain.workload import Request
from autotune.errors import InputError
from autotune.formats.arrays import groups
from autotune.formats.calls import linked
from autotune.formats.cells import decoded, shown
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
    reader = _Reader(source)
    in_one_piece = outline(source.head()).opens == "[{"
    rows = groups(source, reader.several, hint=_HINT) if in_one_piece else source.rows(reader, ordered=False)
    return Recording(requests=linked(rows, reader.ends_s))


@dataclass(slots=True)
class _Reader:
    """Observations as requests; keeps when each ended, and the ids."""

    source: Source
    ends_s: list[float | None] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)

    def __call__(self, where: str, text: str | bytes) -> list[Request] | None:
        row = decoded(where, _ROW, text, hint=_HINT)
        if row.type != "GENERATION":
            return []
        if row.level == "ERROR":
            return None
        if row.id is not None and row.id in self.ids:
            raise InputError(f"{where}: the id {shown(row.id)} is there twice", hint="remove one of the rows")
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
        if row.id is not None:
            self.ids.add(row.id)
        self.ends_s.append(end_s)
        return [found]

    def several(self, where: str, value: bytes) -> list[Request]:
        """As a call, for rows of an array."""
        found = self(where, value)
        self.source.failed += found is None
        return found or []
