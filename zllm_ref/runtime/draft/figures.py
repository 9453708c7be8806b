"""How good a drafter is: right guesses a round and at each place of a block, and whether its chances mean what they say.

round         t0 is due   guesses g1 g2 g3 g4 g5     g1 g2 are what the model says, g3 is not
tokens        g1 g2 and the model's own token where g3 stood: 3, the accepted length of the round
tried         g1 g2 right, g3 wrong; g4 g5 say nothing: what stands before them is not what they were made for
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

NUM_BINS = 10


@dataclass(frozen=True)
class Bin:
    """Tried guesses whose chances lie between `low` and `high`."""

    low: float
    high: float
    tried: int
    chance: float
    """Their mean."""
    right: float
    """The share of them that was right."""


@dataclass
class DraftFigures:
    """Counts of verified rounds."""

    rounds: int = 0
    tokens: int = 0
    """Tokens that the rounds gave, the model's own ones among them; less at the end of an answer."""
    right: int = 0
    """Guesses that were what the model said."""
    tried_at: list[int] = field(default_factory=list)
    right_at: list[int] = field(default_factory=list)
    chances: list[tuple[float, bool]] = field(default_factory=list)
    """Of each tried guess: its chance, and whether it was right."""

    def add(self, proposed: int, right: int, tokens: int, chances: Sequence[float] = ()) -> None:
        """One round. `right`: so many guesses, from the first one on, were what the model said; `tokens`: the answer's gain."""
        self.rounds += 1
        self.right += right
        self.tokens += tokens
        ended_with_a_guess = tokens == right
        for place in range(right if ended_with_a_guess else min(right + 1, proposed)):
            if place == len(self.tried_at):
                self.tried_at.append(0)
                self.right_at.append(0)
            self.tried_at[place] += 1
            self.right_at[place] += place < right
            if place < len(chances):
                self.chances.append((chances[place], place < right))

    @property
    def accepted_length(self) -> float:
        """Tokens that a round gave: right guesses and the model's own token."""
        return self.tokens / max(1, self.rounds)

    @property
    def right_per_round(self) -> float:
        """Guesses alone."""
        return self.right / max(1, self.rounds)

    def bins(self) -> list[Bin]:
        """Reliability: chances in tenths; empty ones left out."""
        result = []
        for index in range(NUM_BINS):
            low, high = index / NUM_BINS, (index + 1) / NUM_BINS
            members = [pair for pair in self.chances if min(int(pair[0] * NUM_BINS), NUM_BINS - 1) == index]
            if members:
                chance = sum(chance for chance, _ in members) / len(members)
                result.append(Bin(low, high, len(members), chance, sum(right for _, right in members) / len(members)))
        return result

    @property
    def calibration_error(self) -> float:
        """Expected calibration error: |mean chance - share right| over the bins, weighted by their sizes."""
        total = sum(bin.tried for bin in self.bins())
        return sum(bin.tried * abs(bin.chance - bin.right) for bin in self.bins()) / max(1, total)
