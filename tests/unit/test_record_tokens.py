"""Chat templates and tokenizers: what the served model makes of a request."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import InputError, SetupError
from autotune.record.tokens import Tokenizer, _rendered, _template

TEMPLATE = (
    "{{ bos_token }}{% if tools %}{{ tools | tojson }}{{ '\\n' }}{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.tool_calls %}"
    "{{ m.tool_calls[0].function.arguments.city }}{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def chat(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"messages": list(messages), **fields}


def test_a_chat_is_rendered_as_the_server_does() -> None:
    asked = chat(
        {"role": "user", "content": "a <b>"}, {"role": "user", "content": [{"type": "text", "text": "c"}]}
    )
    assert _rendered(TEMPLATE, {"bos_token": "<s>"}, asked) == "<s><user>a <b>\n<user>c\n<assistant>"


def test_tools_and_calls_reach_the_template_as_objects() -> None:
    call = {"id": "1", "function": {"name": "look", "arguments": '{"city": "Ulm"}'}}
    asked = chat({"role": "assistant", "content": "", "tool_calls": [call]}, tools=[{"ü": 1}])
    assert _rendered(TEMPLATE, {}, asked) == '[{"ü": 1}]\n<assistant>Ulm\n<assistant>'


def test_the_server_s_switches_are_followed() -> None:
    said = {"role": "user", "content": "a"}
    assert _rendered(TEMPLATE, {}, chat(said, add_generation_prompt=False)) == "<user>a\n"
    assert _rendered("{{ mood }}", {}, chat(said, chat_template_kwargs={"mood": "calm"})) == "calm"


@pytest.mark.parametrize(
    "template",
    ["{{ raise_exception('no') }}", "{{ messages[0].content.nothing() }}", "{% broken", "{{ 1 + 'a' }}"],
)
def test_a_template_that_refuses_gives_nothing(template: str) -> None:
    assert _rendered(template, {}, chat({"role": "user", "content": "a"})) is None


def test_a_template_cannot_reach_out() -> None:
    reaching = "{{ messages.__class__.__mro__[1].__subclasses__() }}"
    assert _rendered(reaching, {}, chat({"role": "user", "content": "a"})) is None


@pytest.mark.parametrize(
    ("config", "template"),
    [
        ({"chat_template": "one"}, "one"),
        (
            {"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]},
            "d",
        ),
        ({}, None),
    ],
)
def test_where_a_template_stands(tmp_path: Path, config: dict[str, Any], template: str | None) -> None:
    special = {"bos_token": {"content": "<s>"}, "eos_token": "</s>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | special))
    found, tokens = _template(tmp_path)
    assert found == template
    assert (tokens["bos_token"], tokens["eos_token"], tokens["unk_token"]) == ("<s>", "</s>", "")
    (tmp_path / "chat_template.jinja").write_text("alone")
    assert _template(tmp_path)[0] == "alone"


def test_without_the_package_the_way_to_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_name: str) -> None:
        raise ImportError

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(SetupError, match="needs the package tokenizers") as caught:
        Tokenizer(tmp_path)
    assert caught.value.hint == "pip install 'autotune-serving[tokenizer]'"


def test_what_is_no_tokenizer_is_said(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    with pytest.raises(InputError, match="no tokenizer at"):
        Tokenizer(tmp_path)
    for text in ("", "[]", '{"model": {}}'):
        (tmp_path / "tokenizer.json").write_text(text)
        with pytest.raises(InputError, match="is no tokenizer"):
            Tokenizer(tmp_path)


def test_tokens_are_those_of_the_vocabulary(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = {"<s>": 0, "<user>": 1, "<assistant>": 2, "hello": 3, "there": 4, "[UNK]": 5}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.save(str(tmp_path / "tokenizer.json"))
    config = {
        "chat_template": "{{ bos_token }} <user> {{ messages[0].content }} <assistant>",
        "bos_token": "<s>",
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer(tmp_path)
    assert tokenizer.chat(chat({"role": "user", "content": "hello there"})) == [0, 1, 3, 4, 2]
    assert tokenizer.text("hello you") == [3, 5]
    assert tokenizer.count("there there") == 2
    assert Tokenizer(tmp_path / "tokenizer.json").chat(chat({"role": "user", "content": "hello"})) is None
