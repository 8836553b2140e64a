"""The committed examples can still be read, and their reports written again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from studies import Place

EXAMPLES = Path(__file__).parents[2] / "reports/examples"


@pytest.mark.parametrize("name", ["h200-smollm2-135m", "h200-llama-8b"])
def test_the_report_of_an_example_is_written_again(tmp_path: Path, name: str) -> None:
    place = Place.make(tmp_path)
    folder = place.folder / "run"
    shutil.copytree(EXAMPLES / name / "run", folder)
    (folder / "report.html").unlink()
    said = place.run("report", "run")
    assert said.code == 0, said.stderr
    assert (folder / "report.html").exists()
