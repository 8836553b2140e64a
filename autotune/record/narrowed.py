"""Values of somebody else's JSON as what they should be, and as nothing where they are not."""

from __future__ import annotations

from typing import Any

MOST = 10_000_000
"""More tokens than this in one prompt or answer are a slip of whoever counted."""
_ID = range(2**31)


def as_map(value: Any) -> dict[str, Any]:
    """The object, or an empty one."""
    return value if isinstance(value, dict) else {}


def as_maps(value: Any) -> list[dict[str, Any]]:
    """The objects in a list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def as_text(value: Any) -> str:
    """The string, or an empty one."""
    return value if isinstance(value, str) else ""


def as_count(value: Any) -> int | None:
    """A whole number from 0 to `MOST`, else None."""
    return value if type(value) is int and 0 <= value <= MOST else None


def as_ids(value: Any) -> tuple[int, ...] | None:
    """Token ids, or None for an empty list and for anything else."""
    if not isinstance(value, list) or not value or not all(type(one) is int and one in _ID for one in value):
        return None
    return tuple(value)
