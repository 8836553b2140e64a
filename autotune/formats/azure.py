"""Azure LLM inference traces: CSV with TIMESTAMP, ContextTokens and GeneratedTokens.

Source: AzureLLMInferenceDataset2023.md in Azure/AzurePublicDataset. Stamps have seven fractional digits and
no zone; the files end their lines with CRLF.
"""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from pathlib import Path

from autotune.domain.workload import Request, Workload
from autotune.errors import InputError
from autotune.formats.reading import request, text_lines, whole, workload

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def sniff(head: str) -> bool:
    """True when the first line names the trace's columns."""
    names = {cell.strip() for cell in head.partition("\n")[0].split(",")}
    return "TIMESTAMP" in names and len(names & set(COLUMNS)) >= 2


def read(path: Path) -> Workload:
    """All requests; raises `InputError` with file:line for what cannot be replayed."""
    lines = text_lines(path)
    number, header = next(lines)
    names = [cell.strip() for cell in header.split(",")]
    for column in COLUMNS:
        if column not in names:
            raise InputError(
                f"{path}:{number}: no column {column}, only {', '.join(names)}",
                hint=f"an Azure trace has the columns {', '.join(COLUMNS)}",
            )
    places = [names.index(column) for column in COLUMNS]
    requests: list[Request] = []
    origin = None
    for number, line in lines:
        where = f"{path}:{number}"
        try:
            cells = next(csv.reader([line]))
        except csv.Error as error:
            raise InputError(f"{where}: {error}", hint="is the file a CSV?") from error
        if len(cells) != len(names):
            raise InputError(
                f"{where}: {len(cells)} cells where the header has {len(names)}", hint="is the file cut off?"
            )
        stamp, context, generated = (cells[place] for place in places)
        seconds = _seconds(where, stamp)
        origin = seconds if origin is None else origin
        requests.append(
            request(
                where,
                offset_s=seconds - origin,
                prompt_tokens=whole(where, "ContextTokens", context),
                output_tokens=whole(where, "GeneratedTokens", generated),
                previous=requests[-1] if requests else None,
            )
        )
    return workload(path, requests)


def _seconds(where: str, stamp: str) -> float:
    """Seconds since the epoch; any number of fractional digits."""
    whole_part, _, fraction = stamp.partition(".")
    try:
        base = datetime.fromisoformat(whole_part).replace(tzinfo=UTC).timestamp()
        return base + (float(f"0.{fraction}") if fraction else 0.0)
    except ValueError:
        raise InputError(
            f"{where}: TIMESTAMP is {stamp!r}", hint="write YYYY-MM-DD HH:MM:SS.ffffff"
        ) from None
