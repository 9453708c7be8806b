"""Session buffers that are used again: taken before a restore begins, given back when nothing writes into them any more.

A cancelled restore still has a command under way. Whoever used its buffer now would find another request's rows in his state:
so a buffer that is given back waits aside until its restore has drained, is reset, and only then lies in the pool again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

Buffer = TypeVar("Buffer")


class Drainable(Protocol):
    """Something that has commands queued on a buffer."""

    @property
    def is_drained(self) -> bool:
        """No command touches the buffer any more."""


class BufferPool(Generic[Buffer]):
    """At most `most_idle` buffers of one size wait for their next use; called from one thread."""

    def __init__(self, make: Callable[[], Buffer], reset: Callable[[Buffer], None], most_idle: int) -> None:
        self._make = make
        self._reset = reset
        self._most_idle = most_idle
        self._idle: list[Buffer] = []
        self._draining: list[tuple[Buffer, Drainable]] = []

    def take(self) -> Buffer:
        """A buffer in its first state, an old one if one is free."""
        self.collect()
        return self._idle.pop() if self._idle else self._make()

    def give_back(self, buffer: Buffer, pending: Drainable | None = None) -> None:
        """Returns a buffer after success, failure or cancel; `pending` is what may still be writing into it."""
        self._draining.append((buffer, pending if pending is not None else _Drained()))
        self.collect()

    def collect(self) -> None:
        """Moves buffers whose commands have drained to the idle ones, reset."""
        draining, self._draining = self._draining, []
        for buffer, pending in draining:
            if not pending.is_drained:
                self._draining.append((buffer, pending))
            elif len(self._idle) < self._most_idle:
                self._reset(buffer)
                self._idle.append(buffer)

    @property
    def num_idle(self) -> int:
        return len(self._idle)

    @property
    def num_draining(self) -> int:
        return len(self._draining)


class _Drained:
    is_drained = True
