"""Recorded traffic: what was asked, when, and how much was answered."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One recorded request; `offset_s` counts from the first request of the recording.

    `blocks` are the ids of the prompt's leading blocks of `Workload.block_tokens` tokens each, in order: an
    equal id is an equal block behind an equal prefix. What the blocks do not cover is this request's own; the
    last block may be cut off by the prompt's end. `session` names a conversation, whose requests wait for one
    another; `think_s` is the pause between the answer before and this request, None where the recording does
    not say: then the recorded moment counts, or that answer if it is later. `body` is the recorded request as
    JSON (with `messages`, `prompt` or `input`), None when only lengths were recorded.
    """

    offset_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    session: str | None = None
    think_s: float | None = None
    body: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests in order of arrival, and the file they came from (`sha256` of its bytes).

    `block_tokens` is the size of the blocks that requests name, None when they name none. `timed` is False
    for prompts without arrival times, `counted` is False when token counts are estimated from text.
    """

    name: str
    source: str
    sha256: str
    requests: tuple[Request, ...]
    block_tokens: int | None = None
    timed: bool = True
    counted: bool = True

    @property
    def duration_s(self) -> float:
        """From the first arrival to the last."""
        return self.requests[-1].offset_s - self.requests[0].offset_s

    @property
    def rate_rps(self) -> float:
        """Mean recorded request rate: gaps, not requests, over the duration."""
        return (len(self.requests) - 1) / self.duration_s

    @property
    def longest_tokens(self) -> int:
        """Prompt and output of the longest request: what one sequence needs at most."""
        return max(request.prompt_tokens + request.output_tokens for request in self.requests)
