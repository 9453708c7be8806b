"""How many guesses are worth verifying: expected tokens per second of a round, by survival and measured cost.

    survival(j)   the chance that the first j guesses are all right: a product, so it only falls
    tokens(n)     1 + Σ_{j ≤ n} survival(j)
    best n        where tokens(n) / seconds(1 + n rows) is largest; the shorter one where two are equal

It looks at chances and at a clock, so the length may differ from run to run. Tokens do not: verification sees to that.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from statistics import median

_REMEMBERED = 5
"""Measurements of one size that count: their median is an estimate that one disturbed round does not spoil."""
_LEAST_SECONDS = 1e-9
"""A clock too coarse to see a round measures 0."""
_GROWTH_UNMEASURED = 0.25
"""Until it is measured, twice the rows are taken to cost this much more."""


class AcceptanceRecord:
    """How often a guess at each place was right, given that those before it were; newer rounds count more."""

    def __init__(self, most: int, fade: float = 0.95) -> None:
        # Before anything is known: an even chance for the first guess, a better one for each behind a right one.
        self._right = [1.0, *[1.5] * (most - 1)][:most]
        self._tried = [2.0] * most
        self._fade = fade

    def judge(self, proposed: int, accepted: int) -> None:
        """A round's outcome. What lies behind the first wrong guess was not tried."""
        for place in range(min(accepted + 1, proposed, len(self._tried))):
            self._tried[place] = self._tried[place] * self._fade + 1.0
            self._right[place] = self._right[place] * self._fade + (1.0 if place < accepted else 0.0)

    def chances(self) -> list[float]:
        """The chance of each place, given that the guesses before it are right."""
        return [right / tried for right, tried in zip(self._right, self._tried, strict=True)]

    def survivals(self) -> list[float]:
        """The chance that the guesses up to each place are all right."""
        return survivals(self.chances())


class StepCost:
    """Measured seconds of a round by its rows. More rows never cost less: what contradicts that was disturbed."""

    def __init__(self) -> None:
        self._measured: dict[int, deque[float]] = {}
        self._medians: dict[int, float] = {}
        self._sizes: list[int] = []
        self._seconds: list[float] = []
        """For each measured size, the smallest median of it and of all larger ones."""

    def observe(self, num_rows: int, seconds: float) -> None:
        """A round of so many rows took so long."""
        if num_rows not in self._measured:
            self._measured[num_rows] = deque(maxlen=_REMEMBERED)
            insort(self._sizes, num_rows)
        self._measured[num_rows].append(max(seconds, _LEAST_SECONDS))
        self._medians[num_rows] = median(self._measured[num_rows])
        least, result = math.inf, []
        for size in reversed(self._sizes):
            least = min(least, self._medians[size])
            result.append(least)
        self._seconds = result[::-1]

    def seconds(self, num_rows: int) -> float:
        """An estimate, on the line between measured sizes; 1.0 while nothing was measured, so that only chances decide."""
        if not self._sizes:
            return 1.0
        above = bisect_left(self._sizes, num_rows)
        if above == len(self._sizes):
            return self._seconds[-1] * (1.0 + _GROWTH_UNMEASURED * math.log2(num_rows / self._sizes[-1]))
        if self._sizes[above] == num_rows or above == 0:
            return self._seconds[above]
        below = above - 1
        share = (num_rows - self._sizes[below]) / (self._sizes[above] - self._sizes[below])
        return self._seconds[below] * (1 - share) + self._seconds[above] * share


def survivals(chances: Sequence[float]) -> list[float]:
    """Running products."""
    result, survival = [], 1.0
    for chance in chances:
        survival *= chance
        result.append(survival)
    return result


def best_length(survivals: Sequence[float], cost: StepCost, num_pending: int = 1, guess_seconds: float = 0.0) -> int:
    """The number of guesses, 0 to all, that gives most expected tokens per second. `guess_seconds`: what making one costs."""
    best, best_rate, tokens = 0, 1.0 / cost.seconds(num_pending), 1.0
    for length, survival in enumerate(survivals, start=1):
        tokens += survival
        rate = tokens / (cost.seconds(num_pending + length) + length * guess_seconds)
        if rate > best_rate:
            best, best_rate = length, rate
    return best
