"""What verification asks of a drafter: guesses, and nothing that could change a token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from zllm_ref.runtime.state import SessionState, StateTensor


class Drafter(Protocol):
    """Guesses the next ids of one sequence. Wrong, absent or corrupted, it costs time and changes no token.

    follow ─▶ propose, chances ─▶ [verified] ─▶ judge, follow ─▶ propose …
    """

    def follow(self, start: int, hidden: Tensor, next_ids: Sequence[int]) -> None:
        """The state holds further rows, from position `start` on: `hidden` [n, width], and the id that came after each.

        `hidden` are the model's final rows; where the factory names `feature_layers`, their rows side by side instead.
        """

    def propose(self, limit: int) -> list[int]:
        """At most `limit` ids that may follow the newest one; empty: no guess, and the round costs what it did before."""

    def chances(self) -> Sequence[float]:
        """How likely each guess of the last proposal is right, given that those before it are; empty: it cannot tell."""

    def judge(self, proposed: int, accepted: int) -> None:
        """How many of the last proposal were verified, and how many of them were what the model said."""


class DrafterFactory(Protocol):
    """Makes the drafters of one loop, one for each sequence, and says what they cost."""

    name: str
    most_length: int
    """Guesses of one proposal at most."""
    guesses_at_once: bool
    """True: a proposal costs the same at any length; False: each guess costs a pass."""
    feature_layers: tuple[int, ...]
    """Layers whose rows `follow` reads; empty: the final rows."""
    state_tensors: tuple[StateTensor, ...]
    """Advisory tensors that ride along in the session's state: forked, saved and restored with it."""
    digest: str
    """Names what `state_tensors` hold: another digest, other bytes. Empty where there are none."""

    def session_bytes(self, num_tokens: int) -> int:
        """Bytes that a drafter holds outside the session's state, for a sequence of so many tokens."""

    def begin(self, state: SessionState, ids: Sequence[int]) -> Drafter:
        """A drafter for the sequence in `state`; `ids`: all that it has so far, of which `follow` will tell the rows."""
