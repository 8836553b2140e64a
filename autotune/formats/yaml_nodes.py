"""A YAML file as a tree whose nodes know their lines, so that every complaint can name one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

import yaml
from yaml.constructor import SafeConstructor

from autotune.domain.space import Value
from autotune.errors import InputError

_T = TypeVar("_T")
_LARGEST = 1e18  # no count, size or share of ours comes near


@dataclass(frozen=True, slots=True)
class Entry:
    """A value of a mapping with the node of its key, where an error about the pair points."""

    key: yaml.Node
    value: yaml.Node


@dataclass(frozen=True, slots=True)
class Document:
    """One file; every method raises `InputError` that starts with FILE:LINE."""

    path: Path

    def tree(self) -> yaml.Node:
        """The root node; raises for an unreadable, garbled or empty file."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot be read: {error.strerror}", hint="give the path of a YAML file"
            ) from error
        except UnicodeDecodeError as error:
            raise InputError(
                f"{self.path}: is not UTF-8 text (byte {error.start})", hint="save it as UTF-8"
            ) from error
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else 1
            raise InputError(
                f"{self.path}:{line}: is not YAML: {error.problem or error.context}",
                hint="look for a missing colon, bracket or quote there or just above",
            ) from error
        except yaml.YAMLError as error:  # a character that YAML forbids, without a mark
            raise InputError(
                f"{self.path}:1: is not YAML: {str(error).splitlines()[0]}", hint="save it as plain text"
            ) from error
        except RecursionError as error:
            raise InputError(
                f"{self.path}:1: is nested too deeply", hint="a space has four levels"
            ) from error
        if root is None:
            raise InputError(f"{self.path}:1: is empty", hint="start from a copy of a shipped one")
        return root

    def mapping(
        self,
        node: yaml.Node,
        what: str,
        required: Collection[str] = (),
        optional: Collection[str] | None = None,
    ) -> dict[str, Entry]:
        """The entries in order; with neither `required` nor `optional`, any name is a key."""
        if not isinstance(node, yaml.MappingNode):
            raise self.error(node, f"{what} is not a mapping", "write `name: value` lines")
        entries: dict[str, Entry] = {}
        for key_node, value_node in node.value:
            key = self.scalar(key_node, "a key")
            if not isinstance(key, str):
                raise self.error(key_node, f"the key {show(key)} is not a name", "put names in quotes")
            allowed = (*required, *(optional or ()))
            if allowed and key not in allowed:
                near = nearest(key, allowed)
                raise self.error(
                    key_node,
                    f"unknown key {key!r} in {what}",
                    f"did you mean {near}?" if near else f"one of {', '.join(allowed)}",
                )
            if key in entries:
                raise self.error(
                    key_node,
                    f"{key!r} is there twice, first in line {entries[key].key.start_mark.line + 1}",
                    "keep one of them",
                )
            entries[key] = Entry(key_node, value_node)
        missing = [key for key in required if key not in entries]
        if missing:
            raise self.error(node, f"{what} lacks {', '.join(missing)}", f"add `{missing[0]}: …`")
        return entries

    def items(self, node: yaml.Node, what: str) -> list[yaml.Node]:
        """The nodes of a list."""
        if not isinstance(node, yaml.SequenceNode):
            raise self.error(node, f"{what} is not a list", "write [a, b, c], or one `- item` a line")
        return list(node.value)

    def scalar(self, node: yaml.Node, what: str) -> Value:
        """A single value that a setting could take: no null, date, infinity or custom tag."""
        if not isinstance(node, yaml.ScalarNode):
            raise self.error(node, f"{what} is not a single value", "write a number, a word, true or false")
        try:
            value = SafeConstructor().construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            raise self.error(node, f"{what} {node.value!r} cannot be read", "put it in quotes") from error
        if not isinstance(value, bool | int | float | str):
            raise self.error(
                node,
                f"{what} is {node.value or 'empty'!r}, not a value",
                "write a number, a word, true or false",
            )
        if not isinstance(value, str) and not abs(value) < _LARGEST:  # as .nan is not either
            raise self.error(
                node, f"{what} is {node.value[:24]}, which no setting takes", "write a number below 1e18"
            )
        return value

    def placed(self, node: yaml.Node, parse: Callable[[], _T]) -> _T:
        """What `parse` returns; its `InputError` gains the file and the line."""
        try:
            return parse()
        except InputError as error:
            raise self.error(node, error.message, error.hint) from error

    def error(self, node: yaml.Node, message: str, hint: str | None) -> InputError:
        """An error at the line of `node`, for the caller to raise."""
        return InputError(f"{self.path}:{node.start_mark.line + 1}: {message}", hint=hint)

    def number(self, node: yaml.Node, what: str) -> int | float:
        """A number without a unit."""
        value = self.scalar(node, what)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(node, f"{what} is {show(value)}, not a number", "write a number without a unit")
        return value

    def text(self, node: yaml.Node, what: str) -> str:
        """Text that is not blank."""
        value = self.scalar(node, what)
        if not isinstance(value, str) or not value.strip():
            raise self.error(node, f"{what} is {show(value)}, not text", "put it in quotes")
        return value


def show(value: Value | None) -> str:
    """As it would be written in YAML."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, None when none is like it."""
    return next(iter(get_close_matches(name, list(known), n=1)), None)
