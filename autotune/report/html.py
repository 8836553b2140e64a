"""The report as one HTML file that needs no network: its script, its styles and its data are inside."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from autotune.domain.outcome import Result
from autotune.domain.run import Run
from autotune.domain.slo import Metric
from autotune.report.charts import history_figure, latency_figure, load_figure
from autotune.report.view import View, view
from autotune.report.words import listed, objective, plural
from autotune.shipped import shipped
from autotune.units import show_duration
from autotune.whole import whole


def write_html(run: Run, result: Result, folder: Path, *, variables: tuple[str, ...] = ()) -> Path:
    """Write `folder/report.html` and return its path; a reader never sees half a file.

    `variables` are the names of the environment variables that a deployment sets.
    Per-request files that are missing or damaged cost their curve, not the report.
    """
    page = view(run, result, variables=variables)
    values_s = _latencies_s(page, folder)
    figures = {
        "load": load_figure(page.load),
        "latency": latency_figure(page.latency, values_s),
        "history": history_figure(page.history, page.default_rps),
    }
    text = (
        _environment()
        .get_template("report.html.j2")
        .render(
            page=page,
            figures={name: figure for name, figure in figures.items() if figure is not None},
            missing=len(page.latency.curves) - len(values_s),
            # Inside a script element only this ends the element; JavaScript reads both spellings alike.
            plotly=get_plotlyjs().replace("</script", "<\\/script"),
        )
    )
    target = folder / "report.html"
    with whole(target) as part:
        part.write_text(text, encoding="utf-8")
    return target


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(shipped("reports/templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_tied,
    )
    environment.globals["plural"] = plural
    environment.filters |= {
        "duration": show_duration,
        "listed": listed,
        "objective": objective,
    }
    return environment


_LOOSE = re.compile(
    r"(?<=\d) (?=(?:%|ms|s|min|h|req/s|×|bad)(?![\w/]))"  # a number and its unit
    r"|(?<=[≤≥<–]) | (?=[≤≥–])"  # a sign and its number
    r"|(?<=\d,) (?=[\d.]+\])"  # both ends of an interval
)


def _tied(value: object) -> object:
    """Keep a number and its unit, and the two ends of a bracket, on one line."""
    return _LOOSE.sub("\u00a0", value) if type(value) is str else value


def _latencies_s(page: View, folder: Path) -> Mapping[str, list[float]]:
    """Values of the curves' metric by the name of their file, for the files that can be read."""
    found = {}
    for curve in page.latency.curves:
        try:
            found[curve.timings] = _read_s(folder / curve.timings, page.latency.metric)
        except (OSError, KeyError, pa.ArrowException):
            continue
    return found


def _read_s(path: Path, metric: Metric) -> list[float]:
    """Latencies from the due time, to the first token or to the last.

    A request that failed has none, whatever it had answered before: it counts as bad, and the curve shows it
    as missing. One that we cut off keeps its first token.
    """
    stamp = "last_ns" if metric is Metric.E2EL else "first_ns"
    names = ["due_ns", stamp, "finished", "cancelled"]
    rows = pq.read_table(path, columns=names)
    columns = (rows[name].to_pylist() for name in names)
    return [
        (seen - due) / 1e9
        for due, seen, finished, cancelled in zip(*columns, strict=True)
        if seen is not None and (finished or (cancelled and metric is Metric.TTFT))
    ]
