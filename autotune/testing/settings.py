"""The command line of `vllm serve`, read as vLLM reads it.

Source: vllm/utils/argparse_utils.py and vllm/engine/arg_utils.py of 0.32.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from autotune.errors import InputError
from autotune.units import parse_size


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SWITCHES = _names("""
    async-scheduling disable-custom-all-reduce disable-hybrid-kv-cache-manager
    disable-log-stats disable-uvicorn-access-log enable-chunked-prefill enable-dbo enable-eplb
    enable-expert-parallel enable-force-include-usage enable-log-requests enable-per-request-metrics
    enable-prefix-caching enable-prompt-tokens-details enable-sleep-mode enforce-eager
    language-model-only long-prefill-token-threshold-adaptive numa-bind scheduler-reserve-full-isl
    skip-tokenizer-init trust-remote-code
""")
_INTEGERS = _names("""
    api-server-count block-size data-parallel-size decode-context-parallel-size
    long-prefill-token-threshold max-cudagraph-capture-size max-logprobs max-num-active-seqs
    max-num-queued-reqs max-num-queued-tokens max-num-seqs num-gpu-blocks-override optimization-level
    pipeline-parallel-size port prefill-schedule-interval renderer-num-workers seed shutdown-timeout
    stream-interval tensor-parallel-size
""")
_SIZES = _names("kv-cache-memory-bytes max-model-len max-num-batched-tokens max-num-scheduled-tokens")
_LISTS = _names("allowed-origins api-key cudagraph-capture-sizes middleware served-model-name")
_TEXTS = _names("""
    all2all-backend attention-backend compilation-config cpu-offload-gb device-ids
    device-memory-utilization disable-access-log-for-endpoints distributed-executor-backend dtype
    generation-config gpu-memory-utilization hf-overrides host kv-cache-dtype kv-offloading-backend
    kv-offloading-size linear-backend load-format model moe-backend override-generation-config
    performance-mode prefix-caching-hash-algo quantization revision runner scheduling-policy
    speculative-config tokenizer tokenizer-mode uvicorn-log-level watermark
