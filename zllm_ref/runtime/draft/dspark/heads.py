"""From block rows to guesses: the target's own head over the ids that are ever guessed, a Markov head, a confidence head.

    base logits of all places at once                head rows × row(k)
    + what the guess before says    (Markov)         table × silu(P · embedding(guess k-1) + R · row(k))       a small product
    = logits of place k ──largest──▶ guess k
    chance of guess k               (confidence)     σ(scale(k) · w · [row(k); link(k); log probability of guess k] + shift(k))

A parallel pass cannot know which of two likely words came out at the place before; the Markov head, one guess after the other,
can. Its table is the target's head times a matrix of `rank` columns: made once at loading, and nothing of it is stored.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from zllm_ref.runtime.draft.dspark.shape import DsparkShape
from zllm_ref.runtime.numerics import Numerics


class DsparkHeads:
    """The heads of a drafter, over an embedding [vocabulary, width] and a head [vocabulary, width] that are the target's."""

    def __init__(
        self, shape: DsparkShape, tensors: Mapping[str, Tensor], numerics: Numerics, embedding: Tensor, head: Tensor
    ) -> None:
        self.shape = shape
        self.numerics = numerics
        self.drafted_ids = tensors["drafted_ids"]
        self._embedding = embedding
        self._head_rows = head[self.drafted_ids]  # [drafted, width]
        self._previous, self._row, self._up = tensors["markov.previous"], tensors["markov.row"], tensors["markov.up"]
        self._weight, self._bias = tensors["confidence.weight"], tensors["confidence.bias"]
        self._scale, self._shift = tensors["confidence.scale"], tensors["confidence.shift"]
        self._table: Tensor | None = None

    def embedded(self, ids: Tensor) -> Tensor:
        """The target's embedding of `ids` [n], normed, [n, width]."""
        return self.numerics.rms_norm(F.embedding(ids, self._embedding), None, self.shape.norm_epsilon)

    def base(self, rows: Tensor) -> Tensor:
        """Block rows [n, width] → float32 logits [n, drafted], whatever the guess before was."""
        return self._product(rows, self._head_rows).float()

    def link(self, previous: Tensor, rows: Tensor) -> Tensor:
        """What the guess before (`previous` [n, width], embedded) means to a block row [n, width] → [n, rank]."""
        return F.silu(self._product(previous, self._previous) + self._product(rows, self._row))

    def correction(self, link: Tensor) -> Tensor:
        """What is added to the base logits: [n, rank] → float32 [n, drafted]."""
        if self._table is None:
            self._table = self._product(self._head_rows, self._up.t().contiguous())
        return self._product(link, self._table).float()

    def logits(self, rows: Tensor, link: Tensor, columns: Tensor | None = None) -> Tensor:
        """Base and correction in one product, for training, where all links are known at once: [n, drafted], or `columns`."""
        head_rows = self._head_rows if columns is None else self._head_rows[columns]
        return self._product(rows + self._product(link, self._up), head_rows).float()

    def evidence(self, rows: Tensor, link: Tensor, log_probabilities: Tensor) -> Tensor:
        """How sure the confidence head is of guesses with these log probabilities [n], before calibration → float32 [n]."""
        parts = torch.cat((rows.float(), link.float(), log_probabilities[:, None]), -1)
        return self.numerics.float32_linear(parts, self._weight)[:, 0] + self._bias

    def chances(self, evidence: Tensor, places: Tensor) -> Tensor:
        """Calibrated: the chance that the guess at each place is right, given that those before it are."""
        return torch.sigmoid(evidence * self._scale[places] + self._shift[places])

    def _product(self, rows: Tensor, weight: Tensor) -> Tensor:
        return self.numerics.linear(self.numerics.pad_rows(rows), weight)[: rows.shape[0]]
