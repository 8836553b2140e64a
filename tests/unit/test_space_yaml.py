"""Search spaces read from YAML, and every way in which a file can be wrong."""

from pathlib import Path

import pytest

from autotune.domain.space import Preset, Rule, SearchSpace
from autotune.errors import InputError
from autotune.formats.space_yaml import load_space
from autotune.space.known import VLLM, VLLM_FIXED_ONLY, VLLM_REFUSED

SPACES = Path(__file__).parents[2] / "search_spaces"
HEAD = """\
name: mine
engine: vllm
device: cuda
versions: ">=0.26,<0.34"
parameters:
"""  # the parameters begin in line 6
SEQS = "  max_num_seqs: {levels: [64, 128], default: 64}\n"
GOOD = HEAD + SEQS  # what follows begins in line 7


def load(folder: Path, text: str) -> SearchSpace:
    file = folder / "space.yaml"
    file.write_text(text, encoding="utf-8")
    return load_space(file)


# -- what is read ---------------------------------------------------------------------------------


def test_the_shipped_cpu_space_says_what_the_engine_does_by_itself() -> None:
    space = load_space(SPACES / "vllm-cpu.yaml")
    assert (space.name, space.engine, space.device) == ("vllm-cpu", "vllm", "cpu")
    assert space.default_point() == {
        "max_num_batched_tokens": 2048,
        "max_num_seqs": 128,
        "long_prefill_token_threshold": 0,
        "kv_cache_dtype": "auto",
        "enable_prefix_caching": True,
        "threads": "auto",
        "dtype": "auto",
        "enforce_eager": False,
    }
    assert space.fixed == {"kv_cache_memory_bytes": 629_145_600}  # 600 · 2^20
    assert [parameter.name for parameter in space.parameters if not parameter.ordered] == [
        "kv_cache_dtype",
        "enable_prefix_caching",
        "threads",
        "dtype",
        "enforce_eager",
    ]


def test_the_shipped_gpu_space_leaves_three_defaults_to_the_engine() -> None:
    space = load_space(SPACES / "vllm.yaml")
    assert [name for name, default in space.default_point().items() if default == "engine"] == [
        "gpu_memory_utilization",
        "max_num_seqs",
        "max_num_batched_tokens",
    ]


@pytest.mark.parametrize("name", ["vllm.yaml", "vllm-cpu.yaml"])
def test_everything_in_a_shipped_space_has_its_reason(name: str) -> None:
    space = load_space(SPACES / name)
    reasons = [parameter.why for parameter in space.parameters]
    reasons += [rule.why for rule in space.rules] + [preset.why for preset in space.presets]
    assert all(reason and "\n" not in reason for reason in reasons)


def test_a_whole_space_is_read(tmp_path: Path) -> None:
    space = load_space(_written(tmp_path))
    assert [(parameter.name, parameter.levels) for parameter in space.parameters] == [
        ("max_num_batched_tokens", (8192, 16384)),
        ("max_num_seqs", (64, 128, 256)),
        ("gpu_memory_utilization", (0.8, 0.85, 0.9, 0.95, 1.0)),
        ("enforce_eager", (False, True)),
    ]
    assert [parameter.ordered for parameter in space.parameters] == [True, True, True, False]
    assert space.rules == (Rule(left="max_num_batched_tokens", right="max_num_seqs", why="one each"),)
    assert space.presets == (
        Preset(name="small", settings={"max_num_seqs": 64, "variant": "w8a8"}, why="why not"),
    )
    assert space.fixed == {"max_model_len": 8000, "seed": 1, "watermark": 0.0, "tokenizer": "a"}


