"""Formats, ours and strangers', found by the same entry points."""

from __future__ import annotations

from importlib.metadata import entry_points

from autotune.errors import SetupError


def load_all(group: str) -> dict[str, object]:
    """Every extension of a group by name; raises `SetupError` naming one that does not load."""
    found: dict[str, object] = {}
    for point in entry_points(group=group):
        try:
            found[point.name] = point.load()
        except Exception as error:
            raise SetupError(
                f"the extension {point.name} ({point.value}) does not load: {error}",
                hint="uninstall or repair the package that brings it",
            ) from error
    return found
