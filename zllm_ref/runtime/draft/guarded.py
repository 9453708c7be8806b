"""A drafter that may break: from its first error on it is silent, and the answer goes on without guesses."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor

from zllm_ref.runtime.draft.drafter import Drafter

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")


class GuardedDrafter:
    """Does what the drafter in it does, as long as that does not raise."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter: Drafter | None = drafter

    @property
    def is_broken(self) -> bool:
        return self._drafter is None

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
        except (RuntimeError, ValueError, LookupError, TypeError, ArithmeticError):
            _log.exception("a drafter broke: the answer goes on without it")
            self._drafter = None  # what it held is given back with it
            return otherwise