def _written(folder: Path) -> Path:
    file = folder / "space.yaml"
    file.write_text(
        HEAD
        + """\
  max_num_batched_tokens: {levels: [16K, 8K], default: engine, why: "steps"}
  max_num_seqs:
    range: {low: 64, high: 300, factor: 2}
    default: 256
  gpu_memory_utilization: {range: {low: 0.8, high: 1, step: 0.05}, default: engine}
  enforce_eager: {levels: [no, yes], default: no}
rules:
  - {left: max_num_batched_tokens, right: max_num_seqs, why: one each}
presets:
  - {name: small, settings: {max_num_seqs: 64, variant: w8a8}, why: why not}
fixed: {max_model_len: 8k, seed: 1, watermark: 0, tokenizer: a}
""",
        encoding="utf-8",
    )
    return file


def test_another_engine_brings_its_own_settings(tmp_path: Path) -> None:
    text = GOOD.replace("engine: vllm", "engine: other").replace("max_num_seqs", "slots")
    (tmp_path / "space.yaml").write_text(text + "fixed: {anything: goes}\n", encoding="utf-8")
    space = load_space(tmp_path / "space.yaml")
    assert space.parameters[0].levels == (64, 128)
    assert space.fixed == {"anything": "goes"}


def test_a_setting_is_known_once() -> None:
    assert not set(VLLM) & set(VLLM_FIXED_ONLY)
    assert not (set(VLLM) | set(VLLM_FIXED_ONLY)) & set(VLLM_REFUSED)


# -- what is refused ------------------------------------------------------------------------------

