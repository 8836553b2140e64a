"""Raw stamps on disk: one Parquet row a request, so that any SLA can be judged again later."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autotune.domain.timing import Timing
from autotune.whole import whole


def write_timings(timings: Sequence[Timing], path: Path) -> None:
    """Write the timings; the file appears whole or not at all.

    Columns: those of `Timing`, and `first_ns`, `last_ns` (null without a token) for convenience.
    """
    import pandas as pd  # noqa: PLC0415  heavy, and the measuring client never needs it

    frame = pd.DataFrame(
        {
            "index": [timing.index for timing in timings],
            "due_ns": [timing.due_ns for timing in timings],
            "sent_ns": pd.array([timing.sent_ns for timing in timings], dtype="Int64"),
            "first_ns": pd.array([t.token_ns[0] if t.token_ns else None for t in timings], dtype="Int64"),
            "last_ns": pd.array([t.token_ns[-1] if t.token_ns else None for t in timings], dtype="Int64"),
            "ended_ns": [timing.ended_ns for timing in timings],
            "token_ns": [list(timing.token_ns) for timing in timings],
            "prompt_tokens": [timing.prompt_tokens for timing in timings],
            "output_tokens": [timing.output_tokens for timing in timings],
            "finished": [timing.finished for timing in timings],
            "cancelled": [timing.cancelled for timing in timings],
            "error": pd.array([timing.error for timing in timings], dtype="string"),
            "seen_prompt_tokens": pd.array([timing.seen_prompt_tokens for timing in timings], dtype="Int64"),
        }
    )
    with whole(path) as part:
        frame.to_parquet(part, index=False, compression="zstd")


def read_timings(path: Path) -> tuple[Timing, ...]:
    """The timings of one window, exactly as they were written."""
    import pyarrow.parquet as pq  # noqa: PLC0415  as above

    rows = pq.read_table(path).drop_columns(["first_ns", "last_ns"]).to_pylist()
    return tuple(Timing(**{**row, "token_ns": tuple(row["token_ns"])}) for row in rows)
