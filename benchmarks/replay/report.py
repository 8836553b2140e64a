"""`results.json` and the tables of README.md, from `raw.json`.

python benchmarks/replay/report.py [FOLDER]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from figures import Figures, p99
from raw import Record, Setting, read_raw

OURS = "autotune"
SPLIT = "autotune, 2 workers"
WITHIN = 0.02
FEWEST_TRIALS = 2
SEND_LEVEL = 200
"""200 streams are 294 requests/s, the level nearest to 300."""
START, END = "<!-- generated from results.json -->", "<!-- end -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One client at one level: the medians of its trials, None where no trial gave the figure."""

    client: str
    streams: int
    trials: int
    reason: str | None
    events_per_s: float | None
    asked_rps: float | None
    offered_rps: float | None
    failed: float | None
    ttft_p99_ms: float | None
    truth_p99_ms: float | None
    ttft_p99_error: float | None
    ttft_p99_errors: tuple[float, ...]
    send_error_p99_ms: float | None
    send_error_from_due: bool | None
    arrival_error_p99_ms: float | None
    server_late_p99_ms: float | None
    cpu_us_per_event: float | None
    cpu_us_per_event_in_load: float | None
    cpu_share_in_load: float | None
    peak_rss_mib: float | None


def _middle(records: Sequence[Record], pick: Callable[[Figures], float | None]) -> float | None:
    found = [value for one in records if one.figures and (value := pick(one.figures)) is not None]
    return round(median(found), 5) if found else None


def _short(reason: str) -> str:
    """Without the last words of the client, which stay in raw.json."""
    return reason.partition("; it said:")[0]


def cell(client: str, streams: int, records: Sequence[Record]) -> Cell:
    """The medians of one client's trials at one level."""
    return Cell(
        client=client,
        streams=streams,
        trials=sum(one.figures is not None for one in records),
        reason=next((_short(one.reason) for one in records if one.reason), None),
        events_per_s=_middle(records, lambda one: one.events_per_s),
        asked_rps=_middle(records, lambda one: one.asked_rps),
        offered_rps=_middle(records, lambda one: one.offered_rps),
        failed=_middle(records, lambda one: one.failed),
        ttft_p99_ms=_middle(records, lambda one: p99(one.ttft_ms)),
        truth_p99_ms=_middle(records, lambda one: p99(one.truth_ms)),
        ttft_p99_error=_middle(records, lambda one: one.ttft_p99_error),
        ttft_p99_errors=tuple(one.error for one in records if one.error is not None),
        send_error_p99_ms=_middle(records, lambda one: p99(one.send_error_ms)),
        send_error_from_due=next((one.figures.from_due for one in records if one.figures), None),
        arrival_error_p99_ms=_middle(records, lambda one: p99(one.arrival_error_ms)),
        server_late_p99_ms=_middle(records, lambda one: one.server_late_p99_ms),
        cpu_us_per_event=_middle(records, lambda one: one.cpu_us_per_event),
        cpu_us_per_event_in_load=_middle(records, lambda one: one.cpu_us_per_event_in_load),
        cpu_share_in_load=_middle(records, lambda one: one.cpu_share_in_load),
        peak_rss_mib=_middle(records, lambda one: one.peak_rss_mib),
    )


def cells(records: Sequence[Record], *, two_cores: bool) -> list[Cell]:
    """All clients, in order of appearance, at all levels."""
    kept = [one for one in records if one.two_cores is two_cores]
    keys = dict.fromkeys((one.client, one.streams) for one in kept)
    order = list(dict.fromkeys(one.client for one in kept))
    return [
        cell(client, streams, [one for one in kept if (one.client, one.streams) == (client, streams)])
        for client, streams in sorted(keys, key=lambda key: (order.index(key[0]), key[1]))
    ]


def clean_up_to(own: Sequence[Cell]) -> tuple[float | None, str | None]:
    """The highest events/s within 2 % of the truth with every level below it; or None and why.

    One trial proves nothing: a level counts with two.
    """
    best: Cell | None = None
    for one in own:
        off = one.ttft_p99_error
        if off is None or abs(off) > WITHIN or one.failed or one.trials < FEWEST_TRIALS:
            break
        best = one
    if best is not None:
        return best.events_per_s, None
    lowest = own[0]
    if lowest.ttft_p99_error is None:
        return None, lowest.reason
    if abs(lowest.ttft_p99_error) <= WITHIN:
        return (
            None,
            f"{lowest.trials} trials and {lowest.failed or 0:.0f} failed requests at the lowest level",
        )
    return None, (
        f"{lowest.ttft_p99_error:+.1%} already at {lowest.streams} streams "
        f"({lowest.events_per_s:.0f} events/s), the lowest level"
    )


def _split(one_core: Sequence[Cell]) -> dict[str, object] | None:
    """What it costs to deal one load out to two processes, both still on one core; None where not run."""
    costs = {
        one.client: one.cpu_us_per_event
        for one in one_core
        if one.streams == SEND_LEVEL and one.client in {OURS, SPLIT} and one.cpu_us_per_event is not None
    }
    if len(costs) < 2:
        return None
    return {
        "cpu_us_per_event_one_worker": costs[OURS],
        "cpu_us_per_event_two_workers": costs[SPLIT],
        "share_kept": round(costs[OURS] / costs[SPLIT], 3),
    }


