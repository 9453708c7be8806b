"""How many guesses are worth verifying: expected tokens per second of a round, by survival and measured cost.

    survival(j)   the chance that the first j guesses are all right: a product, so it only falls
    tokens(n)     1 + Σ_{j ≤ n} survival(j)
    best n        where tokens(n) / seconds(1 + n rows) is largest; the shorter one where two are equal

It looks at chances and at a clock, so the length may differ from run to run. Tokens do not: verification sees to that.
"""

from __future__ import annotations

from collections.abc import Sequence


class AcceptanceRecord:
    """How often a guess at each place was right, given that those before it were; newer rounds count more."""

    def __init__(self, most: int, fade: float = 0.95) -> None:
        self._right = [1.0] * most
        self._tried = [2.0] * most
        self._fade = fade

    def judge(self, proposed: int, accepted: int) -> None:
        """A round's outcome. What lies behind the first wrong guess was not tried."""
        for place in range(min(accepted + 1, proposed, len(self._tried))):
            self._tried[place] = self._tried[place] * self._fade + 1.0
            self._right[place] = self._right[place] * self._fade + (1.0 if place < accepted else 0.0)

    def survivals(self) -> list[float]:
        """The chance that the guesses up to each place are all right."""
        result, chance = [], 1.0
        for right, tried in zip(self._right, self._tried, strict=True):
            chance *= right / tried
            result.append(chance)
        return result


class StepCost:
    """Measured seconds of a round by its rows; unmeasured sizes lie on the line between measured ones."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}

    def observe(self, num_rows: int, seconds: float) -> None:
        """A round of so many rows took so long. Newer rounds count half."""
        before = self._seconds.get(num_rows)
        self._seconds[num_rows] = seconds if before is None else (before + seconds) / 2

    def seconds(self, num_rows: int) -> float:
        """An estimate; 1.0 while nothing was measured, so that only chances decide."""
        if not self._seconds:
            return 1.0
        below = max((rows for rows in self._seconds if rows <= num_rows), default=None)
        above = min((rows for rows in self._seconds if rows >= num_rows), default=None)
        if below is None or above is None:
            nearest = above if below is None else below
            assert nearest is not None
            return self._seconds[nearest]
        if below == above:
            return self._seconds[below]
        share = (num_rows - below) / (above - below)
        return self._seconds[below] * (1 - share) + self._seconds[above] * share


def best_length(survivals: Sequence[float], cost: StepCost, num_pending: int = 1) -> int:
    """The number of guesses, 0 to all, that gives most expected tokens per second."""
    best, best_rate, tokens = 0, 1.0 / cost.seconds(num_pending), 1.0
    for length, survival in enumerate(survivals, start=1):
        tokens += survival
        rate = tokens / cost.seconds(num_pending + length)
        if rate > best_rate:
            best, best_rate = length, rate
    return best
