"""What a server says about a model that it serves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelCard:
    """`created` in unix seconds; `context_length` in tokens; `aliases` are further names that a request may use."""

    id: str
    created: int
    context_length: int
    aliases: tuple[str, ...] = ()

    def answers_to(self, name: str) -> bool:
        return name == self.id or name in self.aliases
