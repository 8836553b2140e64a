"""What every engine and every workload format must do: subclass these, ours and yours alike.

A subclass gives the attributes; pytest collects the inherited tests. Name it `Test…`.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
import yaml

from autotune.domain.hardware import Hardware, ModelProfile
from autotune.domain.launch import EngineSpec, LaunchPlan
from autotune.domain.space import Point, SearchSpace
from autotune.engine.contract import Engine
from autotune.errors import InputError
from autotune.extensions import load_all
from autotune.formats import native
from autotune.formats.workloads import Format, gather, open_recording, read_workload


class FormatContract:
    """A workload format.

    `example` is a whole file of at least three requests. `broken` pairs a file that is good but for one row
    with the line of that row, `unreadable` one that cannot be read at all with the line at fault.
    """

    format: Format
    example: str
    broken: Mapping[str, tuple[str, int]]
    unreadable: Mapping[str, tuple[str, int]] = {}

    def test_it_knows_the_beginning_of_its_files(self) -> None:
        assert self.format.sniff(self.example)
        assert self.format.sniff(self.example[: len(self.example) // 2])

    def test_it_leaves_other_files_alone(self) -> None:
        for head in ("", "{}", "[]", "[{}]", "a,b,c", "<html>", '{"messages": []}', '"text"', "5", "[[[["):
            assert not self.format.sniff(head)

    def test_no_other_format_takes_its_files(self) -> None:
        takers = [
            one for one in load_all("autotune.formats").values() if cast("Format", one).sniff(self.example)
        ]
        assert takers == [self.format]

    def test_requests_come_in_order_from_zero(self, tmp_path: Path) -> None:
        path = tmp_path / "example"
        path.write_text(self.example, encoding="utf-8")
        requests = read_workload(path).requests
        assert len(requests) >= 3
        assert requests[0].offset_s == 0
        assert [one.offset_s for one in requests] == sorted(one.offset_s for one in requests)
        assert all(one.prompt_tokens >= 1 and one.output_tokens >= 1 for one in requests)

    def test_requests_are_read_as_they_are_asked_for(self, tmp_path: Path) -> None:
        path = tmp_path / "example"
        path.write_text(self.example, encoding="utf-8")
        heard: list[tuple[int, int | None]] = []
        opened = open_recording(path, advanced=lambda done, size: heard.append((done, size)))
        requests = opened.recording.requests
        assert iter(requests) is requests
        assert tuple(requests) == read_workload(path).requests
        size = path.stat().st_size
        assert heard[-1] == (size, size)

    def test_line_ends_a_byte_order_mark_and_packing_change_nothing(self, tmp_path: Path) -> None:
        plain = tmp_path / "plain"
        plain.write_bytes(self.example.encode())
        others = {
            "marked": b"\xef\xbb\xbf" + self.example.replace("\n", "\r\n").encode(),
            "gzip": gzip.compress(self.example.encode()),
            "zstd": pa.compress(self.example.encode(), codec="zstd", asbytes=True),
        }
        for name, content in others.items():
            path = tmp_path / name
            path.write_bytes(content)
            assert read_workload(path).requests == read_workload(plain).requests, name

    def test_a_broken_row_is_one_error_with_file_and_line(self, tmp_path: Path) -> None:
        for name, (text, line) in {**self.broken, **self.unreadable}.items():
            path = tmp_path / name
            path.write_text(text, encoding="utf-8")
            with pytest.raises(InputError) as caught:
                read_workload(path)
            assert caught.value.message.startswith(f"{path}:{line}: "), name
            assert "\n" not in caught.value.message
            assert len(caught.value.message) < len(str(path)) + 300
            assert caught.value.hint

    def test_a_broken_row_can_be_left_out(self, tmp_path: Path) -> None:
        whole = tmp_path / "whole"
        whole.write_text(self.example, encoding="utf-8")
        for name, (text, line) in self.broken.items():
            path = tmp_path / name
            path.write_text(text, encoding="utf-8")
            opened = open_recording(path, skip_bad=1)
            assert gather(opened).requests == read_workload(whole).requests, name
            assert len(opened.source.skipped) == 1
            assert opened.source.skipped[0].startswith(f"{path}:{line}: ")

    def test_what_it_reads_can_be_written_in_our_own_format(self, tmp_path: Path) -> None:
        path, ours = tmp_path / "example", tmp_path / "ours"
        path.write_text(self.example, encoding="utf-8")
        workload = read_workload(path)
        header = native.Header(
            block_tokens=workload.block_tokens, timed=workload.timed, counted=workload.counted
        )
        with ours.open("wb") as stream:
            native.write(header, workload.requests, stream)
        again = read_workload(ours)
        assert again.requests == workload.requests
        assert (again.block_tokens, again.timed, again.counted) == (
            workload.block_tokens,
            workload.timed,
            workload.counted,
        )


class EngineContract:
    """An engine, with a space, a spec, a machine and a model that fit together.

    `changed` is a setting of the space away from its default.
    """

    engine: Engine
    spec: EngineSpec
    space: SearchSpace
    hardware: Hardware
    model: ModelProfile
    changed: Point

    def plan(self, **settings: object) -> LaunchPlan:
        """The plan of the defaults with `settings`."""
        return self.engine.plan(
            {**self.space.default_point(), **settings},  # type: ignore[dict-item]
            space=self.space,
            spec=self.spec,
            model=self.model,
            variants={},
            hardware=self.hardware,
            port=8123,
            start_deadline_s=60,
        )

    def test_the_defaults_set_nothing_but_what_is_fixed(self) -> None:
        assert set(self.plan().settings) == {"model", *self.space.fixed}

    def test_a_changed_setting_reaches_the_command_and_the_deployment(self) -> None:
        default, changed = self.plan(), self.plan(**self.changed)
        assert (changed.argv, changed.env) != (default.argv, default.env)
        assert (changed.settings, changed.deploy_env) != (default.settings, default.deploy_env)

    def test_it_listens_on_loopback_and_on_the_port_asked_for(self) -> None:
        argv = self.plan().argv
        assert argv[argv.index("--host") + 1] == "127.0.0.1"
        assert argv[argv.index("--port") + 1] == "8123"

    def test_a_deployment_holds_nothing_that_only_a_trial_needs(self) -> None:
        text = self.engine.config_file(self.plan(**self.changed), ("a note",))
        assert text.startswith("# a note\n")
        assert "8123" not in text
        assert isinstance(yaml.safe_load(text), dict)

    def test_an_empty_log_names_no_cause(self) -> None:
        assert self.engine.diagnose(1, "") is None
        assert self.engine.facts("", start_s=1.5).start_s == 1.5

    def test_the_defaults_are_one_precision(self) -> None:
        point = self.space.default_point()
        assert self.engine.precision(point) == self.engine.precision(dict(reversed(point.items())))