WRONG = {
    # the file
    "empty": ("", 1, "is empty", "shipped"),
    "only a comment": ("# nothing\n", 1, "is empty", "shipped"),
    "no mapping": ("- a\n", 1, "a search space is not a mapping", "name: value"),
    "syntax": ("name: mine\nengine: [vllm\n", 3, "is not YAML", "bracket"),
    "two documents": (GOOD + "---\nname: b\n", 7, "is not YAML", "look for"),
    "tab": ("name: mine\n\tengine: vllm\n", 2, "is not YAML", "look for"),
    "control character": ("name: \x01\n", 1, "is not YAML", "plain text"),
    "too deep": ("[" * 5000, 1, "nested too deeply", "four levels"),
    "python object": ("name: !!python/object:os.system x\n" + GOOD[11:], 1, "cannot be read", "quotes"),
    # the top
    "unknown key": (GOOD + "preset: []\n", 7, "unknown key 'preset'", "did you mean presets?"),
    "stranger key": (GOOD + "zzz: 1\n", 7, "unknown key 'zzz'", "one of name, engine"),
    "missing key": ("name: mine\n", 1, "lacks engine, device, versions, parameters", "add `engine"),
    "key twice": (GOOD + "name: other\n", 7, "'name' is there twice, first in line 1", "keep one"),
    "key no text": (GOOD + "1: 2\n", 7, "the key 1 is not a name", "quotes"),
    "merge key": (GOOD + "<<: {a: b}\n", 7, "cannot be read", "quotes"),
    "device": (GOOD.replace("cuda", "gpu"), 3, "unknown device 'gpu'", "cpu or cuda"),
    "name a number": (GOOD.replace("mine", "12"), 1, "name is 12, not text", "quotes"),
    "name empty": (GOOD.replace("mine", ""), 1, "name is 'empty', not a value", "write a"),
    "name a list": (GOOD.replace("mine", "[a]"), 1, "name is not a single value", "write a"),
    "versions a number": (GOOD.replace('">=0.26,<0.34"', "0.32"), 4, "not text", "quotes"),
    "versions": (GOOD.replace('">=0.26,<0.34"', "~0.26"), 4, "not a range of versions", ">=0.26,<0.34"),
    # names
    "unknown setting": (
        HEAD + "  max_num_sequences: {levels: [1], default: 1}\n",
        6,
        "unknown setting 'max_num_sequences'",
        "did you mean max_num_seqs?",
    ),
    "dashes": (HEAD + "  max-num-seqs: {levels: [1], default: 1}\n", 6, "unknown setting", "max_num_seqs?"),
    "nothing alike": (HEAD + "  xyzzy: {levels: [1], default: 1}\n", 6, "unknown setting", "underscores"),
    "old name": (HEAD + "  swap_space: {levels: [4], default: 4}\n", 6, "cannot be used", "never swaps"),
    "other engine's name": (
        HEAD + "  max_num_tokens: {levels: [4], default: 4}\n",
        6,
        "max_num_tokens cannot be used",
        "write max_num_batched_tokens",
    ),
    "fixed only": (
        HEAD + "  kv_cache_memory_bytes: {levels: [1G], default: 1G}\n",
        6,
        "kv_cache_memory_bytes is no parameter: more is never worse",
        "under `fixed`",
    ),
    "other device": (
        HEAD + "  threads: {levels: [auto, all], default: auto}\n",
        6,
        "threads is a setting of cpu, the space is for cuda",
        "leave it out",
    ),
    "other instructions": (
        HEAD + "  dtype: {levels: [auto, float32], default: auto, cpu_lacks: avx1024}\n",
        6,
        "unknown instruction set 'avx1024'",
        "one of avx2, avx512f, avx512_bf16, amx_tile",
    ),
    "no parameters": (HEAD.strip() + " {}\n", 5, "a space without parameters", "at least one"),
    "parameters a list": (HEAD.strip() + " []\n", 5, "parameters is not a mapping", "name: value"),
    "parameter a list": (HEAD + "  max_num_seqs: [1, 2]\n", 6, "max_num_seqs is not a mapping", "name"),
    "parameter twice": (GOOD + SEQS, 7, "'max_num_seqs' is there twice, first in line 6", "keep one"),
    # levels
    "no levels": (HEAD + "  max_num_seqs: {default: 1}\n", 6, "needs either `levels` or `range`", "for"),
    "both": (
        HEAD + "  max_num_seqs: {levels: [1], range: {low: 1, high: 2, step: 1}, default: 1}\n",
        6,
        "needs either",
        "for example",
    ),
    "levels empty": (HEAD + "  max_num_seqs: {levels: [], default: 1}\n", 6, "has no levels", "at least"),
    "levels no list": (HEAD + "  max_num_seqs: {levels: 4, default: 4}\n", 6, "levels is not a list", "[a"),
    "level twice": (
        HEAD + "  max_num_seqs: {levels: [4, 8, 4], default: 4}\n",
        6,
        "has the level 4 twice",
        "keep one",
    ),
    "level of another kind": (
        HEAD + "  max_num_seqs:\n    levels:\n      - 4\n      - many\n    default: 4\n",
        9,
        "level many of max_num_seqs is not an integer",
        "write an integer",
    ),
    "level a float": (HEAD + "  max_num_seqs: {levels: [4.5], default: 4}\n", 6, "is not an integer", "w"),
    "level a bool": (HEAD + "  max_num_seqs: {levels: [yes], default: 4}\n", 6, "level true of", "integer"),
    "word read as bool": (
        HEAD + "  quantization: {levels: [off, fp8], default: none}\n",
        6,
        "level false of quantization is not a word",
        "in quotes",
    ),
    "bool as word": (
        HEAD + "  enforce_eager: {levels: ['true'], default: true}\n",
        6,
        "level true of enforce_eager is not true or false",
        "write true or false",
    ),
    "level too small": (
        HEAD + "  max_num_seqs: {levels: [0], default: 0}\n",
        6,
        "level 0 of max_num_seqs is out of range",
        "at least 1",
    ),
    "level too large": (
        HEAD + "  gpu_memory_utilization: {levels: [92], default: engine}\n",
        6,
        "level 92.0 of gpu_memory_utilization is out of range",
        "at least 0.01 and at most 1",
    ),
    "level null": (HEAD + "  max_num_seqs: {levels: [~], default: 4}\n", 6, "not a value", "write a"),
    "level nan": (HEAD + "  watermark: {levels: [.nan], default: 0}\n", 6, "which no setting takes", "below"),
    "level a date": (HEAD + "  max_num_seqs: {levels: [2024-01-01], default: 4}\n", 6, "not a value", "wr"),
    "size": (
        HEAD + "  max_num_batched_tokens: {levels: [8X], default: 8}\n",
        6,
        "'8X' is not a size",
        "suffix",
    ),
    # ranges
    "range empty": (
        HEAD + "  max_num_seqs: {range: {low: 8, high: 4, step: 1}, default: 4}\n",
        6,
        "the range of max_num_seqs is empty: 8 > 4",
        "swap",
    ),
    "step 0": (
        HEAD + "  max_num_seqs:\n    range:\n      low: 4\n      high: 8\n      step: 0\n    default: 4\n",
        10,
        "step 0 of max_num_seqs",
        "above 0",
    ),
    "factor 1": (
        HEAD + "  max_num_seqs: {range: {low: 4, high: 8, factor: 1}, default: 4}\n",
        6,
        "never ends",
        "factor above 1",
    ),
    "factor from 0": (
        HEAD + "  long_prefill_token_threshold: {range: {low: 0, high: 8, factor: 2}, default: 0}\n",
        6,
        "never ends",
        "low above 0",
    ),
    "neither step nor factor": (
        HEAD + "  max_num_seqs: {range: {low: 4, high: 8}, default: 4}\n",
        6,
        "needs either `step` or `factor`",
        "multiplies",
    ),
    "range too fine": (
        HEAD + "  max_num_seqs: {range: {low: 1, high: 999, step: 1}, default: 4}\n",
        6,
        "more than 64 levels",
        "use `factor`",
    ),
    "range of words": (
        HEAD + "  max_num_seqs: {range: {low: few, high: 8, step: 1}, default: 4}\n",
        6,
        "low of max_num_seqs is few, not a number",
        "without a unit",
    ),
    "range of fractions": (
        HEAD + "  max_num_seqs: {range: {low: 4, high: 8, factor: 1.5}, default: 4}\n",
        6,
        "level 6.0 of max_num_seqs is not an integer",
        "integer",
    ),
    # defaults
    "no default": (HEAD + "  max_num_seqs: {levels: [1]}\n", 6, "max_num_seqs lacks default", "add"),
    "default not a level": (
        HEAD + "  max_num_seqs:\n    levels: [64, 128]\n    default: 96\n",
        8,
        "the default 96 of max_num_seqs is not among its levels",
        "one of 64, 128, or `default: engine`",
    ),
    "default not the engine's": (
        HEAD + "  enforce_eager: {levels: [true, false], default: true}\n",
        6,
        "the default true of enforce_eager is not the engine's, which is false",
        "preset",
    ),
    "default unknown": (
        HEAD + "  block_size: {levels: [16, 32], default: engine}\n",
        6,
        "default of block_size is not known",
        "write the value",
    ),
    "unknown field": (
        HEAD + "  max_num_seqs: {level: [1], default: 1}\n",
        6,
        "unknown key 'level' in max_num_seqs",
        "did you mean levels?",
    ),
    # fixed
    "fixed unknown": (GOOD + "fixed: {max_model_length: 1}\n", 7, "unknown setting", "max_model_len?"),
    "fixed and varied": (GOOD + "fixed: {max_num_seqs: 1}\n", 7, "both fixed and varied", "keep one"),
    "fixed ours": (GOOD + "fixed:\n  port: 1\n", 8, "port cannot be used", "leave it out"),
    "fixed variant": (GOOD + "fixed: {variant: w8a8}\n", 7, "variant cannot be fixed", "as its model"),
    "fixed default": (GOOD + "fixed: {quantization: none}\n", 7, "does by itself", "leave it out"),
    "fixed threads": (GOOD + "fixed: {threads: all}\n", 7, "threads cannot be fixed", "by a preset"),
    "fixed size": (GOOD + "fixed: {kv_cache_memory_bytes: lots}\n", 7, "'lots' is not a size", "600M"),
    "fixed size 0": (GOOD + "fixed: {kv_cache_memory_bytes: 0}\n", 7, "out of range", "at least 1"),
    "fixed wrong kind": (GOOD + "fixed: {dtype: 16}\n", 7, "dtype: 16 is not a word", "write a word"),
    "fixed list": (GOOD + "fixed: {seed: [1]}\n", 7, "seed is not a single value", "write a number"),
    # rules
    "rule unknown": (
        GOOD + "rules:\n  - {left: max_num_seq, right: max_num_seqs, why: w}\n",
        8,
        "the rule compares 'max_num_seq', which is no parameter",
        "did you mean max_num_seqs?",
    ),
    "rule stranger": (
        GOOD + "rules:\n  - {left: zzz, right: max_num_seqs, why: w}\n",
        8,
        "the rule compares 'zzz'",
        "one of max_num_seqs",
    ),
    "rule of words": (
        HEAD
        + "  kv_cache_dtype: {levels: [auto, fp8], default: auto}\n"
        + SEQS
        + "rules:\n  - {left: kv_cache_dtype, right: max_num_seqs, why: w}\n",
        9,
        "whose levels are no integers",
        "two integers",
    ),
    "rule incomplete": (GOOD + "rules:\n  - {left: max_num_seqs}\n", 8, "a rule lacks right, why", "add"),
    "rules no list": (GOOD + "rules: {left: a}\n", 7, "rules is not a list", "- item"),
    # presets
    "preset unknown": (
        GOOD + "presets:\n  - {name: p, settings: {max_num_seq: 64}, why: w}\n",
        8,
        "the preset sets 'max_num_seq', which is no parameter",
        "did you mean max_num_seqs?",
    ),
    "preset level": (
        GOOD + "presets:\n  - name: p\n    settings:\n      max_num_seqs: 65\n    why: w\n",
        10,
        "the preset sets max_num_seqs to 65, which is not among its levels",
        "one of 64, 128",
    ),
    "preset empty": (GOOD + "presets:\n  - {name: p, settings: {}, why: w}\n", 8, "sets nothing", "name"),
    "preset twice": (
        GOOD + "presets:\n" + "  - {name: p, settings: {max_num_seqs: 128}, why: w}\n" * 2,
        9,
        "two presets are called 'p'",
        "rename",
    ),
}


