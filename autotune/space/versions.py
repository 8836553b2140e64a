"""Versions of dotted numbers, and ranges of them such as '>=0.26,<0.34'."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping

from autotune.errors import InputError

_LEADING_NUMBERS = re.compile(r"v?([0-9]+(?:\.[0-9]+)*)")
_CLAUSE = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*([0-9]+(?:\.[0-9]+)*)\s*")
_OPERATORS: Mapping[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


def numbers(version: str) -> tuple[int, ...]:
    """(0, 32, 1) for '0.32.1+cpu' or '0.32.1rc2', without trailing zeros; () when none lead.

    A pre-release counts as its release: the flags are those of the branch it was cut from.
    """
    match = _LEADING_NUMBERS.match(version.strip())
    found = [int(part) for part in match.group(1).split(".")] if match else []
    while found and found[-1] == 0:
        found.pop()
    return tuple(found)


def admits(versions: str, version: str) -> bool:
    """True when `version` lies in `versions`; raises `InputError` for a range that is none."""
    clauses = [_CLAUSE.fullmatch(clause) for clause in versions.split(",")]
    admitted = True
    for clause in clauses:
        if clause is None:
            raise InputError(
                f"{versions!r} is not a range of versions",
                hint="write comparisons with commas between them, for example '>=0.26,<0.34'",
            )
        admitted &= _OPERATORS[clause.group(1)](numbers(version), numbers(clause.group(2)))
    return admitted
