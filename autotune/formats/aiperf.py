"""Request files of aiperf with text: JSONL rows of a prompt, a message list, a payload or a conversation.

Sources: docs/benchmark-modes/trace-replay.md (text_input, messages, payload, message_mode), and
docs/tutorials/custom-dataset.md (text, turns) of ai-dynamo/aiperf; timestamp and delay are in ms. Rows of
lengths only are read by `mooncake`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from autotune.domain.workload import Request
from autotune.errors import InputError
from autotune.formats.bodies import Dialogue, asked_tokens, contents, estimate_body
from autotune.formats.cells import decoded
from autotune.formats.order import in_order
from autotune.formats.outline import outline
from autotune.formats.reading import Recording, Source, first_row, request

_HINT = "a row holds one of text_input, messages, payload, text and turns, and timestamp or delay in ms"
_OF_A_ROW = {"timestamp", "delay", "session_id", "output_length", "message_mode"}


class _Turn(msgspec.Struct):
    text: str | None = None
    role: str | None = None
    timestamp: float | None = None
    delay: float | None = None
    output_length: int | None = None
    extra: dict[str, Any] | None = None


class _Row(_Turn):
    text_input: str | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    payload: dict[str, Any] | None = None
    message_mode: str = "history"
    session_id: str | int | None = None
    turns: list[_Turn] | None = None


_ROW = msgspec.json.Decoder(_Row)


def sniff(head: str) -> bool:
    """True when the first row has text in one of aiperf's ways."""
    first = outline(head)
    keys = first.keys
    if first.opens != "{" or first.ours or keys & {"question_id", "body", "relative_timestamp", "call_type"}:
        return False
    if any(key.endswith("tokens_count") for key in keys):
        return False
    return bool(keys & {"text_input", "payload", "text", "turns"}) or bool(
        "messages" in keys and keys & _OF_A_ROW
    )


def read(source: Source) -> Recording:
    """The recording; raises `InputError` with file:line for what cannot be replayed.

    Answers were not recorded: one of the asked length stands in the prompts after it, except where rows bring
    their whole history. Tokens are estimated. Conversations whose turns have stamps are held and sorted.
    """
    row = first_row(source, _ROW) or _Row()
    in_turns = bool(row.turns) and any(turn.timestamp is not None for turn in row.turns or ())
    timed = row.timestamp is not None or in_turns
    rows = source.rows(_Reader(timed=timed), ordered=not in_turns)
    return Recording(
        requests=iter(in_order(rows)) if in_turns else rows,
        timed=timed,
        counted=False,
    )


@dataclass(slots=True, kw_only=True)
class _Reader:
    """Rows as requests, in order: a turn without a stamp is put at the moment of the row before it."""

    timed: bool
    latest_s: float = 0.0
    sessions: dict[str, Dialogue] = field(default_factory=dict)

    def __call__(self, where: str, line: str) -> list[Request]:
        row = decoded(where, _ROW, line, hint=_HINT)
        session = None if row.session_id is None else str(row.session_id)
        if row.turns is not None:
            if not row.turns:
                raise InputError(f"{where}: a conversation without turns", hint=_HINT)
            name = session or f"row {where.rpartition(':')[2]}"
            return self._conversation(where, row.turns, name)
        if self.timed and row.timestamp is None and session is None:
            raise InputError(f"{where}: no timestamp", hint=_HINT)
        given = [row.text_input, row.messages, row.payload, row.text]
        if sum(one is not None for one in given) != 1:
            raise InputError(f"{where}: not one prompt", hint=_HINT)
        return [self._request(where, row, self._body(where, row, session), session)]

    def _body(self, where: str, row: _Row, session: str | None) -> Mapping[str, Any]:
        if row.payload is not None:
            return row.payload
        if row.messages is not None and row.message_mode != "delta":
            body: dict[str, Any] = {"messages": row.messages}
        elif row.text is not None:  # each row of this kind is complete in itself
            body = {"messages": [{"role": row.role or "user", "content": row.text}]}
        else:
            said = self.sessions.setdefault(session, Dialogue()) if session is not None else Dialogue()
            if row.text_input is not None:
                said.add("user", row.text_input)
            said.messages.extend(row.messages or ())
            body = {"messages": list(said.messages)}
            said.answered(where, self._output_tokens(where, row, body))
        if row.tools is not None:
            body["tools"] = row.tools
        return body

    def _conversation(self, where: str, turns: list[_Turn], name: str) -> list[Request]:
        said = Dialogue()
        found: list[Request] = []
        for place, turn in enumerate(turns):
            if turn.text is None:
                raise InputError(f"{where}: turn {place + 1} has no text", hint=_HINT)
            said.add(turn.role or "user", turn.text)
            if turn.role == "system" and place == 0:
                continue
            found.append(self._request(where, turn, {"messages": list(said.messages)}, name))
            said.answered(where, found[-1].output_tokens)
        return found

    def _request(self, where: str, turn: _Turn, body: Mapping[str, Any], session: str | None) -> Request:
        text = msgspec.json.encode({**body, **(turn.extra or {})}).decode()
        found = request(
            where,
            offset_s=turn.timestamp / 1000 if self.timed and turn.timestamp is not None else self.latest_s,
            prompt_tokens=estimate_body(contents(where, text)),
            output_tokens=self._output_tokens(where, turn, body),
            session=session,
            think_s=None if turn.delay is None else turn.delay / 1000,
            body=text,
        )
        self.latest_s = found.offset_s
        return found

    def _output_tokens(self, where: str, turn: _Turn, body: Mapping[str, Any]) -> int:
        if turn.output_length is not None:
            return turn.output_length
        return asked_tokens(where, {**body, **(turn.extra or {})})
