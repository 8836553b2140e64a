"""The tuner's side of the replay process."""

from __future__ import annotations

import selectors
import subprocess
import sys
from collections.abc import Generator
from typing import BinaryIO, cast

import msgspec

from autotune.errors import ReplayError
from autotune.replay.job import Frame, Job, Replayed, read_frame

SILENCE_S = 30.0
"""The client says something every quarter of a second; this long without a word means that it hangs."""


def replay(job: Job) -> Generator[Frame, None, None]:
    """Run the window, yielding `Progress` frames and at last one `Replayed`.

    Raises `ReplayError` when the client dies or falls silent. Closing the iterator kills it.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "autotune.replay.client"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # a frame in a read-ahead buffer would be invisible to select
    ) as process:
        try:
            yield from _frames(process, job)
        finally:
            process.kill()


def _frames(process: subprocess.Popen[bytes], job: Job) -> Generator[Frame, None, None]:
    to_client = cast("BinaryIO", process.stdin)
    from_client = cast("BinaryIO", process.stdout)
    try:
        to_client.write(msgspec.msgpack.encode(job))
        to_client.close()
    except BrokenPipeError:
        raise _gone(process) from None
    with selectors.DefaultSelector() as selector:
        selector.register(from_client, selectors.EVENT_READ)
        while True:
            if not selector.select(timeout=SILENCE_S):
                raise ReplayError(f"the replay client said nothing for {SILENCE_S:.0f} s")
            frame = read_frame(from_client)
            if frame is None:
                raise _gone(process)
            yield frame
            if isinstance(frame, Replayed):
                return


def _gone(process: subprocess.Popen[bytes]) -> ReplayError:
    process.kill()
    said = process.stderr.read().decode(errors="replace").strip().splitlines() if process.stderr else []
    process.wait()
    return ReplayError(f"the replay client ended early: {said[-1] if said else f'exit {process.returncode}'}")
