"""Recordings written and read again."""

from __future__ import annotations

import io
import json
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.cli.workload_files import Target, opened, write
from autotune.cli.workloads import Cut, convert_file
from autotune.domain.workload import Request
from autotune.errors import InputError
from autotune.formats import native
from autotune.formats.workloads import read_workload
from autotune.traffic.edit import rebased

BODY = '{"messages":[{"role":"user","content":"two\\\\nlines"}]}'


@st.composite
def requests(draw: st.DrawFn) -> tuple[Request, ...]:
    """What our format can carry: at least two requests over some time, in blocks of 16."""
    found: list[Request] = []
    now_s = 0.0
    for _ in range(draw(st.integers(2, 8))):
        blocks = tuple(draw(st.lists(st.integers(-(2**63), 2**64 - 1), max_size=4)))
        session = draw(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5))
        found.append(
            Request(
                offset_s=now_s,
                prompt_tokens=draw(st.integers(max(1, 16 * len(blocks) - 15), 10_000)),
                output_tokens=draw(st.integers(1, 10_000)),
                blocks=blocks,
                session=session,
                think_s=draw(st.none() | st.floats(0, 1e5)),
                body=draw(st.none() | st.just(BODY)),
            )
        )
        now_s += draw(st.floats(0.001, 1e6))
    return tuple(found)


def wrote(path: Path, some: tuple[Request, ...], *, timed: bool = True, counted: bool = True) -> Path:
    with path.open("wb") as stream:
        native.write(native.Header(block_tokens=16, timed=timed, counted=counted), some, stream)
    return path


@given(requests(), st.booleans(), st.booleans())
def test_reading_what_was_converted_gives_what_was_read(
    some: tuple[Request, ...], timed: bool, counted: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = wrote(Path(folder) / "in.jsonl", some, timed=timed, counted=counted)
        out = Path(folder) / "out.jsonl"
        convert_file(path, Target(path=out), rate=None, spread=False, seed=0, skip_bad=0)
        before, after = read_workload(path), read_workload(out)
    assert before.requests == some
    assert after.requests == some
    assert (after.block_tokens, after.timed, after.counted) == (16, timed, counted)


def lengths(*sizes: int, body: str | None = None) -> tuple[Request, ...]:
    return tuple(
        Request(offset_s=place, prompt_tokens=size, output_tokens=1, body=body)
        for place, size in enumerate(sizes)
    )


@pytest.mark.parametrize(
    ("body", "source_mode", "mode"), [(None, 0o644, 0o644), (None, 0o600, 0o600), (BODY, 0o644, 0o600)]
)
def test_text_and_what_was_private_stay_private(
    tmp_path: Path, body: str | None, source_mode: int, mode: int
) -> None:
    path = wrote(tmp_path / "in.jsonl", lengths(1, 2, body=body))
    path.chmod(source_mode)
    out = tmp_path / "out.jsonl"
    convert_file(path, Target(path=out), rate=None, spread=False, seed=0, skip_bad=0)
    assert out.stat().st_mode & 0o777 == mode
    assert json.loads(out.read_text().splitlines()[0])["text"] is (body is not None)


def test_nothing_to_write_writes_nothing(tmp_path: Path) -> None:
    path = wrote(tmp_path / "in.jsonl", lengths(1, 2))
    with pytest.raises(InputError, match="no request is left"), opened(path, skip_bad=0) as sources:
        write(Target(path=tmp_path / "out.jsonl"), (), sources)
    assert not (tmp_path / "out.jsonl").exists()


def test_an_arrival_that_is_no_time_is_not_written(tmp_path: Path) -> None:
    path = wrote(tmp_path / "in.jsonl", lengths(1, 2))
    late = Request(offset_s=float("inf"), prompt_tokens=1, output_tokens=1)
    with pytest.raises(InputError, match="no recording lasts so long"), opened(path, skip_bad=0) as sources:
        write(Target(path=tmp_path / "out.jsonl"), rebased((*lengths(1), late)), sources)
    assert [one.name for one in tmp_path.iterdir()] == ["in.jsonl"]


def test_rows_left_out_are_told_once_all_were_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = wrote(tmp_path / "in.jsonl", lengths(1, 0, 2))
    with opened(path, skip_bad=1) as (one,):
        assert [request.prompt_tokens for request in one.recording.requests] == [1, 2]
    assert f"left out: {path}:3" in capsys.readouterr().err


def test_a_terminal_sees_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = wrote(tmp_path / "in.jsonl", lengths(*range(1, 100)))
    screen = io.StringIO()
    screen.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with opened(path, skip_bad=0) as (one,):
        assert len(list(one.recording.requests)) == 99
    assert "reading" in screen.getvalue()


@pytest.mark.parametrize(
    ("words", "stretch_s"),
    [
        ({"from_": "0", "to": "5s"}, (0, 5)),
        ({"from_": "1min", "to": None}, (60, float("inf"))),
        ({"from_": None, "to": "500ms"}, (0, 0.5)),
    ],
)
def test_a_stretch_of_time_may_be_open(words: dict[str, str | None], stretch_s: tuple[float, float]) -> None:
    cut = Cut.parse(busiest=None, by="requests", share=None, from_=words["from_"], to=words["to"])
    assert cut.stretch_s == stretch_s
