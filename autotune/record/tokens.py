"""The served model's tokenizer and chat template, for exact blocks: `autotune-serving[tokenizer]`."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotune.errors import InputError, SetupError
from autotune.record.narrowed import as_map, as_maps, as_text


class Tokenizer:
    """Prompts as the server tokenises them.

    `path` is a model folder or its tokenizer.json. Raises `SetupError` without the package, `InputError` for
    what is no tokenizer.
    """

    def __init__(self, path: Path) -> None:
        try:
            package = importlib.import_module("tokenizers")
        except ImportError as error:
            raise SetupError(
                "--tokenizer needs the package tokenizers", hint="pip install 'autotune-serving[tokenizer]'"
            ) from error
        file = path / "tokenizer.json" if path.is_dir() else path
        if not file.is_file():
            raise InputError(f"no tokenizer at {file}", hint="name a model folder with tokenizer.json")
        try:
            text = file.read_text(encoding="utf-8")
            known = as_map(json.loads(text))
        except (OSError, ValueError) as error:
            raise InputError(f"{file} is no tokenizer: {error}", hint="name a model folder") from error
        if not as_map(known.get("model")):
            raise InputError(f"{file} is no tokenizer: it has no model", hint="name a model folder")
        self._encoder = package.Tokenizer.from_str(text)
        self._template, self._special = _template(path) if path.is_dir() else (None, {})

    def text(self, prompt: str) -> list[int]:
        """Token ids of a completion's prompt, special tokens added."""
        return list(self._encoder.encode(prompt).ids)

    def count(self, answer: str) -> int:
        """Tokens of an answer."""
        return len(self._encoder.encode(answer, add_special_tokens=False).ids)

    def chat(self, fields: Mapping[str, Any]) -> list[int] | None:
        """Token ids of a chat; None without a template, or where it refuses the messages."""
        if self._template is None:
            return None
        text = _rendered(self._template, self._special, fields)
        return None if text is None else list(self._encoder.encode(text, add_special_tokens=False).ids)


def _template(folder: Path) -> tuple[str | None, dict[str, str]]:
    """The chat template of a model folder, and the special tokens that it may name."""
    try:
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        config = {}
    special = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = config.get(name)
        special[name] = as_text(as_map(value).get("content")) if isinstance(value, dict) else as_text(value)
    alone = folder / "chat_template.jinja"
    if alone.is_file():
        return alone.read_text(encoding="utf-8"), special
    given = config.get("chat_template")
    named = {as_text(one.get("name")): as_text(one.get("template")) for one in as_maps(given)}
    return as_text(given) or named.get("default") or None, special


def _rendered(template: str, special: Mapping[str, str], fields: Mapping[str, Any]) -> str | None:
    """The text of the prompt.

    Source: `render_jinja_template` in transformers/utils/chat_template_utils.py.
    """
    from jinja2 import TemplateError  # noqa: PLC0415  half a tenth of a second for those who need it
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def as_json(value: Any, indent: int | None = None, **_: Any) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    place = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    place.filters["tojson"] = as_json
    place.globals["raise_exception"] = refuse
    place.globals["strftime_now"] = lambda form: datetime.now(UTC).strftime(form)
    try:
        return place.from_string(template).render(
            messages=[_message(one) for one in as_maps(fields.get("messages"))],
            tools=fields.get("tools") or None,
            documents=None,
            add_generation_prompt=fields.get("add_generation_prompt", True),
            **as_map(fields.get("chat_template_kwargs")),
            **special,
        )
    except (TemplateError, TypeError, ValueError, KeyError, AttributeError):
        return None


def _message(fields: dict[str, Any]) -> dict[str, Any]:
    """A message as vLLM hands it to a template: text in one piece, arguments of calls as objects."""
    message = dict(fields)
    parts = message.get("content")
    if isinstance(parts, list):
        message["content"] = "\n".join(as_text(one.get("text")) for one in as_maps(parts))
    calls = []
    for one in as_maps(message.get("tool_calls")):
        function = dict(as_map(one.get("function")))
        try:
            function["arguments"] = json.loads(as_text(function.get("arguments")) or "{}")
        except ValueError:
            function["arguments"] = {}
        calls.append(one | {"function": function})
    if calls:
        message["tool_calls"] = calls
    return message
