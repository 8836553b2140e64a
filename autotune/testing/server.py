"""The routes of vLLM that a tuner needs.

Source: vllm/entrypoints/openai/completion/ and vllm/entrypoints/serve/ of 0.32.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from zlib import crc32

from autotune.testing.batching import Batcher, Sequence
from autotune.testing.model import Shape
from autotune.testing.script import Fault, Kind, Script
from autotune.testing.settings import Settings
from autotune.testing.wire import Call, Connection, error_body

_DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."


@dataclass(slots=True, kw_only=True)
class Server:
    """What all connections share; `stop` is set when the process has to end."""

    settings: Settings
    script: Script
    shape: Shape
    batcher: Batcher
    max_model_len: int
    faults: Mapping[Kind, Fault]
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    dead: bool = False
    accepted: int = 0
    answers: set[_Answer] = field(default_factory=set)

    @property
    def names(self) -> list[str]:
        """The names under which the model is served."""
        return self.settings.options.get("served_model_name", self.settings.options["model"]).split()

    def handle(self, connection: Connection, call: Call) -> None:
        """Answer one request."""
        if " /v1/" in call.route and not self._authorized(call.headers.get("authorization", "")):
            connection.send({"error": "Unauthorized"}, status=401)
            return
        match call.route:
            case "GET /health":
                connection.send("", status=503 if self.dead else 200)
            case "GET /metrics":
                connection.send(self._metrics(), kind="text/plain; version=0.0.4; charset=utf-8")
            case "GET /version":
                connection.send({"version": self.script.version})
            case "GET /v1/models":
                connection.send({"object": "list", "data": [self._card(name) for name in self.names]})
            case "POST /tokenize":
                ids = self._tokens(json.loads(call.body)["prompt"])
                connection.send({"count": len(ids), "max_model_len": self.max_model_len, "tokens": ids})
            case "POST /v1/completions":
                self._complete(connection, json.loads(call.body))
            case _:
                connection.send({"detail": "Not Found"}, status=404)

    def hit_by(self, fault: Kind) -> bool:
        """True when the request just accepted comes after the last one that this fault spares."""
        armed = self.faults.get(fault)
        return armed is not None and self.accepted > armed.after

    def break_off(self) -> None:
        """End every open answer as vLLM does when its engine is gone."""
        self.batcher.frozen = True
        for answer in tuple(self.answers):
            answer.break_off()

    def die(self) -> None:
        """Lose the engine; the server answers 503 for a moment and ends."""
        self.dead = True
        self.break_off()
        asyncio.get_running_loop().call_later(0.1, self.stop.set)

    def _authorized(self, header: str) -> bool:
        keys = self.settings.options.get("api_key", self.settings.env.get("VLLM_API_KEY", "")).split()
        scheme, _, token = header.partition(" ")
        return not keys or (scheme.lower() == "bearer" and token in keys)

    def _tokens(self, text: str) -> list[int]:
        """One token for each word, the same one every time."""
        return [crc32(word.encode()) % self.shape.vocab for word in text.split()]

    def _complete(self, connection: Connection, body: dict[str, Any]) -> None:
        prompt, budget, limit = body.get("prompt", ""), body.get("max_tokens", 16), self.max_model_len
        ids = self._tokens(prompt) if isinstance(prompt, str) else prompt
        if body.get("model") not in (None, *self.names):
            connection.refuse(404, f"The model `{body['model']}` does not exist.")
        elif self.dead:
            connection.refuse(500, _DEAD)
        elif not ids or budget < 1:
            connection.refuse(400, "prompt and max_tokens must not be empty.")
        elif len(ids) + budget > limit:
            connection.refuse(
                400,
                f"This model's maximum context length is {limit} tokens. However, you requested {budget} "
                f"output tokens and your prompt contains {len(ids)} input tokens, for a total of "
                f"{len(ids) + budget} tokens.",
            )
        elif not all(isinstance(token, int) and 0 <= token < self.shape.vocab for token in ids):
            connection.refuse(400, "Token id is out of vocabulary")
        else:
            self.accepted += 1
            _Answer(self, connection, body, ids).begin(budget)

    def _card(self, name: str) -> dict[str, object]:
        root, created = self.settings.options["model"], int(time.time())
        card = {"id": name, "object": "model", "created": created, "owned_by": "vllm", "root": root}
        return card | {"parent": None, "max_model_len": self.max_model_len, "permission": []}

    def _metrics(self) -> str:
        batcher, limits, options = self.batcher, self.batcher.limits, self.settings.options
        block = self.settings.number("block_size")
        info = {
            "block_size": block,
            "cache_dtype": options["kv_cache_dtype"],
            "enable_prefix_caching": options["enable_prefix_caching"].capitalize(),
            "engine": 0,
            "gpu_memory_utilization": options["gpu_memory_utilization"],
            "kv_cache_max_concurrency": limits.kv_tokens / self.max_model_len,
            "kv_cache_size_tokens": limits.kv_tokens,
            "num_gpu_blocks": limits.kv_tokens // block,
        }
        gauges = {
            "num_requests_running": len(batcher.running),
            "num_requests_waiting": len(batcher.waiting),
            "kv_cache_usage_perc": batcher.kv_usage,
        }
        labels = {"engine": 0, "model_name": self.names[0]}
        lines = [_sample("cache_config_info", "gauge", info, 1)]
        lines += [_sample(name, "gauge", labels, value) for name, value in gauges.items()]
        for name, total in asdict(batcher.counters).items():
            reason = {"finished_reason": "length"} if name == "request_success" else {}
            lines.append(_sample(f"{name}_total", "counter", labels | reason, total))
        return "".join(lines)


def _sample(name: str, kind: str, labels: Mapping[str, object], value: float) -> str:
    shown = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"# HELP vllm:{name} {name}.\n# TYPE vllm:{name} {kind}\nvllm:{name}{{{shown}}} {float(value)}\n"


class _Answer:
    """One completion under way, streamed or whole.

    Its tokens are a function of prompt and position, so that two servers answer alike.
    """

    def __init__(
        self, server: Server, connection: Connection, body: Mapping[str, Any], ids: list[int]
    ) -> None:
        self._server, self._connection, self._body = server, connection, body
        self._streamed = bool(body.get("stream"))
        self._seed = crc32(str(ids).encode())
        self._doomed, self._short = server.hit_by("die_mid_stream"), server.hit_by("short_output")
        self._stamp = {
            "id": f"cmpl-{server.accepted}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": server.names[0],
        }
        self._sequence = Sequence(
            prompt=ids,
            on_token=self._on_token,
            salt=str(body.get("cache_salt", "")),
            reads_cache=body.get("prompt_logprobs") is None,
        )

    def begin(self, budget: int) -> None:
        """Hand the request to the engine."""
        server = self._server
        self._sequence.budget = max(1, budget - 2) if self._short else budget
        self._connection.hold(self.abandon)
        if self._streamed:
            self._connection.open_events()
        server.answers.add(self)
        server.batcher.frozen |= server.hit_by("freeze")
        server.batcher.submit(self._sequence)

    def abandon(self) -> None:
        """Nobody waits for the rest."""
        self._server.batcher.abort(self._sequence)
        self._server.answers.discard(self)

    def break_off(self) -> None:
        """The engine is gone: HTTP 500, or under HTTP 200 an error event and [DONE] all the same."""
        self.abandon()
        if self._streamed:
            self._connection.event(error_body(500, _DEAD))
            self._connection.close_events()
        else:
            self._connection.refuse(500, _DEAD)
        self._connection.release()

    def _on_token(self) -> None:
        sequence = self._sequence
        if self._streamed:
            self._connection.event(self._stamp | {"choices": [self._choice(sequence.emitted - 1)]})
        if self._doomed and sequence.emitted == min(2, sequence.budget):
            self._server.die()
        elif sequence.ended:
            self._finish()

    def _finish(self) -> None:
        connection = self._connection
        if not self._streamed:
            choice = self._choice(0) | {"prompt_logprobs": self._prompt_logprobs()}
            connection.send(self._stamp | {"choices": [choice], "usage": self._usage()})
        else:
            if (self._body.get("stream_options") or {}).get("include_usage"):
                connection.event(self._stamp | {"choices": [], "usage": self._usage()})
            connection.close_events()
        self._server.answers.discard(self)
        connection.release()

    def _choice(self, first: int) -> dict[str, object]:
        """The tokens from `first` on, as one choice."""
        sequence, vocab = self._sequence, self._server.shape.vocab
        ids = [(self._seed + position * 7919) % vocab for position in range(first, sequence.emitted)]
        reason = "stop" if self._short else "length"
        choice: dict[str, object] = {
            "index": 0,
            "text": "".join(f" w{token}" for token in ids),
            "logprobs": None,
            "finish_reason": reason if sequence.ended else None,
            "stop_reason": None,
        }
        if self._body.get("return_token_ids"):
            choice["token_ids"] = ids
            choice["prompt_token_ids"] = sequence.prompt if first == 0 else None
        return choice

    def _usage(self) -> dict[str, object]:
        sequence = self._sequence
        usage: dict[str, object] = {
            "prompt_tokens": len(sequence.prompt),
            "total_tokens": sequence.length,
            "completion_tokens": sequence.emitted,
        }
        if self._server.settings.options.get("enable_prompt_tokens_details") == "true":
            usage["prompt_tokens_details"] = {"cached_tokens": sequence.cached}
        return usage

    def _prompt_logprobs(self) -> list[object] | None:
        """One entry for each prompt token, the first null; they differ, and their mean is exact."""
        if self._body.get("prompt_logprobs") is None:
            return None
        server, (_, *scored) = self._server, self._sequence.prompt
        mean = -math.log(server.script.perplexity_of(server.settings))
        shifts = [0.4, -0.4] * (len(scored) // 2) + [0.0] * (len(scored) % 2)
        return [None] + [
            {str(token): {"logprob": mean + shift, "rank": 1, "decoded_token": f" w{token}"}}
            for token, shift in zip(scored, shifts, strict=True)
        ]
