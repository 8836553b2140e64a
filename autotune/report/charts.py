"""The three charts as Plotly figures: plain JSON, whose colours are names that the page resolves.

A string such as '--tuned' stands for a CSS variable, because a figure must follow the reader from a
light screen to a dark one and to paper; `html.escape` guards text, for Plotly reads tags in labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from autotune.report.marks import LatencyCurve, LatencyCurves, LoadCurve, LoadLine, LoadPoint, Role
from autotune.report.table import HistoryPoint, Kind
from autotune.report.words import limit, three
from autotune.units import show_duration

Figure = Mapping[str, object]

_SYMBOL = {Role.DEFAULT: "square", Role.TUNED: "circle"}
_MOST_POINTS = 1500
"""Points of one curve; more would not be seen and make the page heavy."""


def history_figure(points: Sequence[HistoryPoint], default_rps: float | None) -> Figure | None:
    """Capacity by trial, the best so far as steps, the default as a dashed line; None without trials."""
    if not points:
        return None
    highest = max((point.high_rps or point.low_rps or 0.0 for point in points), default=0.0) or 1.0
    first, last = points[0].number - 0.5, points[-1].number + 0.5
    traces: list[Figure] = []
    best = [point for point in points if point.best_rps is not None]
    if best:
        xs = [*(point.number for point in best), last]
        ys = [*(point.best_rps for point in best), best[-1].best_rps]
        line = {"color": "--soft", "width": 1.5, "shape": "hv"}
        traces.append({"x": xs, "y": ys, "mode": "lines", "name": "Best so far", "line": line, **_SILENT})
    if default_rps is not None:
        line = {"color": "--default", "width": 1.5, "dash": "dash"}
        name = f"Default, {three(default_rps)} req/s"
        xs = [first, last]
        traces.append(
            {"x": xs, "y": [default_rps] * 2, "mode": "lines", "name": name, "line": line, **_SILENT}
        )
    measured = [point for point in points if point.kind is Kind.MEASURED]
    groups = (
        ("Other trials", "--mark", "circle", 8, [p for p in measured if p.number != 0 and not p.winner]),
        ("Default settings", "--default", "square", 10, [p for p in measured if p.number == 0]),
        ("Winner", "--tuned", "diamond", 13, [p for p in measured if p.winner and p.number != 0]),
        ("Held at no rate tried", "--mark", "triangle-down-open", 9, _of(points, Kind.NEVER_HELD)),
        ("Infeasible", "--mark", "x-thin", 8, _of(points, Kind.INFEASIBLE)),
        ("Stopped or faulted", "--mark", "circle-open", 8, _of(points, Kind.STOPPED, Kind.FAULTED)),
    )
    traces += [_trials(*group) for group in groups if group[-1]]
    whole = list(range(points[0].number, points[-1].number + 1, max(1, math.ceil(len(points) / 12))))
    return {
        "data": traces,
        "layout": _layout(
            x={"title": _title("Trial"), "range": [first, last], "tickvals": whole, "showgrid": False},
            y={"title": _title("Capacity, req/s"), "range": [-0.05 * highest, 1.08 * highest]},
        ),
    }


def _of(points: Sequence[HistoryPoint], *kinds: Kind) -> list[HistoryPoint]:
    return [point for point in points if point.kind in kinds]


def _trials(name: str, colour: str, symbol: str, size: int, points: Sequence[HistoryPoint]) -> Figure:
    lows = [point.low_rps or 0.0 for point in points]
    above = [0.0 if p.high_rps is None else p.high_rps - low for p, low in zip(points, lows, strict=True)]
    return {
        "x": [point.number for point in points],
        "y": lows,
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": above,
            "arrayminus": [0.0] * len(points),
            "color": colour,
            "thickness": 1.5,
            "width": 4,
        },
        "mode": "markers",
        "name": name,
        "cliponaxis": False,
        "marker": {"color": colour, "symbol": symbol, "size": size, "line": {"color": colour, "width": 2}},
        "text": [escape(point.text) for point in points],
        "hovertemplate": "%{text}<extra></extra>",
    }


def latency_figure(shown: LatencyCurves, values_s: Mapping[str, Sequence[float]]) -> Figure | None:
    """Distributions on a logarithmic axis; `values_s` by the curves' `timings`, None without any.

    The share axis counts nines (−log10 of the share that is slower), so that the limit's corner can be seen.
    """
    drawn = [
        (curve, sorted(values_s[curve.timings])) for curve in shown.curves if values_s.get(curve.timings)
    ]
    if not drawn:
        return None
    traces = [_distribution(curve, ordered) for curve, ordered in drawn]
    lows = [ordered[0] for _, ordered in drawn]
    highs = [ordered[-1] for _, ordered in drawn]
    x_range = _spread([*lows, *highs] + ([shown.slo.limit_s] if shown.slo else []))
    top = max(math.log10(2 * curve.n) for curve, _ in drawn) * 1.03
    shapes, notes = [], []
    if shown.slo is not None:
        nines = -math.log10(shown.slo.allowed_share)
        corner = shown.slo.limit_s
        shapes = [_shade(x0=corner, x1=10 ** x_range[1], y0=0, y1=nines), _rule(x0=corner, x1=corner)]
        notes = [_note(f"limit {limit(corner)}", x=math.log10(corner), y=1, yref="paper", xanchor="right")]
    shares = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999]
    return {
        "data": traces,
        "layout": _layout(
            x={
                **_seconds(x_range),
                "title": _title(f"{shown.metric.name}, counted from the due time"),
            },
            y={
                "title": _title("Share of requests within"),
                "range": [0, top],
                "tickvals": [-math.log10(1 - share) for share in shares],
                "ticktext": [f"{share * 100:g} %" for share in shares],
            },
            shapes=shapes,
            annotations=notes,
        ),
    }


def _distribution(curve: LatencyCurve, ordered: Sequence[float]) -> Figure:
    """Plotting positions (k − ½) / n, so that missing values hold the curve down.

    Source: Hazen, Transactions of the ASCE 77 (1914) 1539.
    """
    n = max(curve.n, len(ordered))
    step = max(1, len(ordered) // _MOST_POINTS)
    kept = [k for k in range(len(ordered)) if k % step == 0 or k >= len(ordered) - 200]
    outcome = "held" if curve.held else "not held"
    return {
        "x": [float(f"{ordered[k]:.5g}") for k in kept],
        "y": [round(-math.log10(1 - (k + 0.5) / n), 4) for k in kept],
        "text": [f"{(k + 0.5) / n * 100:.4g} % within {show_duration(ordered[k])}" for k in kept],
        "mode": "lines",
        "name": f"{curve.name} at {three(curve.rate_rps)} req/s, {outcome}, n = {curve.n:,}",
        "line": {"color": _colour(curve.role), "width": 2.5, "dash": "solid" if curve.held else "dot"},
        "hovertemplate": "%{text}<extra>%{fullData.name}</extra>",
    }


def load_figure(shown: LoadCurve) -> Figure | None:
    """Request rate against the tail, both trials; None when no window produced a value."""
    slo, name = shown.slo, shown.name
    tails = [point.tail_s for line in shown.lines for point in line.points if point.tail_s is not None]
    if not tails:
        return None
    y_range = _spread([*tails, slo.limit_s])
    traces = [
        trace
        for line in shown.lines
        for confirmation in (False, True)
        if (trace := _windows(line, name, 10 ** y_range[1], confirmation=confirmation)) is not None
    ]
    fastest = max(point.rate_rps for line in shown.lines for point in line.points)
    return {
        "data": traces,
        "layout": _layout(
            x={"title": _title("Request rate, req/s"), "range": [0, 1.06 * fastest]},
            y={**_seconds(y_range), "title": _title(name)},
            shapes=[
                _shade(xref="paper", x0=0, x1=1, y0=slo.limit_s, y1=10 ** y_range[1]),
                _rule(xref="paper", yref="y", x0=0, x1=1, y0=slo.limit_s, y1=slo.limit_s),
            ],
            annotations=[
                _note(
                    f"limit {limit(slo.limit_s)}",
                    x=0,
                    xref="paper",
                    y=math.log10(slo.limit_s),
                    xanchor="left",
                    yanchor="bottom",
                )
            ],
        ),
    }


def _windows(line: LoadLine, tail_name: str, ceiling_s: float, *, confirmation: bool) -> Figure | None:
    """The windows of one trial; one without a percentile stands at the ceiling, for it is above any limit."""
    points = [point for point in line.points if point.confirmation is confirmation]
    if not points:
        return None
    symbol = "diamond" if confirmation else _SYMBOL[line.role]
    colour = _colour(line.role)
    return {
        "x": [point.rate_rps for point in points],
        "y": [ceiling_s if point.tail_s is None else point.tail_s for point in points],
        "cliponaxis": False,
        "text": [_window_text(point, tail_name) for point in points],
        "mode": "markers" if confirmation else "lines+markers",
        "name": f"{line.name}, confirmation" if confirmation else line.name,
        "line": {"color": colour, "width": 2},
        "marker": {
            "color": [colour if point.passed else "--paper" for point in points],
            "symbol": symbol,
            "size": 13 if confirmation else 9,
            "opacity": 1,
            "line": {"color": colour, "width": 2},
        },
        "hovertemplate": "%{text}<extra>%{fullData.name}</extra>",
    }


def _window_text(point: LoadPoint, tail_name: str) -> str:
    held = "held" if point.passed else "not held"
    seconds = "without a value" if point.tail_s is None else show_duration(point.tail_s)
    return f"{three(point.rate_rps)} req/s: {tail_name} {seconds}, {point.bad} bad, {held}"


_SILENT = {"hoverinfo": "skip"}


def _colour(role: Role) -> str:
    return f"--{role.value}"


def _title(text: str) -> Figure:
    return {"text": text, "font": {"size": 13, "color": "--soft"}}


def _layout(
    *, x: Figure, y: Figure, shapes: Sequence[Figure] = (), annotations: Sequence[Figure] = ()
) -> Figure:
    axis = {
        "gridcolor": "--line",
        "linecolor": "--line",
        "zeroline": False,
        "fixedrange": True,
        "automargin": True,
        "ticks": "",
    }
    return {
        "autosize": True,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "--sans", "size": 13, "color": "--ink"},
        "margin": {"l": 56, "r": 12, "t": 12, "b": 44},
        "dragmode": False,
        "hovermode": "closest",
        "hoverlabel": {"align": "left", "bgcolor": "--card", "font": {"color": "--ink"}},
        "showlegend": False,
        "xaxis": {**axis, **x},
        "yaxis": {**axis, **y},
        "shapes": list(shapes),
        "annotations": list(annotations),
    }


def _spread(values: Sequence[float]) -> tuple[float, float]:
    """Exponents of ten around positive values, with a little air."""
    low, high = math.log10(max(min(values), 1e-6)), math.log10(max(values))
    air = 0.06 * (high - low) + 0.03
    return low - air, high + air


def _seconds(exponents: tuple[float, float]) -> dict[str, object]:
    """A logarithmic axis whose ticks read '300 ms' and '1 s', as many as a phone has room for."""
    low, high = exponents
    spans = ((0.7, (1, 2, 3, 4, 5, 6, 8)), (1.5, (1, 2, 5)), (4.0, (1, 3)), (math.inf, (1,)))
    steps = next(steps for span, steps in spans if high - low < span)
    ticks = [step * 10.0**decade for decade in range(math.floor(low), math.ceil(high) + 1) for step in steps]
    shown = [tick for tick in ticks if low <= math.log10(tick) <= high]
    return {
        "type": "log",
        "range": [low, high],
        "tickvals": shown,
        "ticktext": [limit(tick) for tick in shown],
    }


def _shade(**corners: object) -> Figure:
    """Where the promise is broken."""
    return {"type": "rect", "layer": "below", "fillcolor": "--shade", "line": {"width": 0}, **corners}


def _rule(**ends: object) -> Figure:
    line = {"color": "--ink", "width": 1, "dash": "dash"}
    return {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "line": line, **ends}


def _note(text: str, **place: object) -> Figure:
    return {"text": text, "showarrow": False, "yanchor": "top", "font": {"color": "--soft"}, **place}
