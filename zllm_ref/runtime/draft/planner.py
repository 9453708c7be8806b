"""The scheduler of a loop's drafts: how many guesses each lane is asked for, and how many of them are verified.

    ask    a lane alone: nothing while it rests; all at once where guesses cost the same; else as many as pay by its record
    cut    all lanes together: guesses by falling survival, as long as expected tokens per second of the round rise

    survival   .9  .9  .8  .7  .5  .4 | .2  .1          of whichever lane
    rows        5   6   7   8   9  10 | 11  12          measured: seconds(rows)
    best                            ↑

A drafter that does not pay, whatever its chances claim, gets nothing and is probed now and then, ever more seldom. Nothing here
can change a token.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from zllm_ref.runtime.draft.length import AcceptanceRecord, StepCost, best_length

FIRST_REST = 16
"""Rounds between a proposal that did not pay and the next try, doubled each time up to `LONGEST_REST`."""
LONGEST_REST = 512
_FREE_SHARE = 0.01
"""A proposal that takes less than this share of a round is asked for at every round."""
_REMEMBERED = 9
FIRST_CREDIT, NEXT_CREDIT, MOST_CREDIT = 3.0, 2.0, 6.0
"""Rounds that costly proposals may lose before a lane rests: at first, after a rest, and at most after gains."""


@dataclass
class Outlook:
    """How the guesses for one sequence did so far. Belongs to the runtime's thread."""

    record: AcceptanceRecord
    rest: int = 0
    """Rounds before the lane is asked again."""
    next_rest: int = FIRST_REST
    is_probe: bool = False
    """The present proposal is a try that was not expected to pay."""
    credit: float = FIRST_CREDIT
    """Rounds that costly proposals may still lose."""


@dataclass(frozen=True)
class Proposal:
    """One lane before the round: pending ids, and the chance of each guess given those before it."""

    num_pending: int
    chances: Sequence[float] = ()
    is_probe: bool = False
    is_cuttable: bool = True
    """False: a rejected guess costs a second pass, because the state must return to a mark."""


@dataclass
class DraftPlanner:
    """One per loop; `clock` in seconds."""

    most_length: int
    guesses_at_once: bool
    clock: Callable[[], float] = time.monotonic
    cost: StepCost = field(default_factory=StepCost)
    _proposal_seconds: list[float] = field(default_factory=list)
    _rows: int = 1
    """Of the present round without guesses."""
    _lanes: int = 1

    def new_outlook(self) -> Outlook:
        """For a sequence of which nothing is known."""
        return Outlook(AcceptanceRecord(self.most_length))

    def ask(self, outlook: Outlook, room: int, num_pending: int) -> int:
        """How many guesses the lane's drafter is asked for; 0: none in this round."""
        outlook.is_probe = False
        if outlook.rest:
            outlook.rest -= 1
            return 0
        most = min(room, self.most_length)
        if self.guesses_at_once:
            return most
        length = best_length(outlook.record.survivals()[:most], self.cost, num_pending, self.guess_seconds)
        if length == 0 and most > 0:
            outlook.is_probe = True
            return 1
        return length

    def observe_proposal(self, num_guesses: int, seconds: float) -> None:
        """Making so many guesses took so long."""
        parts = 1 if self.guesses_at_once else max(1, num_guesses)
        self._proposal_seconds = [*self._proposal_seconds[1 - _REMEMBERED :], seconds / parts]

    @property
    def guess_seconds(self) -> float:
        """Of one guess; of a whole proposal where guesses come at once."""
        return median(self._proposal_seconds) if self._proposal_seconds else 0.0

    def cut(self, lanes: Sequence[Proposal]) -> list[int]:
        """How many guesses of each lane are verified: those that give the round most expected tokens per second."""
        kept = [min(1, len(lane.chances)) if lane.is_probe else 0 for lane in lanes]
        self._rows, self._lanes = sum(lane.num_pending for lane in lanes), len(lanes)
        rows = self._rows + sum(kept)
        tokens, all_right = float(len(lanes)), 1.0
        best, best_rate = list(kept), tokens / self.cost.seconds(rows)
        for _, index, chance, survival in _by_survival(lanes):
            kept[index] += 1
            rows += 1
            tokens += survival
            if not lanes[index].is_cuttable:
                all_right *= chance
            # what is rejected where nothing can be cut is computed again without it
            again = (1.0 - all_right) * self.cost.seconds(max(1, round(tokens)))
            rate = tokens / (self.cost.seconds(rows) + again)
            if rate > best_rate:
                best, best_rate = list(kept), rate
        return best

    def judge(self, outlook: Outlook, proposed: int, compared: int, right: int, verified: int) -> None:
        """A round's outcome for a lane that proposed `proposed` guesses, `verified` of which were fed.

        The first `compared` of them stand beside what the sequence said, fed or not, and the first `right` are the same.
        """
        outlook.record.judge(compared, right)
        is_costly = proposed > 0 and self.guess_seconds > _FREE_SHARE * self.cost.seconds(1)
        if is_costly and self.guesses_at_once:
            if self._lost_too_much(outlook, min(right, verified), verified):
                outlook.credit = NEXT_CREDIT
                self._rest(outlook)
                return
        elif verified and right:
            outlook.next_rest = FIRST_REST
            return
        if outlook.is_probe or (is_costly and verified == 0):
            self._rest(outlook)

    def _lost_too_much(self, outlook: Outlook, right: int, verified: int) -> bool:
        """A costly proposal's gain, its lane's rounds that need not be run, less what making and verifying it took.

        This is what its chances cannot hide: a drafter that claims more than it holds loses its credit.
        """
        plain = self.cost.seconds(self._rows)
        spent = self.guess_seconds + self.cost.seconds(self._rows + verified) - plain
        outlook.credit = min(MOST_CREDIT, outlook.credit + right - spent * self._lanes / plain)
        if outlook.credit == MOST_CREDIT:
            outlook.next_rest = FIRST_REST
        return outlook.credit < 0

    def _rest(self, outlook: Outlook) -> None:
        outlook.rest = outlook.next_rest
        outlook.next_rest = min(LONGEST_REST, 2 * outlook.next_rest)


def _by_survival(lanes: Sequence[Proposal]) -> list[tuple[float, int, float, float]]:
    """(−survival, lane, chance, survival) of every guess that is not a probe, likeliest first, in order within a lane."""
    guesses = []
    for index, lane in enumerate(lanes):
        if lane.is_probe:
            continue
        survival = 1.0
        for chance in lane.chances:
            survival *= chance
            guesses.append((-survival, index, chance, survival))
    guesses.sort(key=lambda guess: guess[0])  # stable: within a lane survival never rises
    return guesses
