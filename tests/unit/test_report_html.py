from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from report_fixtures import RUN, SPACE, UNEVEN, confirmation, measured, result, trial, window

from autotune.domain.measurement import State
from autotune.domain.outcome import Cause, Infeasible, Result
from autotune.domain.slo import Metric
from autotune.report.html import _read_s, _tied, write_html

VOID = {"meta", "link", "br", "hr", "img", "input"}
LOADS = {"src", "srcset", "href", "xlink:href", "action", "data", "poster", "background"}
EVIL = '<script>alert(1)</script> & "quotes" </td>'


class Page(HTMLParser):
    """What stands in a page, and whether every element that opens closes in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attrs if name in LOADS]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.styles += [value or "" for name, value in attrs if name == "style"]
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        {"script": self.scripts, "style": self.styles}.get(inside, self.text).append(data)

    @property
    def figures(self) -> dict[str, Any]:
        """The figures as the page's script reads them; empty when there are none."""
        found = [one for one in self.scripts if one.startswith("{")]
        figures: dict[str, Any] = json.loads(found[0]) if found else {}
        return figures


def a_result() -> Result:
    held = window(4.0, passed=True, trial=7, n=2_940, bad=8, state=State.PASS, needed=None, phase="confirm")
    return result(
        trial(0, measured(2.0, 2.3)),
        trial(1, Infeasible(cause=Cause.OUT_OF_MEMORY, evidence=EVIL), max_num_seqs=1024),
        trial(7, measured(4.2, 4.6, trial=7), max_num_seqs=512),
        winner=7,
        confirmations=(confirmation(7, held, speed=4.0),),
    )


def write_window(path: Path, first_s: list[float | None]) -> None:
    """A Parquet file as a replay writes it, all requests due at 1 s; None was never answered."""
    path.parent.mkdir(parents=True, exist_ok=True)
    due = 1_000_000_000
    first = [None if one is None else due + round(one * 1e9) for one in first_s]
    last = [None if one is None else one + 1_000_000_000 for one in first]
    pd.DataFrame(
        {
            "due_ns": [due] * len(first),
            "first_ns": pd.array(first, dtype="Int64"),
            "last_ns": pd.array(last, dtype="Int64"),
            "finished": [one is not None for one in first],
            "cancelled": [False] * len(first),
        }
    ).to_parquet(path)


def page(folder: Path, what: Result | None = None) -> Page:
    return Page(write_html(RUN, what or a_result(), folder).read_text(encoding="utf-8"))


def test_the_page_is_well_formed_and_its_ids_are_unique(tmp_path: Path) -> None:
    ids = page(tmp_path).ids
    assert len(ids) == len(set(ids))


def test_nothing_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    found = page(tmp_path)
    assert [one for one in found.loads if not one.startswith(("#", "data:"))] == []
    assert re.search(r"@import|url\(", "".join(found.styles)) is None
    own = [one for one in found.scripts if not one.lstrip().startswith("/**")]
    assert len(own) == 2
    assert not any("http" in one for one in own + found.styles)
    assert "http" not in "".join(found.text)


def test_the_browser_is_told_to_load_nothing(tmp_path: Path) -> None:
    text = write_html(RUN, a_result(), tmp_path).read_text(encoding="utf-8")
    assert "Content-Security-Policy\" content=\"default-src 'none';" in text


def test_what_an_engine_wrote_cannot_become_markup(tmp_path: Path) -> None:
    text = write_html(RUN, a_result(), tmp_path).read_text(encoding="utf-8")
    assert "<script>alert(1)" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp;" in text
    infeasible = next(
        one for one in Page(text).figures["history"]["data"] if one["name"] == "Infeasible"
    )  # Plotly reads tags in labels, so there too it is text
    assert "<script>" not in infeasible["text"][0]
    assert "&lt;script&gt;" in infeasible["text"][0]


def test_a_hostile_setting_cannot_become_markup(tmp_path: Path) -> None:
    hostile = replace(SPACE.parameters[2], levels=("auto", EVIL), why=EVIL)
    space = replace(SPACE, parameters=(*SPACE.parameters[:2], hostile, SPACE.parameters[3]))
    best = trial(7, measured(4.2, 4.6, trial=7), kv_cache_dtype=EVIL)
    what = result(trial(0, measured(2.0, 2.3)), best, winner=7)
    text = write_html(replace(RUN, space=space), what, tmp_path).read_text(encoding="utf-8")
    assert "<script>alert(1)" not in text
    assert Page(text).ids


def test_missing_files_cost_their_curves_and_are_counted(tmp_path: Path) -> None:
    found = page(tmp_path)
    assert found.figures.keys() == {"load", "history"}
    assert "chart-latency" not in found.ids
    assert "The per-request files of 3 windows could not be read; their curves are left out." in "".join(
        found.text
    )


