"""MT-Bench questions: JSONL with question_id and turns, which are prompts without recorded answers.

Source: fastchat/llm_judge/data/mt_bench/question.jsonl of lm-sys/FastChat; Spec-Bench has the same layout.
"""

from __future__ import annotations

import msgspec

from autotune.domain.workload import Request
from autotune.errors import InputError
from autotune.formats.bodies import DEFAULT_OUTPUT_TOKENS, Dialogue
from autotune.formats.cells import decoded, shown
from autotune.formats.outline import outline
from autotune.formats.reading import Recording, Source, request

_HINT = "a question holds question_id and turns, a list of prompts"


class _Question(msgspec.Struct):
    question_id: str | int
    turns: list[str]


_QUESTION = msgspec.json.Decoder(_Question)


def sniff(head: str) -> bool:
    """True when the first row is a question with turns."""
    return {"question_id", "turns"} <= outline(head).keys


def read(source: Source) -> Recording:
    """A session for each question and a request for each of its turns; without times or counted tokens.

    Answers count `DEFAULT_OUTPUT_TOKENS`, and as many words stand for them in later prompts. Raises
    `InputError` with file:line.
    """
    ids: set[str] = set()

    def parse(where: str, line: str) -> list[Request]:
        question = decoded(where, _QUESTION, line, hint=_HINT)
        name = str(question.question_id)
        if name in ids:
            raise InputError(
                f"{where}: question_id {shown(name)} is there twice", hint="remove one of the rows"
            )
        if not question.turns:
            raise InputError(f"{where}: a question without turns", hint=_HINT)
        ids.add(name)
        said = Dialogue()
        found = []
        for prompt in question.turns:
            said.add("user", prompt)
            found.append(
                request(
                    where,
                    offset_s=0.0,
                    prompt_tokens=said.tokens,
                    output_tokens=DEFAULT_OUTPUT_TOKENS,
                    session=name,
                    body=said.body(),
                )
            )
            said.answered(where, DEFAULT_OUTPUT_TOKENS)
        return found

    return Recording(requests=source.rows(parse), timed=False, counted=False)
