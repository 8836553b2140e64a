"""Logs of OpenAI-style requests: JSONL with the request's body, and when it came and how long the answer was.

The row is `{"timestamp": …, "body": {…}, "output_tokens": …}`, or `usage` as the server answered it in place
of the counts. Rows without a timestamp are what OpenAI's batch API takes (custom_id, method, url, body).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from autotune.domain.workload import Request
from autotune.errors import InputError
from autotune.formats.bodies import asked_tokens, contents, estimate_body, recorded
from autotune.formats.cells import decoded, shown
from autotune.formats.outline import outline
from autotune.formats.reading import Recording, Source, first_row, request
from autotune.formats.stamps import epoch_s

_HINT = (
    "a row holds timestamp (seconds, or a date and time), body, and usage or prompt_tokens and output_tokens"
)


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class _Row(msgspec.Struct):
    body: msgspec.Raw
    timestamp: float | str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    usage: _Usage | None = None
    session: str | None = None
    session_id: str | None = None
    id: str | int | None = None
    request_id: str | int | None = None
    custom_id: str | int | None = None
    error: msgspec.Raw = msgspec.Raw()
    status: int | None = None

    def counts(self) -> tuple[int | None, int | None]:
        """Tokens of prompt and answer, None where they were not counted."""
        usage = self.usage or _Usage()
        prompts = (self.prompt_tokens, usage.prompt_tokens, usage.input_tokens)
        answers = (self.output_tokens, usage.completion_tokens, usage.output_tokens)
        return next((n for n in prompts if n is not None), None), next(
            (n for n in answers if n is not None), None
        )

    def name(self) -> str | int | None:
        """What tells this request from others."""
        return next((one for one in (self.id, self.request_id, self.custom_id) if one is not None), None)


_ROW = msgspec.json.Decoder(_Row)


def sniff(head: str) -> bool:
    """True when the first row holds a body and is not of our own format."""
    first = outline(head)
    return "body" in first.keys and not first.ours


def read(source: Source) -> Recording:
    """The recording, rows with an error or a status from 400 left out; raises `InputError` with file:line.

    The first row decides whether rows have stamps and counts. Uncounted prompts are estimated from their
    text, uncounted answers are as long as the body allows.
    """
    row = first_row(source, _ROW) or _Row(body=msgspec.Raw())
    timed, counted = row.timestamp is not None, None not in row.counts()
    return Recording(
        requests=source.rows(_Reader(timed=timed, counted=counted)), timed=timed, counted=counted
    )


@dataclass(slots=True, kw_only=True)
class _Reader:
    """Rows as requests; holds a hash of every id."""

    timed: bool
    counted: bool
    names: set[int] = field(default_factory=set)

    def __call__(self, where: str, line: str) -> Request | None:
        row = decoded(where, _ROW, line, hint=_HINT)
        if (row.status or 0) >= 400 or bytes(row.error) not in (b"", b"null"):
            return None
        name = row.name()
        if name is not None and hash(name) in self.names:
            raise InputError(
                f"{where}: the id {shown(str(name))} is there twice", hint="remove one of the rows"
            )
        body = recorded(where, row.body)
        if body is None:
            raise InputError(f"{where}: no body", hint=_HINT)
        fields = contents(where, body)
        prompt_tokens, output_tokens = row.counts()
        if self.counted and (prompt_tokens is None or output_tokens is None):
            raise InputError(f"{where}: no usage, where the rows before have it", hint=_HINT)
        found = request(
            where,
            offset_s=self._stamp_s(where, row) if self.timed else 0.0,
            prompt_tokens=estimate_body(fields) if prompt_tokens is None else prompt_tokens,
            output_tokens=asked_tokens(where, fields) if output_tokens is None else output_tokens,
            session=row.session if row.session is not None else row.session_id,
            body=body,
        )
        if name is not None:
            self.names.add(hash(name))
        return found

    def _stamp_s(self, where: str, row: _Row) -> float:
        if row.timestamp is None:
            raise InputError(f"{where}: no timestamp, where the rows before have one", hint=_HINT)
        return (
            row.timestamp if isinstance(row.timestamp, float) else epoch_s(where, "timestamp", row.timestamp)
        )
