"""The first JSON value of a text, told from its beginning: what brackets open it, which keys it names."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s"{}\[\]:,]+|"', re.DOTALL)
_DEEPEST = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """`opens` is "{" for an object, "[{" for an array of objects, else empty; `keys` are the object's own."""

    opens: str
    keys: frozenset[str]

    @property
    def ours(self) -> bool:
        """True for the header and the rows of our own format, whatever else they hold."""
        return bool({"autotune_workload", "offset_s"} & self.keys)


_NOTHING = Outline(opens="", keys=frozenset())


@functools.lru_cache(maxsize=4)
def outline(text: str) -> Outline:
    """The outline of the first object in `text`, of the keys that are there if the text is cut off."""
    pieces = (match.group() for match in _PIECE.finditer(text))
    opens = next(pieces, "")
    if opens == "[":
        opens += next(pieces, "")
    if opens not in ("{", "[{"):
        return _NOTHING
    depth, last, keys = 1, "", set()
    for piece in pieces:
        if piece in ("{", "["):
            depth += 1
        elif piece in ("}", "]"):
            depth -= 1
        elif piece == ":" and depth == 1 and last.startswith('"'):
            keys.add(last[1:-1])
        if depth == 0 or depth > _DEEPEST or piece == '"':  # the end, no request, or cut off in a string
            break
        last = piece
    return Outline(opens=opens, keys=frozenset(keys))
