"""What all connections of the relay share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Protocol

from autotune.record.exchange import Copy
from autotune.record.place import Upstream


class Keeper(Protocol):
    """Takes copies of what passed; neither call waits."""

    def room(self, size: int) -> bool:
        """True when that many bytes more may be copied."""
        ...

    def keep(self, copy: Copy) -> None:
        """Take a copy whose exchange is over, or which found no more room."""
        ...


class Connection(Protocol):
    """A client's connection."""

    transport: asyncio.Transport

    def stop(self) -> None:
        """End now, unless an answer is under way."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class Relay:
    """Where requests go and who copies them; with `ask_usage` streamed ones are changed to ask for counts.

    `empty` is set once the last connection has ended after `stop`.
    """

    upstream: Upstream
    tls: SSLContext | None
    keeper: Keeper
    ask_usage: bool = False
    stopping: bool = False
    connections: set[Connection] = field(default_factory=set)
    empty: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """Take no further request; connections end with the answer that they wait for."""
        self.stopping = True
        for connection in tuple(self.connections):
            connection.stop()
        if not self.connections:
            self.empty.set()

    def left(self, connection: Connection) -> None:
        """A connection is over."""
        self.connections.discard(connection)
        if self.stopping and not self.connections:
            self.empty.set()

    def cut(self) -> None:
        """End everything now."""
        for connection in tuple(self.connections):
            connection.transport.abort()
