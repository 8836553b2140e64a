"""Wall-clock stamps as people and tools write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from autotune.errors import InputError
from autotune.formats.cells import shown

_ISO = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(\.\d*)?(Z|[+-]\d\d:?\d\d)?", re.ASCII)


def epoch_s(where: str, name: str, text: str) -> float:
    """Seconds since 1970 of a date and time with any number of fractional digits, UTC where it has no zone.

    Raises `InputError` naming `where` (file:line) and the field.
    """
    match = _ISO.fullmatch(text.strip())
    try:
        if match is None:
            raise ValueError  # noqa: TRY301  the same answer as for the 30th of February
        moment, fraction, zone = match.groups()
        whole = datetime.fromisoformat(moment + (zone or "Z")).astimezone(UTC).timestamp()
        return whole + (float(f"0{fraction}") if fraction and fraction != "." else 0.0)
    except (ValueError, OverflowError):
        raise InputError(
            f"{where}: {name} is {shown(text)}", hint="write YYYY-MM-DD HH:MM:SS.ffffff"
        ) from None
