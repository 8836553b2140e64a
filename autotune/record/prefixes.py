"""Ids of prompt blocks: equal where two prompts begin alike, and nothing that leads back to the words.

An id is a keyed hash of the block before and of what the block holds; the key is drawn for one recording
and written nowhere. Token ids are cut as an engine cuts them, every 16. Text is cut where 16 tokens are
thought to end, and where an earlier prompt began alike, at the places where that one was cut: so the prompt
of a second turn has the blocks of the first one's prompt and answer, whose lengths the server counted.
"""

from __future__ import annotations

import re
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

BLOCK_TOKENS = 16
"""vLLM's default on GPUs, `DEFAULT_BLOCK_SIZE` in vllm/config/cache.py; larger blocks are made of these."""
ID_BITS = 53
"""Whole numbers up to here survive every JSON reader. Source: RFC 8259, section 6."""
REMEMBERED = 500_000
"""Blocks of text, 8 million tokens: more than the KV cache of most servers holds."""
_MOST_CUTS = 32
"""Ways to go on from one block that are tried: as many texts of different density may begin alike."""
_UNITS = re.compile(
    rb" ?[A-Za-z]{1,8}| ?[0-9]{1,3}|[\r\n]+|[ \t]+"
    rb"|(?:[\xc2-\xdf][\x80-\xbf]){1,3}|[\xe0-\xef][\x80-\xbf]{2}|.",
    re.DOTALL,
)
"""What a vocabulary makes about one token of: short words, digits, signs, letters of other scripts."""


class Prefixes:
    """Remembers how earlier texts were cut, the latest `remembered` blocks of them."""

    def __init__(self, key: bytes, *, remembered: int = REMEMBERED) -> None:
        self._key = key
        self._remembered = remembered
        self._cuts: OrderedDict[int, list[int]] = OrderedDict()  # bytes in blocks that follow a block

    def of_ids(self, ids: Sequence[int], *, root: bytes) -> tuple[int, ...]:
        """A block for each 16 token ids; a rest has none."""
        block, blocks = self._id(0, b"ids\0" + root), []
        for at in range(0, len(ids) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
            block = self._id(block, array("q", ids[at : at + BLOCK_TOKENS]).tobytes())
            blocks.append(block)
        return tuple(blocks)

    def of_text(
        self, text: bytes, tokens: int, *, root: bytes, answer: bytes = b"", answer_tokens: int = 0
    ) -> tuple[int, ...]:
        """A block for each 16 of the `tokens` that the server counted in `text`; a rest has none.

        The blocks of the `answer` behind it are remembered: an engine holds them too when the next prompt
        sends it back.
        """
        path = [self._id(0, b"text\0" + root)]
        at = self._walk(path, text, 0, tokens)
        blocks = tuple(path[1:])
        if answer:
            self._walk(path, text + answer, at, tokens + answer_tokens - BLOCK_TOKENS * len(blocks))
        self._touch(path)
        return blocks

    def _walk(self, path: list[int], text: bytes, at: int, tokens: int) -> int:
        """Put the blocks of the `tokens` in `text[at:]` behind the path; where the last one ends."""
        wanted = len(path) + tokens // BLOCK_TOKENS
        left = tokens
        while len(path) < wanted and (known := self._known(path[-1], text, at)):
            block, at = known
            path.append(block)
            left -= BLOCK_TOKENS
        for end in _ends(text, at, left) if len(path) < wanted else ():
            cuts = self._cuts.setdefault(path[-1], [])
            if end - at not in cuts:
                cuts.append(end - at)
                del cuts[:-_MOST_CUTS]
            path.append(self._id(path[-1], text[at:end]))
            at = end
        return at

    def _known(self, block: int, text: bytes, at: int) -> tuple[int, int] | None:
        """The block behind `block` that an earlier text had here too, and where it ends."""
        for length in self._cuts.get(block, ()):
            end = at + length
            if end <= len(text) and (after := self._id(block, text[at:end])) in self._cuts:
                return after, end
        return None

    def _touch(self, path: Sequence[int]) -> None:
        """Blocks are forgotten from the end of a text to its front, so the front is the newest."""
        for block in reversed(path):
            self._cuts.setdefault(block, [])
            self._cuts.move_to_end(block)
        while len(self._cuts) > self._remembered:
            self._cuts.popitem(last=False)

    def _id(self, before: int, content: bytes) -> int:
        digest = blake2b(content, digest_size=8, key=self._key, salt=before.to_bytes(8, "big")).digest()
        return int.from_bytes(digest, "big") >> (64 - ID_BITS)


def _ends(text: bytes, at: int, tokens: int) -> list[int]:
    """Where each 16 of the `tokens` in `text[at:]` are thought to end: units are spread evenly over them."""
    units = [match.end() for match in _UNITS.finditer(text, at)] or [at]
    last = len(units) - 1
    return [
        units[min(last, max(0, round(len(units) * BLOCK_TOKENS * number / tokens) - 1))]
        for number in range(1, tokens // BLOCK_TOKENS + 1)
    ]
