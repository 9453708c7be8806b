"""Drafts from the sequence itself: what followed the last time when the same few ids stood here.

ids    … a b c d e f …………………… a b c |          the newest three stood here before: d e f may follow again
              └── index[(a, b, c)] ──┘

Agents repeat files, tool results and their own code, so this costs a look into a table and often gives whole lines. It keeps
quiet where it fails: each miss shortens the next guess, and after a few it waits before it tries again.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

MATCH = 3
"""Ids that must be the same for a guess."""
FIRST_LENGTH = 4
MOST_LENGTH = 16
QUIET_TOKENS = 16
"""Tokens without a guess after guesses that all failed, doubled with each further failure up to `MOST_QUIET_TOKENS`."""
MOST_QUIET_TOKENS = 256


class PromptLookup:
    """The lookup table of one sequence, and how long its guesses are at present."""

    def __init__(self, ids: Sequence[int]) -> None:
        """`ids`: all that the sequence has so far."""
        self._ids: list[int] = []
        self._index: dict[tuple[int, ...], int] = {}
        self._length = FIRST_LENGTH
        self._quiet = QUIET_TOKENS
        self._quiet_until = 0
        self._extend(ids)

    def follow(self, start: int, hidden: Tensor, next_ids: Sequence[int]) -> None:
        known = len(self._ids) - (start + 1)
        self._extend(next_ids[max(0, known) :])

    def propose(self, limit: int) -> list[int]:
        if len(self._ids) < max(MATCH + 1, self._quiet_until) or limit < 1:
            return []
        place = self._index.get(tuple(self._ids[-MATCH:]))
        return [] if place is None else self._ids[place : place + min(limit, self._length)]

    def judge(self, proposed: int, accepted: int) -> None:
        if not proposed:
            return
        if accepted == proposed:
            self._length = min(MOST_LENGTH, 2 * self._length)
            self._quiet = QUIET_TOKENS
        elif accepted:
            self._length = max(FIRST_LENGTH, accepted + 1)
            self._quiet = QUIET_TOKENS
        elif self._length > 1:
            self._length //= 2
        else:
            self._quiet_until = len(self._ids) + self._quiet
            self._quiet = min(MOST_QUIET_TOKENS, 2 * self._quiet)
            self._length = 1

    def _extend(self, ids: Sequence[int]) -> None:
        """An n-gram points behind its newest earlier place: it is entered when the id after it is there."""
        for token in ids:
            if len(self._ids) >= MATCH:
                self._index[tuple(self._ids[-MATCH:])] = len(self._ids)
            self._ids.append(token)
