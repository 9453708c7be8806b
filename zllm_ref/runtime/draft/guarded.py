"""A drafter that may break, even before it is made: from its first error on it is silent, the answer goes on without guesses."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor

from zllm_ref.runtime.draft.drafter import Drafter

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
_BREAKS = (RuntimeError, ValueError, LookupError, TypeError, ArithmeticError, MemoryError)


class GuardedDrafter:
    """Does what the drafter that `begin` makes does, as long as neither raises."""

    def __init__(self, begin: Callable[[], Drafter]) -> None:
        self._drafter: Drafter | None = None
        try:
            self._drafter = begin()
        except _BREAKS:
            _log.exception("a drafter could not begin: the answer goes on without it")

    def follow(self, start: int, hidden: Tensor, next_ids: Sequence[int]) -> None:
        self._try(lambda drafter: drafter.follow(start, hidden, next_ids), None)

    def propose(self, limit: int) -> list[int]:
        return self._try(lambda drafter: drafter.propose(limit), [])

    def chances(self) -> Sequence[float]:
        return self._try(lambda drafter: drafter.chances(), ())

    def judge(self, proposed: int, accepted: int) -> None:
        self._try(lambda drafter: drafter.judge(proposed, accepted), None)

    def _try(self, ask: Callable[[Drafter], _Result], otherwise: _Result) -> _Result:
        if self._drafter is None:
            return otherwise
        try:
            return ask(self._drafter)
        except _BREAKS:
            _log.exception("a drafter broke: the answer goes on without it")
            self._drafter = None  # what it held is given back with it
            return otherwise
