"""The requests of a window as bytes, before its clock runs."""

from __future__ import annotations

import time
from collections.abc import Callable

from autotune.openai import Manner, recorded, synthetic
from autotune.replay.job import Job
from autotune.replay.place import Place
from autotune.traffic import Due, prompt

ALIVE_S = 0.25


def requests(job: Job, place: Place, alive: Callable[[], None]) -> list[bytes]:
    """Each request of a job as the bytes that will be written; calls `alive` now and then."""
    manner = Manner(
        model=job.model,
        cache_salt=job.cache_salt,
        natural_stops=job.natural_stops,
        vllm_fields=job.vllm_fields,
    )
    told, ready = time.monotonic(), []
    for due in job.due:
        path, body = _asked(due, job, manner)
        ready.append(place.request(path, body, job.key))
        if time.monotonic() - told > ALIVE_S:  # long prompts take a while
            told = time.monotonic()
            alive()
    return ready


def _asked(due: Due, job: Job, manner: Manner) -> tuple[str, bytes]:
    request = due.request
    if request.body is not None:
        return recorded(request.body, request.output_tokens, manner)
    words = prompt(
        request,
        due.index,
        block_tokens=job.block_tokens,
        vocabulary=job.vocabulary,
        seed=job.seed,
        salt=job.salt,
    )
    return synthetic(words, request.output_tokens, manner)
