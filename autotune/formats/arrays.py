"""JSON in one piece: the values of an array with the line where each begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from autotune.domain.workload import Request
from autotune.errors import InputError
from autotune.formats.reading import Source

_RAWS = msgspec.json.Decoder(list[msgspec.Raw])

T = TypeVar("T")


def whole_json(source: Source, decoder: msgspec.json.Decoder[T], *, hint: str) -> tuple[bytearray, T]:
    """All of the file and what it says; raises `InputError` with file:line for what is not of that shape."""
    data = source.whole()
    try:
        return data, decoder.decode(data)
    except RecursionError as error:
        raise InputError(f"{source.path}:1: JSON nested too deeply", hint=hint) from error
    except (msgspec.MsgspecError, ValueError) as error:
        said = str(error)
        _, byte, place = said.rpartition("(byte ")
        at = int(place.rstrip(")")) if byte and place.rstrip(")").isdigit() else 0
        line = 1 + data.rstrip().count(b"\n", 0, None if "truncated" in said else at)
        raise InputError(f"{source.path}:{line}: {said[:160]}", hint=hint) from error


def groups(source: Source, parse: Callable[[str, bytes], list[Request]], *, hint: str) -> Iterator[Request]:
    """The requests of the values of a file that is one array; as `Source.groups` for lines."""
    data, raws = whole_json(source, _RAWS, hint=hint)
    for where, value in placed(source, data, raws):
        try:
            found = parse(where, value)
        except InputError as error:
            source.tolerate(error)
        else:
            yield from found


def placed(
    source: Source, data: bytes | bytearray, raws: Sequence[msgspec.Raw]
) -> Iterator[tuple[str, bytes]]:
    """The values of an array of `data`, each with the `FILE:LINE` where it begins.

    Between one value and the next stand a comma and blanks only, so that each is found where it is.
    """
    line, at = 1, 0
    for raw in raws:
        value = bytes(raw)
        begins = data.find(value, at)
        line += data.count(b"\n", at, begins)
        yield f"{source.path}:{line}", value
        line += value.count(b"\n")
        at = begins + len(value)
