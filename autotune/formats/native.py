"""Our own format, version 1: JSONL, one request a line.

`{"offset_s": 0.25, "prompt_tokens": 374, "output_tokens": 44}`; other keys are ignored.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from autotune.domain.workload import Request, Workload
from autotune.errors import InputError
from autotune.formats.reading import request, text_lines, workload


class _Row(msgspec.Struct):
    offset_s: float
    prompt_tokens: int
    output_tokens: int


_ROW = msgspec.json.Decoder(_Row)


def sniff(head: str) -> bool:
    """True when the first line is an object with our first key."""
    line = head.partition("\n")[0].strip()
    return line.startswith("{") and '"offset_s"' in line


def read(path: Path) -> Workload:
    """All requests; raises `InputError` with file:line for what cannot be replayed."""
    requests: list[Request] = []
    for number, line in text_lines(path):
        where = f"{path}:{number}"
        try:
            row = _ROW.decode(line)
        except msgspec.MsgspecError as error:
            raise InputError(
                f"{where}: {error}", hint="each line holds offset_s, prompt_tokens and output_tokens"
            ) from error
        requests.append(
            request(
                where,
                offset_s=row.offset_s,
                prompt_tokens=row.prompt_tokens,
                output_tokens=row.output_tokens,
                previous=requests[-1] if requests else None,
            )
        )
    return workload(path, requests)
