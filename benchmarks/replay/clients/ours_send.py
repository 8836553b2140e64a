"""The process that replays for this benchmark: one job, sent through `autotune.replay`, raw stamps kept.

python benchmarks/replay/clients/ours_send.py REQUEST.json REPORT.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from autotune import replay as replaying
from autotune.domain.slo import Sla
from autotune.domain.workload import Request
from autotune.traffic import Due

VOCABULARY = 49_152
"""Of SmolLM2, whose tokenizer the other clients use."""


def job(ask: dict[str, Any]) -> replaying.Job:
    """The schedule as a window that is never cut short: the limit is out of reach."""
    length = {"prompt_tokens": ask["prompt_tokens"], "output_tokens": ask["output_tokens"]}
    due = tuple(
        Due(index=index, due_s=due_s, request=Request(offset_s=due_s, **length), measured=True)
        for index, due_s in enumerate(ask["due_s"])
    )
    return replaying.Job(
        url=ask["url"],
        key="none",
        model=ask["model"],
        vocabulary=VOCABULARY,
        block_tokens=None,
        seed=ask["seed"],
        salt="benchmark",
        cache_salt="benchmark",
        due=due,
        sla=Sla.parse(["ttft_p99=10s"]),
        allowed=(len(due),),
        run_to_end=True,
        drain_s=10.0,
        workers=ask["workers"],
    )


def main() -> None:
    """Replay and write one row a request: due, sent, first token (ns), finished."""
    asked, told = (Path(one) for one in sys.argv[1:3])
    for frame in replaying.replay(job(json.loads(asked.read_text(encoding="utf-8")))):
        if isinstance(frame, replaying.Replayed):
            rows = [
                [one.due_ns, one.sent_ns, one.token_ns[0] if one.token_ns else None, one.finished]
                for one in frame.timings
            ]
            told.write_text(json.dumps({"rows": rows}), encoding="utf-8")


if __name__ == "__main__":
    main()
