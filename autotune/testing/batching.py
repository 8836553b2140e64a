"""Continuous batching in real time: who computes how many tokens in which step.

Source: `schedule` in vllm/v1/core/sched/scheduler.py: running before waiting, first come first
served, one token budget for prefill and decode, preemption of the youngest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

_LAG_S = 0.005  # how much a late step may catch up; more would let a stall pass as a burst


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What bounds a batch; a threshold of 0 is none, a block size of 0 turns prefix caching off."""

    max_num_seqs: int
    max_num_batched_tokens: int
    long_prefill_token_threshold: int
    kv_tokens: int
    cache_block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """What a step costs."""

    step_s: float
    prefill_s_per_token: float
    decode_s_per_seq: float

    def of(self, shares: list[int]) -> float:
        """Seconds for a step with these token counts, one for each sequence; 1 is a decode."""
        prefill = sum(share for share in shares if share > 1)
        decoding = sum(share == 1 for share in shares)
        return self.step_s + prefill * self.prefill_s_per_token + decoding * self.decode_s_per_seq


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """A request inside the engine. `on_token` is called after each of its `budget` tokens."""

    prompt: list[int]
    on_token: Callable[[], None]
    salt: str = ""
    reads_cache: bool = True
    budget: int = 1
    computed: int = 0
    cached: int = 0
    emitted: int = 0
    ended: bool = False

    @property
    def length(self) -> int:
        """Tokens that must be in the KV cache before the next one comes out."""
        return len(self.prompt) + self.emitted


@dataclass(slots=True, kw_only=True)
class Counters:
    """Totals since the start, named as in /metrics."""

    num_preemptions: int = 0
    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    request_success: int = 0


@dataclass(slots=True, kw_only=True)
class Batcher:
    """The queue and the batch; `run` steps for ever, and stands still while `frozen`."""

    limits: Limits
    step_time: StepTime
    counters: Counters = field(default_factory=Counters)
    waiting: deque[Sequence] = field(default_factory=deque)
    running: list[Sequence] = field(default_factory=list)
    frozen: bool = False
    _cache: dict[int, None] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def kv_usage(self) -> float:
        """Share of the KV cache in use, 0 to 1."""
        return sum(sequence.computed for sequence in self.running) / self.limits.kv_tokens

    def submit(self, sequence: Sequence) -> None:
        """Queue a sequence that fits into the KV cache."""
        self.waiting.append(sequence)
        self._wake.set()

    def abort(self, sequence: Sequence) -> None:
        """Forget a sequence whose client is gone."""
        if not sequence.ended:
            sequence.ended = True
            (self.running if sequence in self.running else self.waiting).remove(sequence)

    async def run(self) -> None:
        """Step by absolute deadlines, so that a late wake-up does not slow the engine down."""
        clock = asyncio.get_running_loop().time
        end = clock()
        while True:
            while self.frozen or not (self.waiting or self.running):
                self._wake.clear()
                await self._wake.wait()
                end = clock()
            batch = self._schedule()
            end = max(end, clock() - _LAG_S) + self.step_time.of([share for _, share in batch])
            await asyncio.sleep(end - clock())
            if not self.frozen:
                for sequence, share in batch:
                    self._advance(sequence, share)

    def _schedule(self) -> list[tuple[Sequence, int]]:
        budget, free = self.limits.max_num_batched_tokens, self.limits.kv_tokens
        free -= sum(sequence.computed for sequence in self.running)
        preempted = self.counters.num_preemptions
        batch: list[tuple[Sequence, int]] = []
        for sequence in tuple(self.running):
            share = self._share(sequence, budget)
            while share > free and sequence in self.running:
                free += self._preempt()
            if share and sequence in self.running:
                batch.append((sequence, share))
                budget, free = budget - share, free - share
        while self.waiting and budget and len(self.running) < self.limits.max_num_seqs:
            sequence = self.waiting[0]
            if sequence.length > free or preempted != self.counters.num_preemptions:
                break
            self.running.append(self.waiting.popleft())
            sequence.computed = self._reuse(sequence)
            share = self._share(sequence, budget)
            batch.append((sequence, share))
            budget, free = budget - share, free - sequence.computed - share
        return batch

    def _share(self, sequence: Sequence, budget: int) -> int:
        missing = sequence.length - sequence.computed
        threshold = self.limits.long_prefill_token_threshold
        if threshold and len(self.running) + len(self.waiting) > 1:
            missing = min(missing, threshold)
        return min(missing, budget)

    def _preempt(self) -> int:
        """Send the youngest back to the queue to be computed again; the KV tokens it held."""
        sequence = self.running.pop()
        self.waiting.appendleft(sequence)
        self.counters.num_preemptions += 1
        held, sequence.computed = sequence.computed, 0
        return held

    def _advance(self, sequence: Sequence, share: int) -> None:
        if sequence.ended:
            return
        sequence.computed += share
        if sequence.computed < sequence.length:
            return
        if not sequence.emitted:
            self.counters.prompt_tokens += len(sequence.prompt)
            self._remember(sequence)
        sequence.emitted += 1
        self.counters.generation_tokens += 1
        if sequence.emitted == sequence.budget:
            sequence.ended = True
            self.running.remove(sequence)
            self.counters.request_success += 1
        sequence.on_token()

    def _reuse(self, sequence: Sequence) -> int:
        """Prompt tokens that need no computing; the last one always does."""
        if not (self.limits.cache_block and sequence.reads_cache):
            return 0
        hits = 0
        for key in self._keys(sequence):
            if key not in self._cache:
                break
            hits += self.limits.cache_block
        sequence.cached = hits
        self.counters.prefix_cache_queries += len(sequence.prompt)
        self.counters.prefix_cache_hits += hits
        return hits

    def _remember(self, sequence: Sequence) -> None:
        if self.limits.cache_block:
            self._cache |= dict.fromkeys(self._keys(sequence))
            while len(self._cache) * self.limits.cache_block > self.limits.kv_tokens:
                del self._cache[next(iter(self._cache))]

    def _keys(self, sequence: Sequence) -> list[int]:
        block, keys = self.limits.cache_block, [hash(sequence.salt)]
        for start in range(0, len(sequence.prompt) - block, block):
            keys.append(hash((keys[-1], *sequence.prompt[start : start + block])))
        return keys[1:]