""")
_KNOWN = _SWITCHES | _INTEGERS | _SIZES | _LISTS | _TEXTS
_DTYPES = ("auto", "bfloat16", "float", "float16", "float32", "half")
# What an unset option becomes on a CPU; conditions of a script see these too.
_DEFAULTS = {
    "model": "Qwen/Qwen3-0.6B",
    "host": "127.0.0.1",
    "port": "8000",
    "max_num_seqs": "128",
    "max_num_batched_tokens": "2048",
    "long_prefill_token_threshold": "0",
    "block_size": "128",
    "kv_cache_dtype": "auto",
    "dtype": "auto",
    "tensor_parallel_size": "1",
    "gpu_memory_utilization": "0.92",
    "scheduling_policy": "fcfs",
    "enable_prefix_caching": "true",
    "enable_chunked_prefill": "true",
    "enforce_eager": "false",
    "async_scheduling": "false",
}
_CONDITION = re.compile(r"(env:)?([\w-]+)\s*(>=|<=|=)\s*(.*)")


class UsageError(Exception):
    """What argparse refuses, with the words it finds; exit 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Options by long name with underscores, defaults included; switches are 'true' or 'false'.

    `given` are those that the user wrote, `env` is the environment.
    """

    options: Mapping[str, str]
    given: Mapping[str, str]
    env: Mapping[str, str]

    def holds(self, condition: str) -> bool:
        """True when every part of `max_num_batched_tokens>=4096 & model=*w8a8 & env:NAME=value` is met.

        `=` matches a shell pattern. What is not set meets no part; the empty condition always holds.
        """
        return all(self._meets(part.strip()) for part in condition.split("&") if part.strip())

    def _meets(self, part: str) -> bool:
        match = _CONDITION.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is no condition; write name=value or env:NAME=value")
        env, name, relation, wanted = match.groups()
        value = self.env.get(name) if env else self.options.get(name.replace("-", "_"))
        if value is None:
            return False
        if relation == "=":
            return fnmatchcase(value, wanted)
        return float(value) >= float(wanted) if relation == ">=" else float(value) <= float(wanted)

    def number(self, name: str) -> int:
        """The integer value of an option that has a default."""
        return int(self.options[name])


def parse(arguments: Sequence[str], env: Mapping[str, str]) -> Settings:
    """The settings of `vllm serve …`; raises `UsageError` where argparse would exit 2.

    `--config=FILE` in one word is accepted and ignored, as by vLLM 0.26 and 0.32.
    """
    tokens = deque(_words(arguments))
    given: dict[str, str] = {}
    stray: list[str] = []
    while tokens:
        token = tokens.popleft()
        name, value = _split(token)
        positive = name.removeprefix("no-")
        if positive in _SWITCHES:
            given[positive] = "true" if name == positive else "false"
        elif name in _KNOWN:
            words = [value] if value is not None else list(_take(tokens, many=name in _LISTS))
            given[name] = _checked(name, words)
        elif not token.startswith("--config="):
            stray.append(token)
    if stray and not stray[0].startswith("-"):
        given["model"] = stray.pop(0)
    if stray:
        raise UsageError(f"vllm: error: unrecognized arguments: {' '.join(stray)}")
    options = {name.replace("-", "_"): value for name, value in given.items()}
    return Settings(options=_DEFAULTS | options, given=options, env=env)


def _words(arguments: Sequence[str]) -> list[str]:
    """The words after `serve`, those of a configuration file before the others, so that these win."""
    command, *words = arguments or ["nothing"]
    if command != "serve":
        raise UsageError(
            f"vllm: error: argument subparser: invalid choice: {command!r} (choose from 'serve')"
        )
    if "--config" not in words:
        return words
    at = words.index("--config")
    if at + 1 == len(words):
        raise UsageError("vllm serve: error: argument --config: expected one argument")
    path, first = Path(words[at + 1]), 0 if words[0].startswith("-") else 1
    del words[at : at + 2]
    return [*words[:first], *_file_words(path), *words[first:]]


def _split(token: str) -> tuple[str, str | None]:
    """Name of an option with dashes, and the value where it stands in the same word."""
    if match := re.fullmatch(r"-O=?(\d)", token):
        return "optimization-level", match.group(1)
    if not token.startswith("--"):
        return "", None
    word, equals, value = token.partition("=")
    return word.removeprefix("--").partition(".")[0].replace("_", "-"), value if equals else None


def _take(tokens: deque[str], *, many: bool) -> Iterator[str]:
    """The values that follow an option: `-1` is one, `--anything` is not."""
    while tokens and not tokens[0].startswith("--"):
        yield tokens.popleft()
        if not many:
            return


def _checked(name: str, words: Sequence[str]) -> str:
    refusal = f"vllm serve: error: argument --{name}:"
    if not words:
        raise UsageError(f"{refusal} expected one argument")
    text = " ".join(words)
    if name == "dtype" and text not in _DTYPES:
        shown = ", ".join(map(repr, _DTYPES))
        raise UsageError(f"{refusal} invalid choice: {text!r} (choose from {shown})")
    if name in _INTEGERS and not re.fullmatch(r"-?\d+", text):
        raise UsageError(f"{refusal} invalid int value: {text!r}")
    if name in _SIZES and text not in ("auto", "-1"):
        try:
            return str(parse_size(text))
        except InputError as error:
            raise UsageError(f"{refusal} invalid human_readable_int value: {text!r}") from error
    return text


def _file_words(path: Path) -> Iterator[str]:
    """A YAML file as the options it stands for; a false underscore key is dropped, as by 0.32."""
    import yaml  # noqa: PLC0415  a start without --config need not pay for it

    for key, value in yaml.safe_load(path.read_text()).items():
        match value:
            case True:
                yield f"--{key}"
            case False:
                yield from () if "_" in key else (f"--no-{key}",)
            case list():
                yield from (f"--{key}", *map(str, value)) if value else ()
            case dict():
                yield from (f"--{key}", json.dumps(value))
            case _:
                yield from (f"--{key}", str(value))
