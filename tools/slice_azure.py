"""Rows of an Azure LLM inference trace within limits of length and time, their text untouched.

    python tools/slice_azure.py SOURCE OUT [--max-context N] [--max-output N] [--max-total N]
        [--from-minute M] [--minutes M]

Streams: one row is held at a time. The header and every chosen row keep their text; line ends become LF
(the source has CRLF and none after its last row). Prints what was chosen: rows, rate and mean lengths.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One request of the trace, and the line that it stands in."""

    line: str
    arrival: datetime
    context: int
    output: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is chosen: lengths at most, and arrival in `minutes` from `from_minute` on; None: any.

    Minutes count from the first row of the trace.
    """

    context: int | None
    output: int | None
    total: int | None
    from_minute: float
    minutes: float | None

    def allow(self, row: Row) -> bool:
        """True when the row's lengths are within all limits."""
        pairs = (
            (row.context, self.context),
            (row.output, self.output),
            (row.context + row.output, self.total),
        )
        return all(limit is None or length <= limit for length, limit in pairs)


def rows(source: Path) -> Iterator[Row]:
    """The rows of a trace in order; ends the script with file and line at the first unreadable one."""
    with source.open(encoding="utf-8") as file:
        if file.readline().rstrip("\n") != HEADER:
            raise SystemExit(f"{source}:1: the header is not {HEADER!r}")
        for number, text in enumerate(file, start=2):
            line = text.rstrip("\n")
            try:
                stamp, context, output = line.split(",")
                # the seventh digit of a second is below what datetime holds; it is cut off
                arrival = datetime.fromisoformat(stamp)
                yield Row(line=line, arrival=arrival, context=int(context), output=int(output))
            except ValueError as error:
                raise SystemExit(f"{source}:{number}: {line!r} is not a row of the trace") from error


def chosen(source: Path, limits: Limits) -> Iterator[Row]:
    """The rows within the limits; reading stops at the first row past the time."""
    origin: datetime | None = None
    for row in rows(source):
        origin = origin or row.arrival
        after = row.arrival - origin - timedelta(minutes=limits.from_minute)
        if limits.minutes is not None and after >= timedelta(minutes=limits.minutes):
            return
        if after >= timedelta() and limits.allow(row):
            yield row


def write_slice(source: Path, out: Path, limits: Limits) -> str:
    """Write the chosen rows and return one line that describes them."""
    count = context = output = 0
    first = last = None
    part = out.with_name(out.name + ".part")
    try:
        with part.open("w", encoding="utf-8", newline="\n") as file:
            file.write(HEADER + "\n")
            for row in chosen(source, limits):
                file.write(row.line + "\n")
                first, last = first or row, row
                count, context, output = count + 1, context + row.context, output + row.output
        if first is None or last is None or first.arrival == last.arrival:
            raise SystemExit(f"{source}: {count} rows are within the limits; a rate needs two arrivals")
        part.rename(out)
    finally:
        part.unlink(missing_ok=True)
    seconds = (last.arrival - first.arrival).total_seconds()
    return (
        f"{out}: {count:,} requests in {seconds:,.1f} s, {(count - 1) / seconds:.4f} requests/s, "
        f"mean prompt {context / count:.1f} tokens, mean output {output / count:.1f} tokens"
    )


def main() -> None:
    """Read the arguments and write the slice."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("source", type=Path, help="a trace as Azure publishes it")
    parser.add_argument("out", type=Path, help="the file to write")
    parser.add_argument("--max-context", type=int, help="longest prompt in tokens")
    parser.add_argument("--max-output", type=int, help="longest output in tokens")
    parser.add_argument("--max-total", type=int, help="most tokens in prompt and output together")
    parser.add_argument("--from-minute", type=float, default=0.0, help="where to begin, from its first row")
    parser.add_argument("--minutes", type=float, help="how much of the trace")
    arguments = parser.parse_args()
    limits = Limits(
        context=arguments.max_context,
        output=arguments.max_output,
        total=arguments.max_total,
        from_minute=arguments.from_minute,
        minutes=arguments.minutes,
    )
    try:
        print(write_slice(arguments.source, arguments.out, limits))
    except OSError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
