"""Search spaces in YAML; whatever is wrong is one `InputError` that starts with FILE:LINE."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from autotune.domain.hardware import INSTRUCTION_SETS
from autotune.domain.space import Parameter, Preset, Rule, SearchSpace, Value
from autotune.errors import InputError
from autotune.formats.yaml_nodes import Document, Entry, nearest, show
from autotune.space.known import (
    ENGINE_DEFAULT,
    VLLM,
    VLLM_FIXED_ONLY,
    VLLM_FIXED_SIZES,
    VLLM_REFUSED,
    Tunable,
)
from autotune.space.versions import admits
from autotune.units import parse_size

_MOST_LEVELS = 64  # every level costs launches; a finer range is a slip of the pen
_HARDWARE_DEFAULTS = frozenset({"max_num_seqs", "max_num_batched_tokens"})  # settled by space.narrow
_NEVER_FIXED = {
    # what is no flag has no place in every launch's flags
    "variant": "give that folder to the run as its model",
    "threads": "vary it, or begin with it by a preset",
}
_KIND_WORDS: Mapping[type[Value], str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a word",
}


def load_space(path: Path) -> SearchSpace:
    """The search space in `path`; its `engine` defaults are left for `space.narrow` to settle.

    Raises `InputError`, one line with file, line number and hint, for the first thing that is wrong.
    """
    file = Document(path)
    top = file.mapping(
        file.tree(),
        "a search space",
        ("name", "engine", "device", "versions", "parameters"),
        ("fixed", "rules", "presets"),
    )
    engine = file.text(top["engine"].value, "engine")
    device = file.text(top["device"].value, "device")
    if device not in ("cpu", "cuda"):
        raise file.error(top["device"].value, f"unknown device {device!r}", "write cpu or cuda")
    versions = file.text(top["versions"].value, "versions")
    file.placed(top["versions"].value, lambda: admits(versions, "0"))
    reader = _Reader(file=file, device=device, vllm=engine == "vllm")
    parameters = reader.parameters(top["parameters"].value)
    by_name = {parameter.name: parameter for parameter in parameters}
    return SearchSpace(
        name=file.text(top["name"].value, "name"),
        engine=engine,
        device=device,
        versions=versions,
        parameters=parameters,
        rules=reader.rules(top["rules"].value, by_name) if "rules" in top else (),
        presets=reader.presets(top["presets"].value, by_name) if "presets" in top else (),
        fixed=reader.fixed(top["fixed"].value, by_name) if "fixed" in top else {},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Reads the parts of one space; only vLLM's settings are known by name and kind."""

    file: Document
    device: str
    vllm: bool

    def parameters(self, node: yaml.Node) -> tuple[Parameter, ...]:
        """All parameters in the order written; at least one."""
        found = tuple(
            self._parameter(name, entry) for name, entry in self.file.mapping(node, "parameters").items()
        )
        if not found:
            raise self.file.error(node, "a space without parameters", "name at least one with its levels")
        return found

    def _parameter(self, name: str, entry: Entry) -> Parameter:
        tunable = self._tunable(name, entry.key) if self.vllm else None
        fields = self.file.mapping(entry.value, name, ("default",), ("levels", "range", "why", "cpu_lacks"))
        if ("levels" in fields) == ("range" in fields):
            raise self.file.error(
                entry.key, f"{name} needs either `levels` or `range`", "for example levels: [256, 512, 1024]"
            )
        if "levels" in fields:
            where = fields["levels"].value
            levels = [
                self._value(node, f"level {{}} of {name}", tunable)
                for node in self.file.items(where, "levels")
            ]
        else:
            where = fields["range"].value
            levels = self._range(where, name, tunable)
        self._check_levels(where, name, levels)
        numeric = all(_is_number(level) for level in levels)
        if numeric:
            levels.sort(key=float)
        return Parameter(
            name=name,
            levels=tuple(levels),
            default=self._default(fields["default"].value, name, levels, tunable),
            ordered=numeric,
            why=self.file.text(fields["why"].value, "why") if "why" in fields else "",
            cpu_lacks=self._instructions(fields["cpu_lacks"].value) if "cpu_lacks" in fields else "",
        )

    def _instructions(self, node: yaml.Node) -> str:
        """An instruction set that we look for."""
        name = self.file.text(node, "cpu_lacks")
        if name not in INSTRUCTION_SETS:
            raise self.file.error(
                node, f"unknown instruction set {name!r}", f"one of {', '.join(INSTRUCTION_SETS)}"
            )
        return name

    def _tunable(self, name: str, node: yaml.Node) -> Tunable:
        """What is known of a vLLM setting; refuses what it does not know or must not be varied."""
        if name in VLLM:
            tunable = VLLM[name]
            if tunable.device not in (None, self.device):
                raise self.file.error(
                    node,
                    f"{name} is a setting of {tunable.device}, the space is for {self.device}",
                    "leave it out",
                )
            return tunable
        if name in VLLM_FIXED_ONLY:
            reason = VLLM_FIXED_ONLY[name] or "autotune does not vary it"
            raise self.file.error(node, f"{name} is no parameter: {reason}", "write it under `fixed`")
        raise self._unknown_setting(name, node, VLLM)

    def _unknown_setting(self, name: str, node: yaml.Node, known: Iterable[str]) -> InputError:
        if name in VLLM_REFUSED:
            return self.file.error(node, f"{name} cannot be used", VLLM_REFUSED[name])
        near = nearest(name.replace("-", "_"), known)
        hint = f"did you mean {near}?" if near else "write a long option of vLLM with underscores"
        return self.file.error(node, f"unknown setting {name!r}", hint)

    def _check_levels(self, node: yaml.Node, name: str, levels: list[Value]) -> None:
        if not levels:
            raise self.file.error(node, f"{name} has no levels", "give it at least one")
        if len({_kind(level) for level in levels}) > 1:
            raise self.file.error(
                node,
                f"the levels of {name} mix {' and '.join(sorted({_kind(level) for level in levels}))}",
                "write all of them as numbers, as words or as true and false",
            )
        twice = [level for index, level in enumerate(levels) if level in levels[:index]]
        if twice:
            raise self.file.error(node, f"{name} has the level {show(twice[0])} twice", "keep one of them")

    def _range(self, node: yaml.Node, name: str, tunable: Tunable | None) -> list[Value]:
        fields = self.file.mapping(node, f"the range of {name}", ("low", "high"), ("step", "factor"))
        number = {
            field: self.file.number(entry.value, f"{field} of {name}") for field, entry in fields.items()
        }
        low, high = number["low"], number["high"]
        if ("step" in number) == ("factor" in number):
            raise self.file.error(
                node,
                f"the range of {name} needs either `step` or `factor`",
                "step adds (256, 512, 768), factor multiplies (256, 512, 1024)",
            )
        if low > high:
            raise self.file.error(node, f"the range of {name} is empty: {low} > {high}", "swap low and high")
        if "step" in number and number["step"] <= 0:
            raise self.file.error(
                fields["step"].value, f"step {number['step']} of {name}", "write a step above 0"
            )
        if "factor" in number and (number["factor"] <= 1 or low <= 0):
            raise self.file.error(
                node,
                f"the range of {name} never ends: low {low}, factor {number['factor']}",
                "write a low above 0 and a factor above 1",
            )
        levels: list[Value] = []
        level = low
        while level <= high:
            if len(levels) == _MOST_LEVELS:
                raise self.file.error(
                    node,
                    f"the range of {name} has more than {_MOST_LEVELS} levels",
                    "every level costs launches; use `factor`, or a wider step",
                )
            levels.append(self._typed(node, level, f"level {{}} of {name}", tunable))
            level = low + len(levels) * number["step"] if "step" in number else level * number["factor"]
            level = level if isinstance(level, int) else round(level, 10)  # 0.6 + 3 · 0.1 is 0.9
        return levels

    def _default(self, node: yaml.Node, name: str, levels: list[Value], tunable: Tunable | None) -> Value:
        written = self.file.scalar(node, f"default of {name}")
        if written == ENGINE_DEFAULT and tunable is not None:
            if tunable.default is None and name not in _HARDWARE_DEFAULTS:
                raise self.file.error(
                    node,
                    f"the engine's default of {name} is not known",
                    "write the value that the engine uses here",
                )
            return ENGINE_DEFAULT
        default = self._value(node, f"default {{}} of {name}", tunable)
        if default not in levels:
            raise self.file.error(
                node,
                f"the default {show(default)} of {name} is not among its levels",
                f"one of {', '.join(map(show, levels))}, or `default: engine`",
            )
        if tunable is not None and tunable.default not in (None, default):
            raise self.file.error(
                node,
                f"the default {show(default)} of {name} is not the engine's, "
                f"which is {show(tunable.default)}",
                "a default is what the engine does when left alone; to start elsewhere add a preset",
            )
        return default

    def fixed(self, node: yaml.Node, parameters: Mapping[str, Parameter]) -> dict[str, Value]:
        """Settings of every launch; what is varied cannot be among them."""
        fixed: dict[str, Value] = {}
        for name, setting in self.file.mapping(node, "fixed").items():
            if name in parameters:
                raise self.file.error(setting.key, f"{name} is both fixed and varied", "keep one of the two")
            if name in _NEVER_FIXED:
                raise self.file.error(setting.key, f"{name} cannot be fixed", _NEVER_FIXED[name])
            fixed[name] = self._fixed_value(name, setting)
        return fixed

    def _fixed_value(self, name: str, setting: Entry) -> Value:
        what = f"{name}: {{}}"
        if not self.vllm:
            return self._value(setting.value, what, None)
        if name in VLLM:
            tunable = self._tunable(name, setting.key)
            value = self._value(setting.value, what, tunable)
            if isinstance(value, str) and value == tunable.default:  # 'none' and 'auto' may be our words only
                raise self.file.error(
                    setting.value, f"{name}: {value} is what the engine does by itself", "leave it out"
                )
            return value
        if name not in VLLM_FIXED_ONLY:
            raise self._unknown_setting(name, setting.key, (*VLLM, *VLLM_FIXED_ONLY))
        value = self._value(setting.value, what, None)
        if name in VLLM_FIXED_SIZES and value != "auto":  # max_model_len: auto
            return self._value(setting.value, what, Tunable(kind=int, low=1, sized=True))
        return value

    def rules(self, node: yaml.Node, parameters: Mapping[str, Parameter]) -> tuple[Rule, ...]:
        """Relations between two parameters of the space whose levels are integers."""
        rules = []
        for item in self.file.items(node, "rules"):
            fields = self.file.mapping(item, "a rule", ("left", "right", "why"))
            text = {field: self.file.text(found.value, field) for field, found in fields.items()}
            for side in ("left", "right"):
                where = fields[side].value
                parameter = parameters.get(text[side])
                if parameter is None:
                    raise self._no_parameter("rule compares", text[side], where, parameters)
                if not all(type(level) is int for level in parameter.levels):
                    raise self.file.error(
                        where,
                        f"the rule compares {text[side]}, whose levels are no integers",
                        "a rule says left ≥ right of two integers",
                    )
            rules.append(Rule(left=text["left"], right=text["right"], why=text["why"]))
        return tuple(rules)

    def presets(self, node: yaml.Node, parameters: Mapping[str, Parameter]) -> tuple[Preset, ...]:
        """Starting points; each sets levels of parameters, or a variant that the run may have."""
        presets: list[Preset] = []
        for item in self.file.items(node, "presets"):
            fields = self.file.mapping(item, "a preset", ("name", "settings", "why"))
            name = self.file.text(fields["name"].value, "name")
            if name in {preset.name for preset in presets}:
                raise self.file.error(fields["name"].value, f"two presets are called {name!r}", "rename one")
            settings = {
                key: self._preset_level(key, setting, parameters)
                for key, setting in self.file.mapping(fields["settings"].value, "settings").items()
            }
            if not settings:
                raise self.file.error(
                    fields["settings"].value, f"the preset {name} sets nothing", "name at least one parameter"
                )
            why = self.file.text(fields["why"].value, "why")
            presets.append(Preset(name=name, settings=settings, why=why))
        return tuple(presets)

    def _preset_level(self, name: str, setting: Entry, parameters: Mapping[str, Parameter]) -> Value:
        parameter = parameters.get(name)
        if parameter is None and name != "variant":  # variants belong to the run, not to the space
            raise self._no_parameter("preset sets", name, setting.key, parameters)
        level = self._value(setting.value, f"{name}: {{}}", VLLM.get(name) if self.vllm else None)
        if parameter is not None and level not in parameter.levels:
            raise self.file.error(
                setting.value,
                f"the preset sets {name} to {show(level)}, which is not among its levels",
                f"one of {', '.join(map(show, parameter.levels))}",
            )
        return level

    def _no_parameter(
        self, who: str, name: str, node: yaml.Node, parameters: Mapping[str, Parameter]
    ) -> InputError:
        near = nearest(name, parameters)
        return self.file.error(
            node,
            f"the {who} {name!r}, which is no parameter of this space",
            f"did you mean {near}?" if near else f"one of {', '.join(parameters)}",
        )

    def _value(self, node: yaml.Node, what: str, tunable: Tunable | None) -> Value:
        """A scalar as the setting takes it; `what` names it in errors, {} standing for the value."""
        value = self.file.scalar(node, " ".join(what.replace("{}", "").split()).rstrip(":"))
        if isinstance(value, str) and tunable is not None and tunable.sized:
            return self._typed(node, self.file.placed(node, lambda: parse_size(value)), what, tunable)
        return self._typed(node, value, what, tunable)

    def _typed(self, node: yaml.Node, value: Value, what: str, tunable: Tunable | None) -> Value:
        if tunable is None:
            return value
        if tunable.kind is float and _is_number(value):
            value = float(value)
        shown = what.format(show(value))
        if type(value) is not tunable.kind:
            hint = f"write {_KIND_WORDS[tunable.kind]}"
            if tunable.kind is str:
                hint += ", in quotes where YAML would read it as something else"
            raise self.file.error(node, f"{shown} is not {_KIND_WORDS[tunable.kind]}", hint)
        if isinstance(value, str):
            if tunable.choices and value not in tunable.choices:
                raise self.file.error(node, f"{shown} is unknown", f"one of {', '.join(tunable.choices)}")
        elif (tunable.low is not None and value < tunable.low) or (
            tunable.high is not None and value > tunable.high
        ):
            least = "" if tunable.low is None else f"at least {tunable.low:g}"
            most = "" if tunable.high is None else f"at most {tunable.high:g}"
            raise self.file.error(
                node, f"{shown} is out of range", f"write {' and '.join(filter(None, (least, most)))}"
            )
        return value


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _kind(value: Value) -> str:
    if isinstance(value, bool):
        return "true and false"
    return "words" if isinstance(value, str) else "numbers"
