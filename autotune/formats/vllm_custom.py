"""Prompts for `vllm bench serve --dataset-name custom`: JSONL with prompt and, optionally, output_tokens.

Source: class CustomDataset of vllm/benchmarks/datasets/datasets.py in vllm-project/vllm.
"""

from __future__ import annotations

import msgspec

from autotune.domain.workload import Request
from autotune.formats.bodies import DEFAULT_OUTPUT_TOKENS, completion, estimate
from autotune.formats.cells import decoded
from autotune.formats.outline import outline
from autotune.formats.reading import Recording, Source, request

_HINT = 'a row is {"prompt": …} with an optional output_tokens'


class _Row(msgspec.Struct):
    prompt: str
    output_tokens: int | None = None


_ROW = msgspec.json.Decoder(_Row)


def sniff(head: str) -> bool:
    """True when the first row has a prompt and nothing that other formats with prompts have."""
    first = outline(head)
    others = ("tokens_count", "relative_timestamp", "body", "messages")
    return "prompt" in first.keys and not first.ours and not any(key.endswith(others) for key in first.keys)


def read(source: Source) -> Recording:
    """The prompts in order, without times; their tokens are estimated from the text.

    Raises `InputError` with file:line.
    """
    return Recording(requests=source.rows(_parse), timed=False, counted=False)


def _parse(where: str, line: str) -> Request:
    row = decoded(where, _ROW, line, hint=_HINT)
    return request(
        where,
        offset_s=0.0,
        prompt_tokens=estimate(row.prompt),
        output_tokens=DEFAULT_OUTPUT_TOKENS if row.output_tokens is None else row.output_tokens,
        body=completion(row.prompt),
    )
