"""Files that travel with `autotune`: search spaces, workloads and report templates."""

from __future__ import annotations

from pathlib import Path

from autotune.errors import SetupError

_PACKAGE = Path(__file__).resolve().parent


def shipped(relative: str) -> Path:
    """The file or folder of that name, for example 'reports/templates'.

    An installed package holds it in `_shipped/`, a checkout beside the package. Raises `SetupError`
    when it is in neither.
    """
    places = [_PACKAGE / "_shipped"]
    # Beside an installed package stand other people's packages, and one may be called `workloads`.
    if (_PACKAGE.parent / "pyproject.toml").is_file():
        places.append(_PACKAGE.parent)
    for place in places:
        if (place / relative).exists():
            return place / relative
    raise SetupError(
        f"{relative!r}, which ships with autotune, is missing",
        hint="install it again: pip install --force-reinstall autotune-serving",
    )
