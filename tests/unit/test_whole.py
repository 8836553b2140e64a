"""Files that appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.whole import whole


def test_a_file_takes_its_name_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "serve.sh"
    with whole(target, mode=0o755) as part:
        part.write_text("new")
        assert not target.exists()
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o755
    assert list(tmp_path.iterdir()) == [target]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("old")
    with pytest.raises(IsADirectoryError), whole(target) as part:  # noqa: PT012  it fails half way
        part.write_text("half")
        tmp_path.read_text()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
