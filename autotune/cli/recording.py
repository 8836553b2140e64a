"""`record`: relay traffic to a server and say how the recording stands."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from autotune.errors import ExitCode, InputError
from autotune.record import Job, Listen, Listening, Recorder, Stand, Upstream
from autotune.units import parse_duration, parse_size

QUIET_S = 60.0
"""Without a terminal the status is a line a minute, where something changed."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What was typed; None where nothing was."""

    upstream: str
    out: Path
    listen: str
    keep_text: bool
    ask_usage: bool
    tokenizer: Path | None
    rotate_size: str | None
    rotate_every: str | None
    queue: str
    grace: str

    def job(self) -> Job:
        """The recording that is meant; raises `InputError`."""
        rotate_bytes = parse_size(self.rotate_size, what="part size") if self.rotate_size else None
        if rotate_bytes is not None and rotate_bytes < 1:
            raise InputError(f"--rotate-size {self.rotate_size} leaves no room", hint="for example 100MB")
        return Job(
            upstream=Upstream.parse(self.upstream),
            listen=Listen.parse(self.listen),
            out=self.out,
            keep_text=self.keep_text,
            ask_usage=self.ask_usage,
            tokenizer=self.tokenizer,
            rotate_bytes=rotate_bytes,
            rotate_s=parse_duration(self.rotate_every, what="part length") if self.rotate_every else None,
            queue_bytes=parse_size(self.queue, what="queue size"),
            grace_s=parse_duration(self.grace, what="time of grace"),
        )


def record(flags: Flags) -> int:
    """Record until Ctrl-C; 0 at its end, 3 when the writing process died before."""
    job = flags.job()
    recorder, talk = Recorder(job), _Talk(job)
    writing = True
    with _stopped_by_signals(recorder):
        for event in recorder.events():
            match event:
                case Listening():
                    talk.begin(event)
                case Stand():
                    writing = writing and event.writing
                    talk.say(event)
    return ExitCode.FOUND if writing else ExitCode.SETUP


@dataclass(slots=True)
class _Talk:
    """What was said already, so that it is said once."""

    job: Job
    terminal: bool = field(default_factory=sys.stderr.isatty)
    shown: str = ""
    shown_s: float = field(default_factory=time.monotonic)
    warned: set[str] = field(default_factory=set)

    def begin(self, event: Listening) -> None:
        """The address, as data on stdout; everything else is talk."""
        print(f"{event.address}/v1", flush=True)
        kept = "the text of requests too" if self.job.keep_text else "no text, headers or keys"
        self._line(f"recording requests for {self.job.upstream} into {self.job.out}: {kept}")
        self._line(f"point clients at {event.address}/v1; Ctrl-C ends the recording")
        if not event.reachable:
            self._warn("upstream", f"{self.job.upstream} does not answer yet; requests get 502 until it does")
        if not self.job.listen.private:
            self._warn("listen", f"{self.job.listen.host} can be reached from other machines")

    def say(self, event: Stand) -> None:
        """The status, and each trouble at its first time."""
        standing = event.standing
        if event.dropped:
            self._warn("dropped", "the disk is behind, or full: requests pass, but some are not recorded")
        if standing.trouble:
            self._warn("trouble", standing.trouble)
        if not event.writing:
            self._warn("writing", "the writing process died: requests pass, but none is recorded any more")
        text = _counts(event)
        if event.ended:
            self._line(f"ended: {text}")
            self._line(
                f"in {self.job.out}" + (f" and {standing.files - 1} parts more" * (standing.files > 1))
            )
        elif self.terminal:
            sys.stderr.write(f"\r\033[K{text}, {event.connections} connected")
            sys.stderr.flush()
        elif text != self.shown and time.monotonic() - self.shown_s >= QUIET_S:
            self._line(text)
            self.shown, self.shown_s = text, time.monotonic()

    def _warn(self, what: str, text: str) -> None:
        if what not in self.warned:
            self.warned.add(what)
            self._line(f"warning: {text}")

    def _line(self, text: str) -> None:
        sys.stderr.write(("\r\033[K" if self.terminal else "") + text + "\n")
        sys.stderr.flush()


def _counts(event: Stand) -> str:
    standing = event.standing
    counts = {
        "failed": standing.failed,
        "with estimated token counts": standing.estimated,
        "tokenised otherwise by the server": standing.mismatched,
        "unreadable": standing.unread,
        "dropped": event.dropped,
    }
    told = [f"{count} {what}" for what, count in counts.items() if count or what == "dropped"]
    return ", ".join([f"{standing.recorded} recorded", *told])


@contextmanager
def _stopped_by_signals(recorder: Recorder) -> Iterator[None]:
    """A signal ends the recording in order; a second one ends the requests under way too."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # nohup
            signal.signal(number, lambda *_: recorder.stop())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
