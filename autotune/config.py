"""`autotune.yaml`: what a user need not type, decoded into one frozen value."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec
import yaml

from autotune.errors import InputError

NAME = "autotune.yaml"

Scalar = bool | int | float | str


class LoadFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The `load:` section; durations carry a unit."""

    window_requests: int | None = None
    window: str | None = None
    max_window: str | None = None
    lead_in: str | None = None
    max_windows: int | None = None
    resolution: float | None = None
    start_speed: float | None = None
    min_speed: float | None = None
    max_speed: float | None = None
    max_foreign_cpu: str | None = None


class ConfigFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All keys of `autotune.yaml`; every one may be left out, and a flag beats it."""

    sla: list[str] | str | None = None
    model: str | None = None
    variants: dict[str, str] = {}
    workload: str | None = None
    engine: str | None = None
    engine_python: str | None = None
    engine_args: dict[str, Scalar] = {}
    space: str | None = None
    out: str | None = None
    budget: str | None = None
    trials: int | None = None
    gpus: str | int | None = None
    quality: str | None = None
    at: float | None = None
    seed: int | None = None
    ports: str | None = None
    start_deadline: str | None = None
    load: LoadFile = LoadFile()


class _UniqueKeys(yaml.SafeLoader):
    """The safe loader, which takes the last of two equal keys without a word; this one refuses the second."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping whose keys differ."""
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value} stands twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def read_config(folder: Path) -> ConfigFile:
    """The file in `folder`, or all defaults; raises `InputError` with file:line or `$.path`."""
    path = folder / NAME
    if not path.exists() and not path.is_symlink():
        return ConfigFile()
    if not path.is_file():
        raise InputError(f"{NAME} is not a regular file", hint="repair the link, or remove it")
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeys)  # noqa: S506  a safe loader
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"{NAME}:{line}: {error.problem}", hint="the file must be YAML") from error
    # PyYAML reads dates and numbers with Python's own parsers, whose ValueError it lets through.
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InputError(f"cannot read {path}: {error}", hint="the file must be YAML in UTF-8") from error
    if isinstance(raw, dict) and raw.get("quality") is False:  # a bare `off` in YAML 1.1
        raw["quality"] = "off"
    try:
        return msgspec.convert({} if raw is None else raw, ConfigFile)
    except msgspec.ValidationError as error:
        raise InputError(f"{NAME}: {_plainly(str(error))}", hint=_nearest(str(error))) from error


_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}
_TYPES = re.compile(r"Expected `(?P<expected>[^`]+)`, got `(?P<got>[^`]+)`(?: - at `(?P<place>[^`]+)`)?")


def _plainly(message: str) -> str:
    """A wrong type in the words of people; any other message as it is.

    Example: '$.trials is text, where a whole number is expected'.
    """
    found = _TYPES.fullmatch(message)
    if found is None:
        return message
    kinds = [kind for kind in found["expected"].split(" | ") if kind != "null"]
    expected = " or ".join(_WORDS.get(kind, kind) for kind in kinds)
    place, got = found["place"] or "the file", _WORDS.get(found["got"], found["got"])
    return f"{place} is {got}, where {expected} is expected"


def _nearest(message: str) -> str:
    """'did you mean budget?' for an unknown key."""
    known = [*ConfigFile.__struct_fields__, *LoadFile.__struct_fields__]
    quoted = message.split("`")
    near = get_close_matches(quoted[1], known, n=1) if "unknown field" in message and len(quoted) > 1 else []
    return f"did you mean {near[0]}?" if near else "see docs/reference/config.md for the keys"
