"""Drafts from a smaller model of the same tokenizer, with a session of its own.

    truth     t0 t1 t2 t3 | t4                     ids that the sequence has
    session   t0 t1 t2 t3   g  g  g                fed greedily to guess, then returned to the mark behind t3

The session lags behind by the newest id, which is fed first when a guess is asked for. Where it lags further (a long prompt,
a restored state) it catches up in chunks, one at each proposal, so that no round waits long.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from zllm_ref.runtime.model import Model
from zllm_ref.runtime.state import SessionState, StateTensor
from zllm_ref.runtime.step import build_step, commit_step

MOST_LENGTH = 5
CATCH_UP_ROWS = 256
"""Rows that a proposal catches up at most; while there are more there is no guess."""


class SmallModelDrafter:
    """Guesses for one sequence by another model. `ids`: all that the sequence has so far."""

    def __init__(
        self, model: Model, ids: Sequence[int], capacity_tokens: int, num_token_ids: int, most_length: int = MOST_LENGTH
    ) -> None:
        self._model = model
        self._state = SessionState(model.state, min(capacity_tokens, model.context_length), model.device)
        self._unfed = list(ids)
        self._num_token_ids = num_token_ids
        self._most_length = most_length

    @property
    def nbytes(self) -> int:
        """Allocated bytes of its session."""
        return self._state.nbytes

    def follow(self, start: int, hidden: Tensor, next_ids: Sequence[int]) -> None:
        known = self._state.length + len(self._unfed) - (start + 1)
        self._unfed += next_ids[max(0, known) :]

    def propose(self, limit: int) -> list[int]:
        room = self._state.capacity - self._state.length - len(self._unfed)
        count = min(limit, self._most_length, room)
        if count < 1 or not self._unfed:
            return []
        *older, newest = self._unfed
        if older:
            self._feed(older[:CATCH_UP_ROWS])
            self._unfed = [*older[CATCH_UP_ROWS:], newest]
            if len(self._unfed) > 1:
                return []
        mark = self._state.mark()
        guesses = [self._feed([newest])]
        while len(guesses) < count:
            guesses.append(self._feed(guesses[-1:]))
        self._state.return_to(mark)
        return guesses

    def chances(self) -> Sequence[float]:
        return ()

    def judge(self, proposed: int, accepted: int) -> None:
        """Nothing to do: it does not learn."""

    def _feed(self, ids: list[int]) -> int:
        """Appends `ids` to the session. → the id with the largest logit behind them."""
        model = self._model
        step = build_step([(self._state, ids)], model.numerics, model.device)
        hidden = model.forward(step)
        commit_step(step)
        return int(model.logits(hidden[step.num_rows - 1 : step.num_rows])[0, : self._num_token_ids].argmax())


class SmallModelFactory:
    """Drafters from another model, whose vocabulary is the same."""

    name = "model"
    guesses_at_once = False
    feature_layers: tuple[int, ...] = ()
    state_tensors: tuple[StateTensor, ...] = ()
    digest = ""

    def __init__(self, model: Model, num_token_ids: int, most_length: int = MOST_LENGTH) -> None:
        self.most_length = most_length
        self._model = model
        self._num_token_ids = num_token_ids

    def session_bytes(self, num_tokens: int) -> int:
        return self._model.state.session_bytes(min(num_tokens, self._model.context_length))

    def begin(self, state: SessionState, ids: Sequence[int]) -> SmallModelDrafter:
        return SmallModelDrafter(self._model, ids, state.capacity, self._num_token_ids, self.most_length)
