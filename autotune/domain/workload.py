"""Recorded traffic: what was asked, when, and how much was answered."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One recorded request; `offset_s` counts from the first request of the recording."""

    offset_s: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests in order of arrival, and the file they came from (`sha256` of its bytes)."""

    name: str
    source: str
    sha256: str
    requests: tuple[Request, ...]

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
