"""A recording from its first connection to its last line."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue

import uvloop

from autotune.errors import InputError, SetupError
from autotune.record.exchange import Order, Standing
from autotune.record.link import Link, first_of
from autotune.record.pair import Client
from autotune.record.parts import create
from autotune.record.place import Listen, Upstream
from autotune.record.relay import Relay
from autotune.record.tokens import Tokenizer

BACKLOG = 1024
REACHABLE_S = 3.0
TICK_S = 1.0
SILENT_S = 10.0
"""A writer that has written nothing for this long is not waited for at the end."""
PRIORITY = -10
"""Nice value where it is permitted: an engine on the same cores must not delay its own answers here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """All that one recording is given; `queue_bytes` bounds what is copied and not written yet."""

    upstream: Upstream
    listen: Listen
    out: Path
    keep_text: bool = False
    ask_usage: bool = False
    tokenizer: Path | None = None
    rotate_bytes: int | None = None
    rotate_s: float | None = None
    queue_bytes: int = 256 * 2**20
    grace_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """Clients may connect; `reachable` is False when the upstream did not answer."""

    address: str
    reachable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """How it stands; `writing` is False once the writer has died, `ended` is True for the last one."""

    connections: int
    dropped: int
    standing: Standing
    writing: bool
    ended: bool = False


class Recorder:
    """Relays in a thread of its own, so that whoever prints can wait for a terminal meanwhile."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._events: SimpleQueue[Listening | Stand | None] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop, self._cut, self._leave = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._stops = 0

    def events(self) -> Iterator[Listening | Stand]:
        """Record until `stop`; raises `InputError` and `SetupError` before the first event."""
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="relay") as thread:
            running = thread.submit(self._run)
            try:
                while (event := self._events.get()) is not None:
                    yield event
            finally:
                self.stop()
                self.stop()  # whoever listened is gone: nothing is waited for
            running.result()

    def stop(self) -> None:
        """Take no further request; again, end those under way; again, wait for no writer.

        Safe in a signal handler.
        """
        self._stops += 1
        if self._loop is not None:
            said = (self._stop, self._cut, self._leave)[min(self._stops, 3) - 1]
            self._loop.call_soon_threadsafe(said.set)

    def _run(self) -> None:
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)  # of this thread, and what it starts
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._record())
        finally:
            self._loop = None
            self._events.put(None)

    async def _record(self) -> None:
        job, loop = self._job, asyncio.get_running_loop()
        if job.tokenizer is not None:
            Tokenizer(job.tokenizer)  # the writer loads its own; a slip is better said now
        with _bound(job.listen) as wire:
            host, port = wire.getsockname()[:2]
            _refuse_a_circle(job.upstream, host, port)
            link = Link(job.queue_bytes)
            await link.start(_order(job))
            tls = ssl.create_default_context() if job.upstream.tls else None
            relay = Relay(upstream=job.upstream, tls=tls, keeper=link, ask_usage=job.ask_usage)
            reachable = await _reachable(job.upstream)
            _raise_the_limit_of_open_files()
            gc.collect()
            gc.freeze()
            server = await loop.create_server(lambda: Client(relay), sock=wire, backlog=BACKLOG)
            self._loop = loop
            shown = f"[{host}]" if ":" in host else host
            self._events.put(Listening(address=f"http://{shown}:{port}", reachable=reachable))
            while not self._stops:
                self._stand(relay, link)
                try:
                    await asyncio.wait_for(self._stop.wait(), TICK_S)
                except TimeoutError:
                    continue
            server.close()
        await self._drain(relay)
        await link.finish(SILENT_S, self._leave)
        self._stand(relay, link, ended=True)

    async def _drain(self, relay: Relay) -> None:
        """Let answers under way end, within the time of grace."""
        relay.stop()
        await first_of(relay.empty, self._cut, within_s=self._job.grace_s)
        relay.cut()
        await relay.empty.wait()

    def _stand(self, relay: Relay, link: Link, *, ended: bool = False) -> None:
        self._events.put(
            Stand(
                connections=len(relay.connections),
                dropped=link.dropped,
                standing=link.standing,
                writing=ended or not link.gone,
                ended=ended,
            )
        )


def _bound(listen: Listen) -> socket.socket:
    """The listening socket; raises `SetupError` when the address cannot be had."""
    try:
        family, _, _, _, address = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise SetupError(
            f"cannot listen on {listen.host}:{listen.port}: {os.strerror(error.errno or 0)}",
            hint="give another --listen HOST:PORT; port 0 takes a free one",
        ) from error


def _refuse_a_circle(upstream: Upstream, host: str, port: int) -> None:
    if port == upstream.port and upstream.host in {host, "localhost", "127.0.0.1", "::1"}:
        raise InputError(
            f"--upstream {upstream} is where the recorder itself would listen",
            hint="give another --listen HOST:PORT, and point clients there",
        )


def _order(job: Job) -> Order:
    return Order(
        fd=create(job.out),
        out=str(job.out.absolute()),
        recorded_at=datetime.now(UTC).isoformat(timespec="microseconds"),
        origin_ns=time.perf_counter_ns(),
        keep_text=job.keep_text,
        rotate_bytes=job.rotate_bytes,
        rotate_s=job.rotate_s,
        tokenizer=str(job.tokenizer.absolute()) if job.tokenizer else None,
    )


def _raise_the_limit_of_open_files() -> None:
    """Two sockets a client: the usual 1,024 would end at 500 clients."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _reachable(upstream: Upstream) -> bool:
    try:
        async with asyncio.timeout(REACHABLE_S):
            _, writer = await asyncio.open_connection(upstream.host, upstream.port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
