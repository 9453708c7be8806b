"""What verification asks of a drafter: guesses, and nothing that could change a token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor


class Drafter(Protocol):
    """Guesses the next ids of one sequence. Wrong, absent or corrupted, it costs time and changes no token.

    follow ─▶ propose ─▶ [verified] ─▶ judge, follow ─▶ propose …
    """

    def follow(self, start: int, hidden: Tensor, next_ids: Sequence[int]) -> None:
        """The state holds further rows, from position `start` on: `hidden` [n, width], and the id that came after each."""

    def propose(self, limit: int) -> list[int]:
        """At most `limit` ids that may follow the newest one; empty: no guess, and the round costs what it did before."""

    def judge(self, proposed: int, accepted: int) -> None:
        """How many of the last proposal were what the model said."""
