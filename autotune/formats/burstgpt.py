"""BurstGPT: CSV with Timestamp (s), Request tokens, Response tokens and, later, Session ID and Elapsed time.

Source: README.md of HPMLL/BurstGPT: stamps count from midnight of the first day, and failed requests have 0
response tokens.
"""

from __future__ import annotations

from autotune.domain.workload import Request
from autotune.formats.cells import number, whole
from autotune.formats.reading import Recording, Source, request
from autotune.formats.tables import Table, column_names

COLUMNS = ("Timestamp", "Request tokens", "Response tokens")


def sniff(head: str) -> bool:
    """True when the first line names the trace's columns."""
    names = set(column_names(head))
    return len(names & set(COLUMNS)) >= 2 and bool(names & set(COLUMNS[1:]))


def read(source: Source) -> Recording:
    """The recording, failed requests left out; raises `InputError` with file:line.

    The think time of a session's turn is its stamp less the stamp and the elapsed time of the turn before it,
    where that is recorded and not negative.
    """
    table = Table.of(source, COLUMNS, what="a BurstGPT trace")
    ended_s: dict[str, float] = {}

    def parse(where: str, line: str) -> Request | None:
        cells = table.cells(where, line)
        stamp_s = number(where, "Timestamp", cells["Timestamp"])
        output_tokens = whole(where, "Response tokens", cells["Response tokens"])
        if output_tokens == 0:
            return None
        session = cells.get("Session ID") or None
        think_s = None
        if session is not None and session in ended_s and stamp_s >= ended_s[session]:
            think_s = stamp_s - ended_s[session]
        found = request(
            where,
            offset_s=stamp_s,
            prompt_tokens=whole(where, "Request tokens", cells["Request tokens"]),
            output_tokens=output_tokens,
            session=session,
            think_s=think_s,
        )
        if session is not None:
            elapsed = cells.get("Elapsed time")
            ended_s.pop(session, None)
            if elapsed:
                ended_s[session] = stamp_s + number(where, "Elapsed time", elapsed)
        return found

    return Recording(requests=source.rows(parse, header=True))
