"""Every built-in workload format keeps the contract."""

from __future__ import annotations

from autotune.formats import azure, native
from autotune.testing.contracts import FormatContract

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROWS = (
    "2023-11-16 18:15:46.6805900,374,44\n"
    "2023-11-16 18:15:50.9951690,396,109\n"
    "2023-11-16 18:15:51.2224670,879,55\n"
)


class TestAzure(FormatContract):
    format = azure
    example = HEADER + ROWS
    broken = {
        "column": ("TIMESTAMP,ContextTokens,Answer\n" + ROWS, 1),
        "number": (HEADER + ROWS + "2023-11-16 18:15:52.0,many,5\n", 5),
        "zero": (HEADER + ROWS + "2023-11-16 18:15:52.0,5,0\n", 5),
        "stamp": (HEADER + ROWS + "yesterday,5,5\n", 5),
        "backwards": (HEADER + ROWS + "2023-11-16 18:15:50.0,5,5\n", 5),
        "cut": (HEADER + ROWS + "2023-11-16 18:15:52.0,5\n", 5),
    }


LINES = (
    '{"offset_s": 0.0, "prompt_tokens": 374, "output_tokens": 44}\n'
    '{"offset_s": 4.3, "prompt_tokens": 396, "output_tokens": 109}\n'
    '{"offset_s": 4.5, "prompt_tokens": 879, "output_tokens": 55}\n'
)


class TestNative(FormatContract):
    format = native
    example = LINES
    broken = {
        "json": (LINES + '{"offset_s": 5\n', 4),
        "key": (LINES + '{"offset_s": 5, "prompt_tokens": 1}\n', 4),
        "text": (LINES + '{"offset_s": "5", "prompt_tokens": 1, "output_tokens": 1}\n', 4),
        "zero": (LINES + '{"offset_s": 5, "prompt_tokens": 0, "output_tokens": 1}\n', 4),
        "backwards": (LINES + '{"offset_s": 1, "prompt_tokens": 1, "output_tokens": 1}\n', 4),
    }
