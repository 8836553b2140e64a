"""Azure LLM inference traces: CSV with TIMESTAMP, ContextTokens and GeneratedTokens.

Source: AzureLLMInferenceDataset2023.md and AzureLLMInferenceDataset2024.md in Azure/AzurePublicDataset.
Stamps of 2023 have seven fractional digits and no zone, and the files end their lines with CRLF; those of
2024 have a zone.
"""

from __future__ import annotations

from autotune.domain.workload import Request
from autotune.formats.cells import whole
from autotune.formats.reading import Recording, Source, request
from autotune.formats.stamps import epoch_s
from autotune.formats.tables import Table, column_names

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def sniff(head: str) -> bool:
    """True when the first line names the trace's columns."""
    names = set(column_names(head))
    return "TIMESTAMP" in names and len(names & set(COLUMNS)) >= 2


def read(source: Source) -> Recording:
    """The recording; raises `InputError` with file:line for what cannot be replayed."""
    table = Table.of(source, COLUMNS, what="an Azure trace")

    def parse(where: str, line: str) -> Request:
        cells = table.cells(where, line)
        return request(
            where,
            offset_s=epoch_s(where, "TIMESTAMP", cells["TIMESTAMP"]),
            prompt_tokens=whole(where, "ContextTokens", cells["ContextTokens"]),
            output_tokens=whole(where, "GeneratedTokens", cells["GeneratedTokens"]),
        )

    return Recording(requests=source.rows(parse, header=True))
