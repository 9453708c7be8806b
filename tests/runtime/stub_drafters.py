"""Drafters for the loop's tests: one that knows the answer of the hash model and lies where it is told to, and broken ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from tests.runtime.stub_model import VOCAB, next_hash
from zllm_ref.runtime.state import SessionState, StateTensor


@dataclass
class HashOracle:
    """Guesses what the hash model says; every `lies`-th guess, counted by place, is another id. It checks what it is told."""

    state: SessionState
    ids: list[int]
    lies: int = 0
    length: int = 4
    chance: float = 0.9
    rows: int = 0
    judged: list[tuple[int, int]] = field(default_factory=list)

    def follow(self, start: int, hidden: Tensor, next_ids: Sequence[int]) -> None:
        """Rows come in order and without holes, and the hidden row of the hash model says what its ids were."""
        assert hidden.shape[0] == len(next_ids)
        assert start <= self.rows or self.rows == 0, (start, self.rows)
        known = [*self.ids[: start + 1], *next_ids]
        assert known[: len(self.ids)] == self.ids[: len(known)], "what it is told is what it knows"
        for offset in range(len(next_ids)):
            assert int(hidden[offset, 0]) == _hash_of(known[: start + offset + 1]), "the row is the one of its position"
        self.rows = start + len(next_ids)
        self.ids = [*known, *self.ids[len(known) :]]

    def propose(self, limit: int) -> list[int]:
        value, guesses = _hash_of(self.ids), []
        for place in range(len(self.ids), len(self.ids) + min(limit, self.length)):
            right = value % VOCAB
            guesses.append((right + 1) % VOCAB if self.lies and place % self.lies == 0 else right)
            value = next_hash(value, guesses[-1])
        return guesses

    def chances(self) -> Sequence[float]:
        return [self.chance] * self.length

    def judge(self, proposed: int, accepted: int) -> None:
        assert 0 <= accepted <= proposed
        self.judged.append((proposed, accepted))


@dataclass
class HashOracles:
    """The factory; remembers the drafters that it made."""

    lies: int = 0
    length: int = 4
    bytes_per_token: int = 0
    state_tensors: tuple[StateTensor, ...] = ()
    made: list[HashOracle] = field(default_factory=list)
    name: str = "oracle"
    guesses_at_once: bool = True
    feature_layers: tuple[int, ...] = ()
    digest: str = ""

    @property
    def most_length(self) -> int:
        return self.length

    def session_bytes(self, num_tokens: int) -> int:
        return num_tokens * self.bytes_per_token

    def begin(self, state: SessionState, ids: Sequence[int]) -> HashOracle:
        self.made.append(HashOracle(state, list(ids), self.lies, self.length))
        return self.made[-1]


@dataclass
class Noise(HashOracle):
    """Guesses anything: ids that do not exist, negative ones, more than it was asked for."""

    def propose(self, limit: int) -> list[int]:
        place = len(self.ids)
        return [[VOCAB, 3, 1], [-1], [7, VOCAB + 5, 7], [1 << 40], [2] * (limit + 9)][place % 5]


@dataclass
class Breaking(HashOracle):
    """Raises after some calls."""

    calls: int = 0

    def propose(self, limit: int) -> list[int]:
        self.calls += 1
        if self.calls > 2:
            raise RuntimeError("planted fault of a drafter")
        return super().propose(limit)


@dataclass
class Others(HashOracles):
    """A factory of another class of drafters."""

    kind: type[HashOracle] = HashOracle

    def begin(self, state: SessionState, ids: Sequence[int]) -> HashOracle:
        self.made.append(self.kind(state, list(ids), self.lies, self.length))
        return self.made[-1]


def _hash_of(ids: Sequence[int]) -> int:
    value = 0
    for token in ids:
        value = next_hash(value, token)
    return value