def test_a_damaged_file_costs_its_curve_only(tmp_path: Path) -> None:
    write_window(tmp_path / "trials/0000/climb-2.parquet", [0.1, 0.2])
    (tmp_path / "trials/0007").mkdir()
    (tmp_path / "trials/0007/climb-4.2.parquet").write_bytes(b"not a table")
    found = page(tmp_path)
    assert len(found.figures["latency"]["data"]) == 1
    assert "files of 2 windows could not be read" in "".join(found.text)


def test_curves_come_from_the_files_and_end_low_when_requests_went_unanswered(tmp_path: Path) -> None:
    # 600 values were judged; two of the four in this file were answered, after 100 and 400 ms.
    write_window(tmp_path / "trials/0007/climb-4.2.parquet", [0.4, None, 0.1, None])
    curve = page(tmp_path).figures["latency"]["data"][0]
    assert curve["x"] == [0.1, 0.4]
    # (k − ½) / n: 1 − 0.5/600 = 0.99917 and 1 − 1.5/600 = 0.9975, as −log10
    assert curve["y"] == [0.0004, 0.0011]
    assert curve["name"] == "Tuned at 8.40 req/s, held, n = 600"


def test_ttft_counts_from_the_due_time_and_e2el_to_the_last_token(tmp_path: Path) -> None:
    path = tmp_path / "window.parquet"
    write_window(path, [0.25, None])
    assert _read_s(path, Metric.TTFT) == [0.25]
    assert _read_s(path, Metric.E2EL) == [1.25]


@pytest.mark.parametrize(
    ("finished", "cancelled", "seen"), [(True, False, [0.25]), (False, True, [0.25]), (False, False, [])]
)
def test_a_failed_request_has_no_ttft_but_one_cut_off_by_us_has(
    tmp_path: Path, finished: bool, cancelled: bool, seen: list[float]
) -> None:
    path = tmp_path / "window.parquet"
    write_window(path, [0.25])
    pd.read_parquet(path).assign(finished=finished, cancelled=cancelled).to_parquet(path)
    assert _read_s(path, Metric.TTFT) == seen


def test_a_window_without_a_percentile_stands_at_the_top(tmp_path: Path) -> None:
    stuck = replace(
        measured(2.0, None), windows=(window(2.0, passed=True), window(3.0, passed=False, value_s=None))
    )
    load = page(tmp_path, result(trial(0, stuck), winner=0)).figures["load"]
    assert load["data"][0]["y"][1] == pytest.approx(10 ** load["layout"]["yaxis"]["range"][1])
    assert "without a value" in load["data"][0]["text"][1]


@pytest.mark.parametrize(
    "what",
    [
        result(winner=None),
        result(trial(0, Infeasible(cause=Cause.OUT_OF_MEMORY, evidence="out of memory")), winner=None),
        result(trial(0, measured(None, 0.1)), winner=None),
        result(trial(0, measured(2.0, 2.3)), winner=0),
        result(trial(0, measured(2.0, None)), trial(7, measured(4.2, None, trial=7)), winner=7),
    ],
    ids=["empty", "infeasible", "nothing holds", "keep", "open brackets"],
)
def test_every_ending_has_a_page(tmp_path: Path, what: Result) -> None:
    assert "proof" in page(tmp_path, what).ids


def test_the_file_is_replaced_whole_and_always_the_same(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("old")
    first = write_html(RUN, a_result(), tmp_path).read_bytes()
    second = write_html(RUN, a_result(), tmp_path).read_bytes()
    assert first == second
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


def test_numbers_stay_with_their_units() -> None:
    assert _tied("8.20 – 9.10 req/s inside [1.8, 2.3] ≤ 500 ms at 95 % of it") == (
        "8.20\u00a0–\u00a09.10\u00a0req/s inside [1.8,\u00a02.3]\u00a0≤\u00a0500\u00a0ms at 95\u00a0% of it"
    )


def test_the_page_deploys_with_the_script_beside_it(tmp_path: Path) -> None:
    path = write_html(RUN, a_result(), tmp_path, variables=("VLLM_CPU_OMP_THREADS_BIND",))
    text = "".join(Page(path.read_text(encoding="utf-8")).text)
    assert "./serve.sh" in text
    assert "vllm serve" not in text
    assert "serve.sh also sets VLLM_CPU_OMP_THREADS_BIND" in text


def test_what_was_offered_is_shown_under_that_name_only(tmp_path: Path) -> None:
    path = write_html(UNEVEN, a_result(), tmp_path)
    figure = Page(path.read_text(encoding="utf-8")).figures["load"]
    # The tuned climb: 4.2 × 2.5 and 4.6 × 2.5, though 8.4 and 9.2 req/s were offered.
    assert figure["data"][1]["x"] == [10.5, 11.5]
    assert figure["layout"]["xaxis"]["title"]["text"] == "Request rate, req/s"