@pytest.mark.parametrize(("text", "line", "message", "hint"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_is_refused_with_its_line_and_a_hint(
    tmp_path: Path, text: str, line: int, message: str, hint: str
) -> None:
    with pytest.raises(InputError) as raised:
        load(tmp_path, text)
    assert raised.value.message.startswith(f"{tmp_path / 'space.yaml'}:{line}: ")
    assert message in raised.value.message
    assert "\n" not in raised.value.message
    assert hint in str(raised.value.hint)


def test_levels_of_another_engine_must_be_of_one_kind(tmp_path: Path) -> None:
    text = HEAD.replace("engine: vllm", "engine: other") + "  slots: {levels: [1, some], default: 1}\n"
    with pytest.raises(InputError, match=r":6: the levels of slots mix numbers and words"):
        load(tmp_path, text)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.yaml: cannot be read: No such file") as raised:
        load_space(tmp_path / "none.yaml")
    assert raised.value.hint


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        load_space(tmp_path)


def test_other_encodings_are_refused(tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_bytes("name: größe\n".encode("latin-1"))
    with pytest.raises(InputError, match="is not UTF-8 text"):
        load_space(tmp_path / "space.yaml")


def test_a_number_beyond_all_sizes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r":6: level of max_num_seqs is 9{24}, which no setting takes"):
        load(tmp_path, HEAD + f"  max_num_seqs: {{levels: [{'9' * 400}], default: 1}}\n")
