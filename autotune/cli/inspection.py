"""A recording's profile as people read it, at 80 columns, and as programs do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from autotune.report.words import limit, percent, plural, three
from autotune.traffic.profile import Profile, Spread
from autotune.units import show_duration

BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "._-=+*#%"
LENGTH_BARS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """One file: its format, what it is made of, what of it was left out, and its profile.

    `tpot_s` is what the estimate of concurrency assumes, since recordings seldom say how long answers took.
    """

    file: str
    format: str
    block_tokens: int | None
    timed: bool
    counted: bool
    skipped: tuple[str, ...]
    failed: int
    profile: Profile
    tpot_s: float


def json_line(one: Inspected) -> str:
    """One object; what the recording does not say is null."""
    profile = one.profile
    concurrency = profile.concurrency(one.tpot_s)
    found: dict[str, object] = {
        "file": one.file,
        "format": one.format,
        "requests": profile.requests,
        "duration_s": profile.duration_s,
        "rate_rps": profile.rate_rps,
        "gap_cv": profile.gap_cv,
        "dispersion_1s": profile.dispersion_1s,
        "dispersion_10s": profile.dispersion_10s,
        "quantised_s": profile.step.seconds if profile.step else None,
        "requests_per_stamp": profile.step.requests_per_stamp if profile.step else None,
        "input_tokens": _quantiles(profile.input_tokens),
        "output_tokens": _quantiles(profile.output_tokens),
        "block_tokens": one.block_tokens,
        "prefix_share": profile.prefix_share,
        "sessions": profile.sessions,
        "turns": _quantiles(profile.turns),
        "concurrency": None if concurrency is None else {"mean": concurrency, "assumed_tpot_s": one.tpot_s},
        "timed": one.timed,
        "counted": one.counted,
        "skipped": one.skipped,
        "failed": one.failed,
    }
    return msgspec.json.encode(found).decode()


def _quantiles(spread: Spread | None) -> dict[str, float] | None:
    if spread is None:
        return None
    return {
        "mean": spread.mean,
        "p50": spread.p50,
        "p90": spread.p90,
        "p99": spread.p99,
        "max": spread.max,
    }


def show(one: Inspected, console: Console) -> None:
    """Print the facts, the lengths and their sparklines."""
    bars = ASCII_BARS if console.options.ascii_only else BARS
    console.print(Text(f"{one.file}: {one.format}", style="bold"), soft_wrap=True)
    facts = Table.grid(padding=(0, 2))
    facts.add_column(no_wrap=True)
    facts.add_column(overflow="fold")
    for label, text in _facts(one, bars):
        facts.add_row(label, text)
    console.print(facts)
    console.print()
    console.print(_lengths(one, bars, console.width))


def _facts(one: Inspected, bars: str) -> Iterator[tuple[str, str]]:
    profile = one.profile
    yield from _times(one, bars)
    if profile.prefix_share is None:
        yield "prefix share", "unknown: the recording names no blocks"
    else:
        yield (
            "prefix share",
            (
                f"{percent(profile.prefix_share)} of prompt tokens begin as an earlier prompt did "
                f"(blocks of {one.block_tokens:,})"
            ),
        )
    if profile.turns is None:
        yield "sessions", "none named"
    else:
        turns = profile.turns
        yield (
            "sessions",
            f"{turns.n:,}; turns {three(turns.mean)} mean, {turns.p50:,} p50, {turns.max:,} max",
        )
    if not one.counted:
        yield "lengths", "estimated from text: the recording holds no token counts"
    if one.failed:
        yield "left out", f"{plural(one.failed, 'request')} that failed when recorded"
    if one.skipped:
        yield "left out", plural(len(one.skipped), "bad row")


def _times(one: Inspected, bars: str) -> Iterator[tuple[str, str]]:
    profile = one.profile
    many = plural(profile.requests, "request")
    if not one.timed or profile.duration_s is None:
        yield "requests", f"{many} without arrival times; autotune workload convert --rate R draws some"
        return
    if profile.rate_rps is None:
        yield "requests", f"{many}, all at one moment: there is no rate to replay"
        return
    yield (
        "requests",
        f"{many} in {show_duration(profile.duration_s)}, {three(profile.rate_rps)} requests/s",
    )
    if profile.rate_bin_s is not None and len(profile.rates_rps) > 1:
        low, high = min(profile.rates_rps), max(profile.rates_rps)
        yield "rate", sparkline(profile.rates_rps, bars)
        yield (
            "",
            f"{three(low)} to {three(high)} requests/s, {show_duration(profile.rate_bin_s)} each",
        )
    known = [
        f"{label} {three(value)}"
        for label, value in (
            ("CV of gaps", profile.gap_cv),
            ("dispersion over 1 s", profile.dispersion_1s),
            ("over 10 s", profile.dispersion_10s),
        )
        if value is not None
    ]
    if known:
        yield "burstiness", f"{', '.join(known)} (Poisson: 1)"
    if profile.step:
        step_s, each = profile.step.seconds, profile.step.requests_per_stamp
        yield (
            "stamps",
            (
                f"every {step_s:.3g} s, {each:.3g} requests on each: replayed as they are, they "
                "arrive in bursts; autotune workload convert --spread draws moments within each step"
            ),
        )
    concurrency = profile.concurrency(one.tpot_s)
    if concurrency is not None:
        yield (
            "concurrency",
            (
                f"about {three(concurrency)} in flight, were every output token to take "
                f"{limit(one.tpot_s)} and nothing else any time (Little's law)"
            ),
        )


def _lengths(one: Inspected, bars: str, width: int) -> Table:
    known = [
        (name, spread)
        for name, spread in (("input", one.profile.input_tokens), ("output", one.profile.output_tokens))
        if spread is not None
    ]
    rows = [
        (
            name,
            three(spread.mean),
            *(f"{value:,}" for value in (spread.p50, spread.p90, spread.p99, spread.max)),
        )
        for name, spread in known
    ]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    titles = ("tokens", "mean", "p50", "p90", "p99", "max")
    for title in titles:
        table.add_column(title, justify="left" if title == "tokens" else "right", no_wrap=True)
    table.add_column("how many, by length", no_wrap=True)
    taken = sum(max(len(cell) for cell in cells) + 2 for cells in zip(titles, *rows, strict=True))
    places = max(min(width - taken, LENGTH_BARS), 8)
    for row, (_, spread) in zip(rows, known, strict=True):
        low, high = f"{next(iter(spread.counts)):,}", f"{spread.max:,}"
        table.add_row(*row, sparkline(_histogram(spread, places), bars))
        table.add_row(*[""] * len(titles), Text(low + high.rjust(places - len(low)), style="dim"))
    return table


def _histogram(spread: Spread, places: int) -> list[int]:
    """How many values fall in each of equal factors between the least and the largest."""
    low, high = max(next(iter(spread.counts)), 1), spread.max
    found = [0] * places
    width = math.log((high + 1) / low)
    for value, count in spread.counts.items():
        found[min(int(math.log(max(value, 1) / low) / width * places), places - 1)] += count
    return found


def sparkline(values: Sequence[float], bars: str) -> str:
    """One character a value, its height relative to the largest; nothing at all is a blank."""
    most = max(values, default=0)
    return "".join(
        bars[min(math.ceil(value / most * len(bars)), len(bars)) - 1] if value > 0 else " "
        for value in values
    )
