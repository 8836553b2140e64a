from __future__ import annotations

from pathlib import Path

import pytest

from autotune import shipped
from autotune.errors import SetupError


def test_a_checkout_ships_the_report_template() -> None:
    assert (shipped.shipped("reports/templates") / "report.html.j2").is_file()


def test_an_installed_package_comes_before_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "autotune"
    (package / "_shipped/workloads").mkdir(parents=True)
    (tmp_path / "workloads").mkdir()
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(shipped, "_PACKAGE", package)
    assert shipped.shipped("workloads") == package / "_shipped/workloads"


def test_a_stranger_beside_an_installed_package_is_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "workloads").mkdir()
    monkeypatch.setattr(shipped, "_PACKAGE", tmp_path / "autotune")
    with pytest.raises(SetupError, match="'workloads', which ships with autotune, is missing") as caught:
        shipped.shipped("workloads")
    assert caught.value.hint is not None
