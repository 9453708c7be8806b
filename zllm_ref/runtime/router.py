"""Which experts serve a row, and with what weight.

    scores  = sigmoid | sqrt(softplus) of a float32 product
    choice  = the best groups of experts, then the best experts in them, by score + correction bias; ties by expert number
    weights = the plain scores of the chosen, normalised, scaled

Float32 in any model: a score decides by order, and an order has no tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from zllm_ref.runtime.numerics import Numerics, top_k_indices, top_k_mask, whole_vectors


@dataclass(frozen=True)
class Routing:
    """experts [rows, k] int64, rising in a row; weights [rows, k] float32."""

    experts: Tensor
    weights: Tensor


@dataclass(frozen=True)
class Router:
    """`weight` [experts, hidden] float32, `bias` [experts] float32: added for the choice and left out of the weights."""

    weight: Tensor
    bias: Tensor
    experts_per_token: int
    groups: int
    kept_groups: int
    normalise: bool
    scale: float

    def route(self, rows: Tensor, numerics: Numerics) -> Routing:
        """rows [n, hidden] → the experts of each row."""
        scores = whole_vectors(torch.sigmoid, numerics.float32_linear(rows, self.weight))
        preference = scores + self.bias
        if self.groups > 1:
            grouped = preference.view(rows.shape[0], self.groups, -1)
            best_two = grouped.topk(2, -1).values  # values alone: the same for any order of ties
            kept = top_k_mask(best_two[..., 0] + best_two[..., 1], self.kept_groups)
            preference = grouped.masked_fill(~kept.unsqueeze(-1), float("-inf")).view(preference.shape)
        experts = top_k_indices(preference, self.experts_per_token)
        return weigh(scores, experts, self.normalise, self.scale)


@dataclass(frozen=True)
class SoftplusRouter:
    """DeepSeek V4's: sqrt(softplus) scores; the experts by score + `bias`, or, where there is a `table`, by token id."""

    weight: Tensor
    experts_per_token: int
    scale: float
    bias: Tensor | None = None
    table: Tensor | None = None
    """[vocab, k] int64: the experts of each token id."""

    def route(self, rows: Tensor, ids: Tensor, numerics: Numerics) -> Routing:
        """rows [n, hidden], ids [n] → the experts of each row."""
        scores = whole_vectors(_root_of_softplus, numerics.float32_linear(rows, self.weight))
        if self.table is not None:
            experts = self.table[ids].sort(-1).values
        else:
            assert self.bias is not None
            experts = top_k_indices(scores + self.bias, self.experts_per_token)
        return weigh(scores, experts, True, self.scale)


def weigh(scores: Tensor, experts: Tensor, normalise: bool, scale: float) -> Routing:
    """The weights of chosen experts: their scores, one after the other summed to one where asked, times `scale`."""
    weights = scores.gather(1, experts)
    if normalise:
        total = weights[:, 0]
        for place in range(1, weights.shape[1]):
            total = total + weights[:, place]
        weights = weights / (total + 1e-20).unsqueeze(-1)
    return Routing(experts, weights * scale)


def _root_of_softplus(values: Tensor) -> Tensor:
    return F.softplus(values).sqrt()
