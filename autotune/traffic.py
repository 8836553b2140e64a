"""When to send what: windows cut from a recording, their due times, and their prompts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.domain.workload import Request

LEAD_IN_SHARE = 0.1
"""Share of the recording, at its front, that only serves as lead-in of the first window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """One request of a window: `due_s` counts from the window's start; lead-in is not measured."""

    index: int
    due_s: float
    prompt_tokens: int
    output_tokens: int
    measured: bool


HELD_OUT_SHARE = 0.45
"""Share at its end that only the final confirmation may use."""


def holdout(requests: int) -> int:
    """Index of the first request that the search never sees."""
    return int(requests * (1 - HELD_OUT_SHARE) + 1e-9)


def mean_rate_rps(requests: Sequence[Request]) -> float:
    """Mean recorded rate of a slice: gaps over duration."""
    return (len(requests) - 1) / max(requests[-1].offset_s - requests[0].offset_s, 1e-9)


def first_of_search(requests: int) -> int:
    """Index of the first measured request of the search slice."""
    return int(requests * LEAD_IN_SHARE)


def cut(
    requests: Sequence[Request],
    *,
    first: int,
    end: int,
    speed: float,
    count: int,
    at_least_s: float,
    at_most_s: float,
    lead_in_s: float,
) -> tuple[Due, ...]:
    """Requests of [first, end) until there are `count` of them and `at_least_s` is over, with their lead-in.

    Both, because few requests prove nothing and a queue needs time to build: 300 requests at 60 requests/s
    held in 5 s what failed in 20. `at_most_s` ends the window in any case; so does `end`.
    `speed` divides the recorded gaps: at 1 the recorded stamps are replayed exactly. The lead-in is
    what arrived up to `lead_in_s` before the first measured request, in replayed time.
    """
    origin = requests[first].offset_s
    start = first
    while start > 0 and (origin - requests[start - 1].offset_s) / speed <= lead_in_s:
        start -= 1
    lead_s = (origin - requests[start].offset_s) / speed
    window = []
    for index in range(start, end):
        request = requests[index]
        due_s = lead_s + (request.offset_s - origin) / speed
        enough = index - first >= count and due_s - lead_s > at_least_s
        if enough or due_s - lead_s > at_most_s:
            break
        window.append(
            Due(
                index=index,
                due_s=due_s,
                prompt_tokens=request.prompt_tokens,
                output_tokens=request.output_tokens,
                measured=index >= first,
            )
        )
    return tuple(window)


def offered_rps(window: Sequence[Due]) -> float | None:
    """Mean rate of the measured part: gaps over duration; None below two requests."""
    due = [request.due_s for request in window if request.measured]
    return (len(due) - 1) / (due[-1] - due[0]) if len(due) > 1 and due[-1] > due[0] else None


def prompt(index: int, tokens: int, *, vocabulary: int, seed: int, salt: str) -> list[int]:
    """`tokens` token ids, the same for the same seed, salt and index in every process.

    A recording with lengths alone says nothing of the words; ids are drawn evenly from the ordinary
    part of the vocabulary, where special tokens (first and last ids) do not live. `random.Random`
    seeded by a string goes through SHA-512 and so does not depend on the interpreter's hash seed.
    """
    draw = random.Random(f"{seed}/{salt}/{index}")  # noqa: S311  token ids hide nothing
    low = min(256, vocabulary // 8)
    high = max(low + 1, min(vocabulary, 32_000) * 7 // 8)
    return draw.choices(range(low, high), k=tokens)
