"""ShareGPT: conversations of human and gpt turns, as one JSON array or one object a line.

Source: data/dummy_conversation.json of lm-sys/FastChat, whose layout ShareGPT_V3 has too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from autotune.domain.workload import Request
from autotune.errors import InputError
from autotune.formats.arrays import groups
from autotune.formats.bodies import Dialogue, estimate
from autotune.formats.cells import decoded, shown
from autotune.formats.outline import outline
from autotune.formats.reading import Recording, Source, request

_ROLES = {"human": "user", "user": "user", "system": "system"}
_ANSWERS = ("gpt", "assistant", "chatgpt", "bing", "bard")
_HINT = 'a conversation is {"id": …, "conversations": [{"from": "human", "value": …}, {"from": "gpt", …}]}'


class _Turn(msgspec.Struct):
    said_by: str = msgspec.field(name="from")
    value: str


class _Dialogue(msgspec.Struct):
    conversations: list[_Turn]
    id: str | int | None = None


_DIALOGUE = msgspec.json.Decoder(_Dialogue)


def sniff(head: str) -> bool:
    """True when the first object holds conversations."""
    return "conversations" in outline(head).keys


def read(source: Source) -> Recording:
    """A request for each turn that gpt answered, with the recorded turns before it; without times.

    Token counts are estimated from the text. Raises `InputError` with file:line.
    """
    in_one_piece = outline(source.head()).opens == "[{"
    requests = groups(source, _Reader(), hint=_HINT) if in_one_piece else source.rows(_Reader())
    return Recording(requests=requests, timed=False, counted=False)


@dataclass(slots=True)
class _Reader:
    """Dialogues as requests; holds their ids."""

    ids: set[str] = field(default_factory=set)

    def __call__(self, where: str, text: str | bytes) -> list[Request]:
        dialogue = decoded(where, _DIALOGUE, text, hint=_HINT)
        name = where.rpartition(":")[2] if dialogue.id is None else str(dialogue.id)
        if name in self.ids:
            raise InputError(
                f"{where}: the id {shown(name)} is there twice", hint="give each conversation its own"
            )
        said = Dialogue()
        found: list[Request] = []
        for turn in dialogue.conversations:
            if turn.said_by in _ROLES:
                said.add(_ROLES[turn.said_by], turn.value)
            elif turn.said_by not in _ANSWERS:
                raise InputError(
                    f"{where}: a turn by {shown(turn.said_by)}", hint="turns are by human, gpt or system"
                )
            elif said.messages and said.messages[-1]["role"] == "user":
                found.append(
                    request(
                        where,
                        offset_s=0.0,
                        prompt_tokens=said.tokens,
                        output_tokens=estimate(turn.value),
                        session=name,
                        body=said.body(),
                    )
                )
                said.add("assistant", turn.value)
        self.ids.add(name)
        return found
