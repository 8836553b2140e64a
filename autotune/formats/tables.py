"""CSV with a header: cells by the names of their columns."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.errors import InputError
from autotune.formats.cells import shown
from autotune.formats.reading import Source


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of one file, in order."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, source: Source, required: Sequence[str], *, what: str) -> Table:
        """The table in `source`; raises `InputError` for a header that lacks a required column."""
        number, header = next(source.lines())
        names = column_names(header)
        for column in required:
            if column not in names:
                raise InputError(
                    f"{source.path}:{number}: no column {column}, only {shown(', '.join(names))}",
                    hint=f"{what} has the columns {', '.join(required)}",
                )
        if twice := next((name for name in required if names.count(name) > 1), None):
            raise InputError(f"{source.path}:{number}: the column {twice} is there twice", hint="keep one")
        return cls(names)

    def cells(self, where: str, line: str) -> dict[str, str]:
        """The cells of a row by column, without blanks around them; raises `InputError` naming `where`."""
        try:
            cells = next(csv.reader([line]))
        except csv.Error as error:
            raise InputError(f"{where}: {error}", hint="is the file a CSV?") from error
        if len(cells) != len(self.names):
            raise InputError(
                f"{where}: {len(cells)} cells where the header has {len(self.names)}",
                hint="is the file cut off, or of two formats?",
            )
        return {name: cell.strip() for name, cell in zip(self.names, cells, strict=True)}


def column_names(head: str) -> tuple[str, ...]:
    """The cells of the first line; none for what is no CSV."""
    try:
        return tuple(cell.strip() for cell in next(csv.reader([head.partition("\n")[0].strip()]), []))
    except csv.Error:
        return ()
