from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from studies import SPACE, Place, Said, load

from autotune.testing import Fault, Script, write_model


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An ordinary place of its own for each test."""
    return Place.make(tmp_path)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, Said]:
    """One whole study with everything in it, for all that only look at it."""
    space: dict[str, Any] = SPACE | {
        "presets": [
            {"name": "too-much", "settings": {"max_num_seqs": 64}, "why": "runs out of memory"},
            {"name": "int8", "settings": {"variant": "int8"}, "why": "fast, and worse"},
        ]
    }
    script = Script(
        children=True,
        speed={"model=*-int8": 3.0, "enforce_eager=true": 0.9},
        perplexity={"default": 20.0, "model=*-int8": 20.65},
        faults=(Fault(fault="oom", when="max_num_seqs=64"),),
    )
    place = Place.make(
        tmp_path_factory.mktemp("whole"),
        script=script,
        space=space,
        variants={"int8": "model-int8"},
        quality="perplexity=2%",
        trials=6,
        load=load(max_windows=2),
    )
    write_model(place.folder / "model-int8")
    return place, place.tune()


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, Said]:
    """Three trials of the ordinary place, told with `--json`; interrupted runs are compared with it."""
    place = Place.make(tmp_path_factory.mktemp("uninterrupted"))
    return place, place.tune("--json")
