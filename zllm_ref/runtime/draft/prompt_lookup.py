"""Drafts from the sequence itself: what followed the last time when the same ids stood here.

ids    … a b c d e f …… b c d x …… a b c |         the newest three stood here before: of all such places the one counts that
              └── the longest common past              agrees furthest back, and d e f may follow again

Agents repeat files, tool results and their own code, so this costs a look into a table and often gives whole lines. How far
the pasts agree says how much a guess is worth: after three ids little, after thirty nearly all. That is learnt from the
sequence itself, whether or not a guess was verified.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from zllm_ref.runtime.state import SessionState, StateTensor

MATCH = 3
"""Ids that must be the same for a guess."""
MOST_LENGTH = 16
MOST_PLACES = 8
"""So many earlier places are compared, the newest first."""
LONGEST_PAST = 32
"""So far back places are compared: beyond that all are equally good."""
BYTES_PER_TOKEN = 256
"""Of the table, in memory: an id, a link, and an entry where its past is new."""

_STEPS = (MATCH, 4, 6, 8, 12, 16, 24, LONGEST_PAST)
"""Lengths of a common past from which on another chance holds."""
_BELIEFS = (0.30, 0.40, 0.50, 0.65, 0.80, 0.88, 0.93, 0.96)
"""Chances before anything was seen, a little lower than agents' texts give."""
_WEIGHT = 4.0
_FADE = 0.98


class PromptLookup:
    """The lookup table of one sequence, and what its guesses were worth."""

    def __init__(self, ids: Sequence[int]) -> None:
        """`ids`: all that the sequence has so far."""
        self._ids: list[int] = []
        self._earlier: list[int] = []
        """For each place the next older one behind the same three ids, -1: none."""
        self._newest: dict[tuple[int, ...], int] = {}
        self._right = [belief * _WEIGHT for belief in _BELIEFS]
        self._tried = [_WEIGHT] * len(_BELIEFS)
        self._guesses: list[int] = []
        self._past = 0
        """Ids before the guessed place that are those before the newest place, as far as they were compared."""
        self._extend(ids)

    def follow(self, start: int, hidden: Tensor, next_ids: Sequence[int]) -> None:
        known = len(self._ids) - (start + 1)
        new_ids = next_ids[max(0, known) :]
        self._learn(new_ids)
        self._extend(new_ids)

    def propose(self, limit: int) -> list[int]:
        self._guesses = []
        if limit < 1 or len(self._ids) <= MATCH:
            return []
        place, self._past = self._best_place()
        if place >= 0:
            self._guesses = self._read(place, limit)
        return self._guesses

    def chances(self) -> Sequence[float]:
        steps = (_step(self._past + number) for number in range(len(self._guesses)))
        return [self._right[step] / self._tried[step] for step in steps]

    def judge(self, proposed: int, accepted: int) -> None:
        """Nothing to do: `follow` tells what came, of guesses that nobody verified too."""

    def _read(self, place: int, count: int) -> list[int]:
        """`count` ids from `place` on; past the newest id it goes on with what was read: a loop goes round."""
        guesses = self._ids[place : place + count]
        while len(guesses) < count:
            guesses.append(guesses[len(guesses) - (len(self._ids) - place)])
        return guesses

    def _best_place(self) -> tuple[int, int]:
        """Where the guess is read, and how many ids before it are those before the newest place; -1: nowhere."""
        place = self._newest.get(tuple(self._ids[-MATCH:]), -1)
        best, longest = -1, 0
        for _ in range(MOST_PLACES):
            if place < 0 or longest >= LONGEST_PAST:
                break
            past = self._common_past(place)
            if past > longest:
                best, longest = place, past
            place = self._earlier[place]
        return best, longest

    def _common_past(self, place: int) -> int:
        """How many ids before `place` are the newest ids; at least MATCH, at most LONGEST_PAST."""
        ids, end = self._ids, len(self._ids)
        count, most = MATCH, min(LONGEST_PAST, place)
        while count < most and ids[place - 1 - count] == ids[end - 1 - count]:
            count += 1
        return count

    def _learn(self, new_ids: Sequence[int]) -> None:
        """Compares the last guesses with what came."""
        for number, (guess, token) in enumerate(zip(self._guesses, new_ids, strict=False)):
            step = _step(self._past + number)
            self._tried[step] = self._tried[step] * _FADE + 1.0
            self._right[step] = self._right[step] * _FADE + (1.0 if guess == token else 0.0)
            if guess != token:
                break
        self._guesses = []

    def _extend(self, ids: Sequence[int]) -> None:
        """A place is entered behind its three ids when the id at it is there."""
        own, newest, earlier = self._ids, self._newest, self._earlier
        for token in ids:
            if len(own) >= MATCH:
                key = tuple(own[-MATCH:])
                earlier.append(newest.get(key, -1))
                newest[key] = len(own)
            else:
                earlier.append(-1)
            own.append(token)


class PromptLookupFactory:
    """Needs no weights, no rows, no state."""

    name = "prompt_lookup"
    guesses_at_once = True
    feature_layers: tuple[int, ...] = ()
    state_tensors: tuple[StateTensor, ...] = ()
    digest = ""

    def __init__(self, most_length: int = MOST_LENGTH) -> None:
        self.most_length = most_length

    def session_bytes(self, num_tokens: int) -> int:
        return num_tokens * BYTES_PER_TOKEN

    def begin(self, state: SessionState, ids: Sequence[int]) -> PromptLookup:
        return PromptLookup(ids)


def _step(past: int) -> int:
    """The number of the step in which a common past of this length lies."""
    step = len(_STEPS) - 1
    while step and past < _STEPS[step]:
        step -= 1
    return step
