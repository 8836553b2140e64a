"""Which request goes on with which conversation."""

from __future__ import annotations

import secrets
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

REMEMBERED = 100_000
"""Answers that a client may still reply to."""
REMEMBERED_BYTES = 64 * 2**20
"""Text of responses that a client may refer to by id; it stays in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A request's place: its conversation, and the pause since the answer before; None for a first turn."""

    session: str
    think_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Ended:
    session: str
    ended_ns: int


class Conversations:
    """Answers that nobody has replied to yet, by a hash of all that was said.

    Each is replied to once: of two requests that go on from the same answer, the second begins a conversation
    of its own, since it may run beside the first.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._open: OrderedDict[bytes, deque[_Ended]] = OrderedDict()
        self._responses: OrderedDict[str, tuple[bytes, ...]] = OrderedDict()
        self._size = 0

    def place(self, turns: Sequence[bytes], arrived_ns: int) -> Place:
        """The conversation that these turns go on with, or a new one."""
        for said in reversed(self._hashes(turns)[:-1]):
            ended = self._open.get(said)
            if ended and ended[0].ended_ns <= arrived_ns:
                earlier = ended.popleft()
                if not ended:
                    del self._open[said]
                return Place(session=earlier.session, think_s=(arrived_ns - earlier.ended_ns) / 1e9)
        return Place(session=secrets.token_hex(4))

    def ended(self, session: str, turns: Sequence[bytes], ended_ns: int) -> None:
        """An answer has ended; `turns` are the request's and its own."""
        if not turns:
            return
        said = self._hashes(turns)[-1]
        self._open.setdefault(said, deque()).append(_Ended(session, ended_ns))
        self._open.move_to_end(said)
        while len(self._open) > REMEMBERED:
            self._open.popitem(last=False)

    def keep(self, response: str, turns: tuple[bytes, ...]) -> None:
        """What a later request means that names this response instead of sending its turns."""
        self._responses[response] = turns
        self._size += sum(map(len, turns))
        while self._size > REMEMBERED_BYTES:
            self._size -= sum(map(len, self._responses.popitem(last=False)[1]))

    def before(self, response: str | None) -> tuple[bytes, ...]:
        """The turns up to that response; none when it is not known."""
        return self._responses.get(response, ()) if response else ()

    def _hashes(self, turns: Sequence[bytes]) -> list[bytes]:
        """A hash of the first turn, of the first two, and so on."""
        hashes, said = [], blake2b(digest_size=16, key=self._key)
        for turn in turns:
            said.update(turn)
            hashes.append(said.digest())
        return hashes
