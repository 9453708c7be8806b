"""What an answer cost, counted once, reported in four conventions (protocols.md 1.5)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """`cached_tokens` of the prompt were not computed again; `cache_write_tokens` were newly kept (a miss is no write)."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def check(self) -> None:
        """CH18, RS13, AN13: the arithmetic that every convention rests on."""
        assert 0 <= self.cached_tokens <= self.prompt_tokens, self
        assert 0 <= self.cache_write_tokens <= self.prompt_tokens - self.cached_tokens, self
        assert 0 <= self.reasoning_tokens <= self.completion_tokens, self
