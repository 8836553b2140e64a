"""The tuner's side of the replay: starts the workers, gives them one clock, puts together what they tell."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import BinaryIO, cast

from autotune.errors import ReplayError
from autotune.replay.deal import deal, workers
from autotune.replay.frames import START, STOP, Alive, Done, Frame, Frames, Ready, Share, packed_share
from autotune.replay.job import Job, Progress, Replayed
from autotune.replay.merge import Merged

SILENCE_S = 30.0
"""A worker says something every quarter of a second; this long without a word means that it hangs."""
HEAD_START_S = 0.1
PROGRESS_S = 0.2
_PIPE_BYTES = 2**20
_READ_BYTES = 2**18


def replay(job: Job) -> Generator[Progress | Replayed, None, None]:
    """Run the window, yielding `Progress` frames and at last one `Replayed`.

    Raises `ReplayError` when a worker dies or falls silent. Closing the iterator kills them all.
    """
    if not job.due:
        raise ReplayError("the window holds no request")
    count = job.workers or workers(job.due, cores=len(os.sched_getaffinity(0)))
    shares = deal(job.due, count)
    last_due_s = max(one.due_s for one in job.due)
    with ExitStack() as open_, selectors.DefaultSelector() as selector:
        crew = []
        for number, due in enumerate(shares):
            worker = _Worker(open_)
            crew.append(worker)
            selector.register(worker.out, selectors.EVENT_READ, (number, worker))
            worker.say(packed_share(Share(job=replace(job, due=due), last_due_s=last_due_s)))
        frames = _frames(selector)
        _wait_until_ready(frames, len(crew))
        start = START.pack(time.perf_counter_ns() + int(HEAD_START_S * 1e9))
        for worker in crew:
            worker.say(start)
        yield from _window(Merged(job, shares), frames, crew)


def _window(
    merged: Merged, frames: Iterator[tuple[int, Frame]], crew: list[_Worker]
) -> Generator[Progress | Replayed, None, None]:
    curtailed, told = False, time.monotonic()
    while not merged.whole:
        number, frame = next(frames)
        if isinstance(frame, Alive | Ready):
            continue
        merged.take(number, frame)
        if time.monotonic() - told < PROGRESS_S:
            continue
        told = time.monotonic()
        yield merged.progress()
        if not curtailed and merged.decided():
            curtailed = True
            for worker in crew:
                worker.say(STOP)
    merged.close(curtailed=curtailed)
    yield merged.progress()
    yield merged.replayed(curtailed=curtailed)


def _wait_until_ready(frames: Iterator[tuple[int, Frame]], count: int) -> None:
    """Return when so many workers have built all that they will send."""
    while count:
        _, frame = next(frames)
        count -= isinstance(frame, Ready)


class _Worker:
    """One client process, ended with the stack that it was opened on."""

    def __init__(self, open_: ExitStack) -> None:
        self.process = open_.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", "autotune.replay.client"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                pipesize=_PIPE_BYTES,
            )
        )
        open_.callback(self.process.kill)
        self.out = cast("BinaryIO", self.process.stdout)
        self.frames = Frames()
        self.heard = time.monotonic()
        self.done = False

    def say(self, what: bytes) -> None:
        """Write to the worker; raises `ReplayError` when it is gone."""
        to_worker = cast("BinaryIO", self.process.stdin)
        view = memoryview(what)
        try:
            while view:
                view = view[to_worker.write(view) :]
        except BrokenPipeError:
            if not self.done:
                raise self.gone() from None

    def gone(self) -> ReplayError:
        """What it died of."""
        self.process.kill()
        error = self.process.stderr
        said = error.read().decode(errors="replace").strip().splitlines() if error else []
        self.process.wait()
        why = said[-1] if said else f"exit {self.process.returncode}"
        return ReplayError(f"the replay client ended early: {why}")


def _frames(selector: selectors.BaseSelector) -> Generator[tuple[int, Frame], None, None]:
    """Frames with the number of their worker; raises `ReplayError` when one dies or falls silent."""
    while True:
        for key, _ in selector.select(timeout=SILENCE_S / 10):
            number, worker = key.data
            data = os.read(key.fd, _READ_BYTES)
            if not data and not worker.done:
                raise worker.gone()
            if not data:
                selector.unregister(key.fileobj)
                continue
            worker.heard = time.monotonic()
            for frame in worker.frames.feed(data):
                worker.done = worker.done or isinstance(frame, Done)
                yield number, frame
        waited_for = [key.data[1].heard for key in selector.get_map().values() if not key.data[1].done]
        if waited_for and time.monotonic() - min(waited_for) > SILENCE_S:
            raise ReplayError(f"the replay client said nothing for {SILENCE_S:.0f} s")
