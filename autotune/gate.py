"""The quality gate: perplexity of a fixed text, asked of the running engine.

Perplexity is exp(−mean log-probability of the next token) over windows that do not overlap; the first token
of a window is context and is not scored. It reacts to weights, quantisation and KV dtype, not to scheduling.
"""

from __future__ import annotations

import math
import time
from typing import TypeVar

import httpx
import msgspec

from autotune.domain.launch import Endpoint
from autotune.domain.outcome import Quality
from autotune.errors import EngineError
from autotune.shipped import shipped

WINDOW_TOKENS = 1024
"""Fixed, because the number depends on it: 20.30 with 1,024 and 23.53 with 256 for the same model."""
TIMEOUT_S = 300.0

T = TypeVar("T")


class _Tokens(msgspec.Struct):
    tokens: list[int]


class _Logprob(msgspec.Struct):
    logprob: float


class _Scored(msgspec.Struct):
    prompt_logprobs: list[dict[str, _Logprob] | None]


class _Completion(msgspec.Struct):
    choices: list[_Scored]


def quality_text() -> str:
    """The bundled text: plain English written for this project and given to the public domain (CC0)."""
    return shipped("workloads/quality-text.txt").read_text(encoding="utf-8")


def perplexity(endpoint: Endpoint, text: str, *, max_tokens: int) -> tuple[float, int]:
    """Perplexity of `text` and the number of tokens scored, in windows of at most `max_tokens`.

    Raises `EngineError` when the engine does not answer with a score for every token.
    """
    headers = {"authorization": f"Bearer {endpoint.key}"}
    width = min(WINDOW_TOKENS, max_tokens - 2)
    nll, scored = 0.0, 0
    with httpx.Client(base_url=endpoint.url, headers=headers, timeout=TIMEOUT_S, trust_env=False) as client:
        body = {"model": endpoint.model, "prompt": text, "add_special_tokens": False}
        ids = _ask(client, "/tokenize", body, _Tokens).tokens
        for start in range(0, len(ids) - 1, width):
            window = ids[start : start + width + 1]
            body = {
                "model": endpoint.model,
                "prompt": window,
                "max_tokens": 1,
                "temperature": 0,
                "prompt_logprobs": 0,
            }
            scores = _ask(client, "/v1/completions", body, _Completion).choices[0].prompt_logprobs
            if len(scores) != len(window):
                raise EngineError(f"{len(scores)} prompt log-probabilities for {len(window)} tokens")
            for token, score in zip(window[1:], scores[1:], strict=True):
                nll -= (score or {})[str(token)].logprob
                scored += 1
    return math.exp(nll / scored), scored


def _ask(client: httpx.Client, path: str, body: dict[str, object], kind: type[T]) -> T:
    try:
        answer = client.post(path, json=body)
        answer.raise_for_status()
        return msgspec.json.decode(answer.content, type=kind)
    except (httpx.HTTPError, msgspec.DecodeError) as error:
        raise EngineError(f"{path} did not answer the quality gate: {error}") from error


def measure_quality(
    endpoint: Endpoint,
    text: str,
    *,
    precision: str,
    reference: float | None,
    limit: float,
    max_tokens: int,
) -> Quality:
    """Perplexity of the running precision against `reference`; None makes this one the reference."""
    begun = time.monotonic()
    value, tokens = perplexity(endpoint, text, max_tokens=max_tokens)
    base = value if reference is None else reference
    return Quality(
        precision=precision,
        perplexity=value,
        reference=base,
        increase=value / base - 1,
        limit=limit,
        tokens=tokens,
        seconds=time.monotonic() - begun,
    )
