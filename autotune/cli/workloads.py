"""`workload inspect`, `convert`, `slice`, `merge` and `scale`: recordings in, one recording or facts out."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from autotune.cli.inspection import Inspected, json_line, show
from autotune.cli.workload_files import Target, keeps_text, opened, say, write
from autotune.domain.workload import Request
from autotune.errors import ExitCode, InputError
from autotune.formats.workloads import Opened
from autotune.traffic import edit
from autotune.traffic.profile import profile
from autotune.units import parse_duration, parse_share

MOST_LENGTHS = 1000
"""Longer is a slip: the shortest real prompts would exceed every context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Which part of a recording: exactly one of the busiest window, a stretch of time, or a share."""

    window_s: float | None = None
    by_tokens: bool = False
    stretch_s: tuple[float, float] | None = None
    share: float | None = None

    @classmethod
    def parse(
        cls, *, busiest: str | None, by: str, from_: str | None, to: str | None, share: str | None
    ) -> Cut:
        """Raises `InputError` for none or several of them, and for what is no time or share."""
        stretch = from_ is not None or to is not None
        if (busiest is not None) + stretch + (share is not None) != 1:
            raise InputError(
                "slice needs one of --busiest, --from/--to and --share",
                hint="for example --busiest 10min --by tokens",
            )
        if busiest is not None:
            return cls(window_s=parse_duration(busiest, what="length of a window"), by_tokens=by == "tokens")
        if share is not None:
            return cls(share=parse_share(share))
        from_s = 0.0 if from_ is None else _moment(from_)
        to_s = math.inf if to is None else _moment(to)
        if to_s <= from_s:
            raise InputError(
                f"--to {to} is not after --from {from_ or 0}", hint="write --from 5min --to 10min"
            )
        return cls(stretch_s=(from_s, to_s))


def inspect_files(files: Sequence[Path], *, skip_bad: int, tpot: str, as_json: bool) -> int:
    """Print what each file holds, as tables or as one JSON object a line."""
    tpot_s = parse_duration(tpot, what="time per output token")
    console = Console(highlight=False)
    for place, path in enumerate(files):
        with opened(path, skip_bad=skip_bad) as (one,):
            recording = one.recording
            found = profile(recording.requests, block_tokens=recording.block_tokens, timed=recording.timed)
            if not found.requests:
                raise InputError(f"{path} holds no request that can be read", hint="see what was left out")
            inspected = Inspected(
                file=str(path),
                format=one.format,
                block_tokens=recording.block_tokens,
                timed=recording.timed,
                counted=recording.counted,
                skipped=tuple(one.source.skipped),
                failed=one.source.failed,
                profile=found,
                tpot_s=tpot_s,
            )
        if as_json:
            sys.stdout.write(json_line(inspected) + "\n")
        else:
            if place:
                console.print()
            show(inspected, console)
    return ExitCode.FOUND


def convert_file(
    file: Path, target: Target, *, rate: float | None, spread: bool, seed: int, skip_bad: int
) -> int:
    """Write the recording in our format, with arrival times drawn or spread when asked for."""
    if rate is not None and not (math.isfinite(rate) and rate > 0):
        raise InputError(f"--rate {rate:g} is no rate", hint="write session starts per second, for example 2")
    step_s = _step_s(file, skip_bad=skip_bad) if spread else None
    with opened(file, skip_bad=skip_bad) as (one,):
        requests, timed = one.recording.requests, one.recording.timed
        if rate is not None:
            if timed:
                raise InputError(
                    f"{file} has arrival times: --rate is for prompts without",
                    hint="autotune workload scale changes the rate of a recording",
                )
            requests, timed = iter(edit.arrive(requests, rate_rps=rate, seed=seed)), True
        elif step_s is not None:
            requests = edit.spread(requests, step_s=step_s, seed=seed)
        write(target, requests, (one,), timed=timed)
    return ExitCode.FOUND


def slice_file(file: Path, target: Target, cut: Cut, *, skip_bad: int) -> int:
    """Write a part of the recording."""
    stretch_s, starts = cut.stretch_s, None
    if cut.window_s is not None:
        with opened(file, skip_bad=skip_bad, tell=False) as (one,):
            _timed(one)
            stretch_s = edit.busiest(one.recording.requests, window_s=cut.window_s, by_tokens=cut.by_tokens)
    if cut.share is not None:
        with opened(file, skip_bad=skip_bad, tell=False) as (one,):
            starts = math.ceil(cut.share * edit.starts(one.recording.requests) - 1e-9)
    with opened(file, skip_bad=skip_bad) as (one,):
        requests = one.recording.requests
        if starts is not None:
            requests = edit.leading(requests, starts=starts)
        elif stretch_s is not None:
            _timed(one)
            requests = edit.between(requests, from_s=stretch_s[0], to_s=stretch_s[1])
        write(target, requests, (one,))
    return ExitCode.FOUND


def merge_files(files: Sequence[Path], target: Target, *, skip_bad: int) -> int:
    """Write all recordings laid over one another."""
    if len(files) < 2:
        raise InputError("merge needs at least two files", hint="autotune workload merge A B --out OUT")
    with opened(*files, skip_bad=skip_bad) as several:
        _timed(*several)
        sizes = {one.recording.block_tokens: one for one in several if one.recording.block_tokens}
        if len(sizes) > 1:
            (size, one), (other, another) = list(sizes.items())[:2]
            raise InputError(
                f"{one.source.path} has blocks of {size} tokens, {another.source.path} of {other}",
                hint="merge recordings whose blocks have the same size",
            )
        kept = [keeps_text(one.recording.requests) for one in several]
        merged = edit.merge([requests for _, requests in kept])
        text = any(has_text for has_text, _ in kept)
        write(target, merged, several, block_tokens=next(iter(sizes), None), text=text)
    return ExitCode.FOUND


def scale_file(
    file: Path, target: Target, *, speed: float | None, lengths: float | None, skip_bad: int
) -> int:
    """Write the recording at another speed, or with longer or shorter requests."""
    if speed is None and lengths is None:
        raise InputError("scale needs --speed or --lengths", hint="for example --speed 2")
    if lengths is not None and not (math.isfinite(lengths) and 0 < lengths <= MOST_LENGTHS):
        raise InputError(
            f"--lengths {lengths:g} is no factor", hint=f"write one above 0 and up to {MOST_LENGTHS}"
        )
    speed = 1.0 if speed is None else speed
    if not (math.isfinite(speed) and speed > 0):
        raise InputError(
            f"--speed {speed:g} is no speed", hint="write a multiple of the recorded rate, e.g. 2"
        )
    with opened(file, skip_bad=skip_bad) as (one,):
        requests, block_tokens = one.recording.requests, one.recording.block_tokens
        if speed != 1:
            _timed(one)
            requests = edit.scale(requests, speed=speed)
        if lengths is not None:
            block_tokens = _resized(one, lengths)
            requests = edit.resize(_without_text(one, requests), factor=lengths)
        write(target, requests, (one,), block_tokens=block_tokens)
    return ExitCode.FOUND


def _resized(one: Opened, factor: float) -> int | None:
    """The size of the blocks after `factor`; raises `InputError` when that is no whole number."""
    size = one.recording.block_tokens
    if size is None:
        return None
    resized = round(size * factor)
    if resized < 1 or abs(resized - size * factor) > 1e-9:
        raise InputError(
            f"{one.source.path} has blocks of {size} tokens, of which --lengths {factor:g} makes "
            f"{size * factor:g}",
            hint=f"choose a factor that leaves whole blocks, for example 1/{size} to 1 in steps of 1/{size}",
        )
    return resized


def _without_text(one: Opened, requests: Iterable[Request]) -> Iterator[Request]:
    for request in requests:
        if request.body is not None:
            raise InputError(
                f"{one.source.path} holds text, which has its own length",
                hint="--lengths is for recordings of lengths alone",
            )
        yield request


def _moment(text: str) -> float:
    """Seconds from the start; '0' needs no unit."""
    return 0.0 if text.strip().rstrip("usminh") in {"0", "0.0"} else parse_duration(text, what="moment")


def _timed(*several: Opened) -> None:
    for one in several:
        if not one.recording.timed:
            raise InputError(
                f"{one.source.path} holds prompts without arrival times",
                hint="autotune workload convert --rate R draws some; slice --share needs none",
            )


def _step_s(file: Path, *, skip_bad: int) -> float | None:
    """The step of quantised stamps; None, and a word about it, where there is none."""
    with opened(file, skip_bad=skip_bad, tell=False) as (one,):
        _timed(one)
        step = profile(one.recording.requests, block_tokens=None, timed=True).step
    if step is None:
        say(f"{file}: the stamps are not quantised, so --spread changes nothing")
    return step.seconds if step else None
