"""Requests as a client could have seen them, in milliseconds, for tests of what they mean."""

from __future__ import annotations

from autotune.domain.timing import Timing

MS = 1_000_000


def timing(
    *token_ms: float,
    due_ms: float = 0.0,
    output_tokens: int | None = None,
    ended_ms: float | None = None,
    failed: bool = False,
    cancelled: bool = False,
) -> Timing:
    """A request due at `due_ms` whose tokens came at `token_ms`; finished unless said otherwise.

    `ended_ms` is the last token's time if left out.
    """
    stamps = tuple(int(ms * MS) for ms in token_ms)
    last_ms = max(token_ms, default=due_ms)
    return Timing(
        index=0,
        due_ns=int(due_ms * MS),
        sent_ns=int(due_ms * MS),
        token_ns=stamps,
        prompt_tokens=100,
        output_tokens=len(stamps) if output_tokens is None else output_tokens,
        ended_ns=int((last_ms if ended_ms is None else ended_ms) * MS),
        finished=not failed and not cancelled,
        cancelled=cancelled,
        error="timed out" if failed else "cancelled" if cancelled else None,
    )
