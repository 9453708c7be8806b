"""Drafts from the model's own layer for further tokens (MTP): it reads the final hidden row and the token after it.

    position        i            i+1          i+2
    hidden row      h(i)                                          of the model
    next token      t(i+1)       t(i+2)?      …                   known, then guessed
    layer           g(i) ──▶ t(i+2)?  g'(i+1) ──▶ t(i+3)?         g' reads g instead of h: a guess upon a guess

Its own K/V (or window) is advisory state: row i belongs to h(i) and t(i+1). Rows that were guessed are written again when
the truth is known; rows that a restored state lacks are zeros, which makes guesses worse and tokens no different.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from zllm_ref.runtime.model import Model
from zllm_ref.runtime.state import SessionState, StateTensor
from zllm_ref.runtime.step import LaneSlice, Step

MOST_LENGTH = 3
"""Guesses upon guesses: each later one is right less often, and each costs a pass of the layer and of the head."""


class DraftingModel(Model, Protocol):
    """A model whose layers for further tokens are loaded."""

    @property
    def num_draft_layers(self) -> int: ...

    def draft(self, depth: int, step: Step, hidden: Tensor) -> Tensor: ...

    def draft_logits(self, depth: int, hidden: Tensor) -> Tensor: ...


class MtpDrafter:
    """Guesses for one sequence, whose `state` it shares with the model: it writes the advisory tensors alone."""

    def __init__(self, model: DraftingModel, state: SessionState, num_token_ids: int, most_length: int = MOST_LENGTH) -> None:
        if not model.num_draft_layers:
            raise ValueError("mtp: got a model without layers for further tokens, allowed one that was built with drafting")
        self._model = model
        self._state = state
        self._num_token_ids = num_token_ids
        self._most_length = most_length
        self._hidden: Tensor | None = None
        """The layer's row behind the newest known token, [1, width]: what the first guess is read from."""
        self._position = 0

    def follow(self, start: int, hidden: Tensor, next_ids: Sequence[int]) -> None:
        rows = self._run(start, hidden, next_ids)
        self._hidden = rows[-1:]
        self._position = start + len(next_ids)

    def propose(self, limit: int) -> list[int]:
        if self._hidden is None:
            return []
        count = min(limit, self._most_length, self._state.capacity - self._position)
        kept = self._advisory_copy()
        guesses: list[int] = []
        hidden = self._hidden
        for further in range(count):
            logits = self._model.draft_logits(0, hidden)[0, : self._num_token_ids]
            guesses.append(int(logits.argmax()))
            if further + 1 < count:
                hidden = self._run(self._position + further, hidden, guesses[-1:])
        for name, tensor in kept.items():
            self._state.tensors[name].copy_(tensor)
        return guesses

    def chances(self) -> Sequence[float]:
        return ()

    def judge(self, proposed: int, accepted: int) -> None:
        """Nothing to do: it does not learn."""

    def _run(self, start: int, hidden: Tensor, next_ids: Sequence[int]) -> Tensor:
        """The layer over rows from position `start` on → its rows [n, width]."""
        model = self._model
        count = len(next_ids)
        padding = [0] * (model.numerics.padded_rows(count) - count)
        self._state.prepare(start + count)
        both = torch.tensor(
            [[*next_ids, *padding], [*range(start, start + count), *padding]], dtype=torch.int64, device=model.device
        )
        step = Step(both[0], both[1], (LaneSlice(self._state, start, count, 0),), count)
        return model.draft(0, step, model.numerics.pad_rows(hidden[:count]))[:count]

    def _advisory_copy(self) -> dict[str, Tensor]:
        """Copies of the advisory tensors that a guess would overwrite for good: a window, not rows that come again."""
        fixed = [tensor.name for tensor in self._state.declaration.fixed if tensor.advisory]
        return {name: self._state.tensors[name].clone() for name in fixed}


class MtpFactory:
    """Drafters from the layers of a model that was built with drafting; their rows are part of its declared state."""

    name = "mtp"
    guesses_at_once = False
    feature_layers: tuple[int, ...] = ()
    state_tensors: tuple[StateTensor, ...] = ()
    digest = ""

    def __init__(self, model: DraftingModel, num_token_ids: int, most_length: int = MOST_LENGTH) -> None:
        self.most_length = most_length
        self._model = model
        self._num_token_ids = num_token_ids

    def session_bytes(self, num_tokens: int) -> int:
        return 0

    def begin(self, state: SessionState, ids: Sequence[int]) -> MtpDrafter:
        return MtpDrafter(self._model, state, self._num_token_ids, self.most_length)