def headline(one_core: Sequence[Cell], pair: Sequence[Cell], setting: Setting) -> dict[str, object]:
    """Ours on top, the peers below; a figure that nobody could know is null, with its reason."""
    said: dict[str, dict[str, object]] = {}
    for client in dict.fromkeys(one.client for one in one_core):
        own = [one for one in one_core if one.client == client]
        events, why = clean_up_to(own)
        at_300 = next((one for one in own if one.streams == SEND_LEVEL), None)
        send = at_300.send_error_p99_ms if at_300 else None
        said[client] = {"events_per_s_within_2pct": events, "send_error_p99_ms_at_300rps": send}
        reasons = {}
        if events is None:
            reasons["events_per_s_within_2pct"] = why
        if send is None:
            reasons["send_error_p99_ms_at_300rps"] = (
                (at_300.reason or "it did not send every request of the schedule")
                if at_300
                else "this level was not run"
            )
        if reasons:
            said[client]["reasons"] = reasons
    two: dict[str, object] = {"events_per_s_within_2pct": None, "times_one_core": None}
    cores = int(setting.machine["cores"])
    if cores < 3:
        two["reason"] = (
            f"the server takes one of this machine's {cores} cores; two for the client need a third"
        )
    elif pair:
        events, why = clean_up_to(pair)
        one = said.get(OURS, {}).get("events_per_s_within_2pct")
        two["events_per_s_within_2pct"] = events
        if events is not None and isinstance(one, float):
            two["times_one_core"] = round(events / one, 2)
        elif events is None:
            two["reason"] = why
    ours = said.pop(OURS, {})
    said.pop(SPLIT, None)
    two["two_workers_on_one_core"] = _split(one_core)
    return {**ours, "two_cores": two, "peers": said}


def _number(value: float | None, form: str = ".1f") -> str:
    return "–" if value is None else format(value, form)


def _errors(one: Cell) -> str:
    low, high = min(one.ttft_p99_errors), max(one.ttft_p99_errors)
    return f"{low:+.1%}" if low == high else f"{low:+.1%} to {high:+.1%}"


def table(rows: Sequence[Cell]) -> list[str]:
    """One row a client and level, as Markdown."""
    heads = (
        "client", "streams", "events/s", "TTFT p99 (truth), ms", "off by", "send error p99, ms",
        "offered of asked, requests/s", "CPU µs an event, in the load and in all", "core used", "MiB",
    )  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for one in rows:
        if not one.trials:
            lines.append(f"| {one.client} | {one.streams} | | {one.reason} | | | | | | |")
            continue
        lines.append(
            f"| {one.client} | {one.streams} | {_number(one.events_per_s, ',.0f')} "
            f"| {_number(one.ttft_p99_ms)} ({_number(one.truth_p99_ms)}) | {_errors(one)} "
            f"| {_number(one.send_error_p99_ms, '.2f')} "
            f"| {_number(one.offered_rps, '.0f')} of {_number(one.asked_rps, '.0f')} "
            f"| {_number(one.cpu_us_per_event_in_load, '.0f')}, {_number(one.cpu_us_per_event, '.0f')} "
            f"| {_number(one.cpu_share_in_load, '.0%')} | {_number(one.peak_rss_mib, '.0f')} |"
        )
    return lines


def _summary(head: dict[str, object]) -> list[str]:
    peers = head["peers"]
    assert isinstance(peers, dict)  # noqa: S101  just built
    heads = ("client", "events/s on one core within 2 % of the truth", "send error p99 at 294 requests/s, ms")
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for name, one in {OURS: head, **peers}.items():
        events, send = one.get("events_per_s_within_2pct"), one.get("send_error_p99_ms_at_300rps")
        why = one.get("reasons", {})
        lines.append(
            f"| {name} | {_number(events, ',.0f') if events else why.get('events_per_s_within_2pct', '–')} "
            f"| {_number(send, '.2f') if send is not None else why.get('send_error_p99_ms_at_300rps', '–')} |"
        )
    return lines


def render(folder: Path) -> None:
    """Write `results.json`, and the tables of the README in the same folder if there is one."""
    setting, records = read_raw(folder)
    one_core, pair = cells(records, two_cores=False), cells(records, two_cores=True)
    head = headline(one_core, pair, setting)
    body = {
        "headline": head,
        "setting": asdict(setting),
        "one_core": [asdict(one) for one in one_core],
        "two_cores": [asdict(one) for one in pair],
    }
    text = json.dumps(body, indent=1, ensure_ascii=False)
    (folder / "results.json").write_text(text + "\n", encoding="utf-8")
    readme = folder / "README.md"
    if not readme.exists():
        return
    machine, versions = setting.machine, setting.versions
    lines = [
        f"{machine['processor']}, {machine['cores']} cores, Linux {machine['kernel']}, "
        f"Python {machine['python']}; "
        + ", ".join(
            f"{name} {version or 'not installed'}" for name, version in versions.items() if name != SPLIT
        )
        + f". Loads of {setting.seconds:g} s, the first {setting.lead_s:g} s left out; medians of trials.",
        "",
        *_summary(head),
        "",
        *table(one_core),
        *(["", "Two cores for the client:", "", *table(pair)] if pair else []),
    ]
    before, _, rest = readme.read_text(encoding="utf-8").partition(START)
    _, _, after = rest.partition(END)
    text = "\n".join([START, "", *lines, "", END])
    readme.write_text(before + text + after, encoding="utf-8")


if __name__ == "__main__":
    render(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
