"""The words of requests of which only lengths and block ids were recorded."""

from __future__ import annotations

import random

from autotune.domain.workload import Request


def prompt(
    request: Request, index: int, *, block_tokens: int | None, vocabulary: int, seed: int, salt: str
) -> list[int]:
    """The request's `prompt_tokens` token ids, the same for the same seed and salt in every process.

    A recording with lengths and block ids says nothing of the words: a block's tokens follow from its id, so
    that equal ids are equal tokens in every request of a window, and the rest follows from `index`. Ids are
    drawn evenly from the ordinary part of the vocabulary, where special tokens (first and last ids) do not
    live. `random.Random` seeded by a string goes through SHA-512 and so does not depend on the interpreter's
    hash seed.
    """
    low = min(256, vocabulary // 8)
    ordinary = range(low, max(low + 1, min(vocabulary, 32_000) * 7 // 8))
    tokens: list[int] = []
    for block in request.blocks if block_tokens else ():
        room = request.prompt_tokens - len(tokens)
        tokens += _draw(f"{seed}/{salt}/block/{block}").choices(ordinary, k=block_tokens or 0)[:room]
    return tokens + _draw(f"{seed}/{salt}/{index}").choices(ordinary, k=request.prompt_tokens - len(tokens))


def _draw(key: str) -> random.Random:
    return random.Random(key)  # noqa: S311  token ids hide nothing
