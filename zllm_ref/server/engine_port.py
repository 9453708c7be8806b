"""What the server needs of an engine. The real one is `zllm_ref.engine`; tests bring their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from zllm_ref.canonical.event import Event
from zllm_ref.canonical.figure import Figure
from zllm_ref.canonical.model_card import ModelCard
from zllm_ref.canonical.request import Request

Listener = Callable[[Sequence[Event]], None]


class Generation(Protocol):
    """An answer on its way."""

    def cancel(self) -> None:
        """Stops it at the next step. May be called from any thread, and more than once."""


class Engine(Protocol):
    @property
    def models(self) -> tuple[ModelCard, ...]:
        """What is served; empty while loading."""

    def health(self) -> Mapping[str, object]:
        """`status` is loading, ready or failed."""

    def figures(self) -> Sequence[Figure]:
        """What it says of its cache, for `/metrics`; nothing while loading."""

    def count_tokens(self, request: Request) -> int:
        """Blocks for as long as rendering and encoding take. Raises ApiError."""

    def submit(self, request: Request, listener: Listener) -> Generation:
        """Starts an answer; all that is known before the first token is raised here. `listener` hears from another thread."""
