"""Values out of text: numbers, JSON of a known shape, and how a value stands in a message."""

from __future__ import annotations

import math
from typing import TypeVar

import msgspec

from autotune.errors import InputError

T = TypeVar("T")


def decoded(where: str, decoder: msgspec.json.Decoder[T], text: str | bytes, *, hint: str) -> T:
    """JSON of a known shape; raises `InputError` naming `where` (file:line)."""
    try:
        return decoder.decode(text)
    except RecursionError as error:
        raise InputError(f"{where}: JSON nested too deeply", hint=hint) from error
    except (msgspec.MsgspecError, ValueError) as error:  # ValueError: an integer of thousands of digits
        raise InputError(f"{where}: {str(error)[:160]}", hint=hint) from error


def whole(where: str, column: str, text: str) -> int:
    """An integer cell; raises `InputError` naming place, column and value."""
    try:
        return int(text)
    except ValueError:
        raise InputError(
            f"{where}: {column} is {shown(text)}, not a whole number", hint="token counts are integers"
        ) from None


def number(where: str, column: str, text: str) -> float:
    """A finite numeric cell; raises `InputError` naming place, column and value."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{where}: {column} is {shown(text)}, not a number", hint="remove or repair the row")
    return value


def shown(text: str) -> str:
    """A value as it stands in a message: quoted, and cut where it is long."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def brief(tokens: int) -> str:
    """A count as it stands in a message: never thousands of digits."""
    return str(tokens) if abs(tokens) < 10**12 else "more than 10^12"
