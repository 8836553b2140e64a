"""What every engine and every workload format must do: subclass these, ours and yours alike.

A subclass gives the attributes; pytest collects the inherited tests. Name it `Test…`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from autotune.domain.hardware import Hardware, ModelProfile
from autotune.domain.launch import EngineSpec, LaunchPlan
from autotune.domain.space import Point, SearchSpace
from autotune.engine.contract import Engine
from autotune.errors import InputError
from autotune.formats.workloads import Format, read_workload


class FormatContract:
    """A workload format.

    `example` is a whole file of at least three requests; `broken` pairs a file with the line at fault.
    """

    format: Format
    example: str
    broken: dict[str, tuple[str, int]]

    def test_it_knows_its_own_first_line(self) -> None:
        assert self.format.sniff(self.example.splitlines()[0])

    def test_it_leaves_other_files_alone(self) -> None:
        for head in ("", "{}", "a,b,c", "<html>", '{"messages": []}'):
            assert not self.format.sniff(head)

    def test_requests_come_in_order_from_zero(self, tmp_path: Path) -> None:
        path = tmp_path / "example"
        path.write_text(self.example, encoding="utf-8")
        requests = read_workload(path).requests
        assert len(requests) >= 3
        assert [one.offset_s for one in requests] == sorted(one.offset_s for one in requests)
        assert all(one.prompt_tokens >= 1 and one.output_tokens >= 1 for one in requests)

    def test_line_ends_and_a_byte_order_mark_change_nothing(self, tmp_path: Path) -> None:
        plain, marked = tmp_path / "plain", tmp_path / "marked"
        plain.write_bytes(self.example.encode())
        marked.write_bytes(b"\xef\xbb\xbf" + self.example.replace("\n", "\r\n").encode())
        assert read_workload(plain).requests == read_workload(marked).requests

    def test_a_broken_row_is_one_error_with_file_and_line(self, tmp_path: Path) -> None:
        for name, (text, line) in self.broken.items():
            path = tmp_path / name
            path.write_text(text, encoding="utf-8")
            with pytest.raises(InputError) as caught:
                read_workload(path)
            assert f"{path}:{line}:" in caught.value.message
            assert caught.value.hint


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
