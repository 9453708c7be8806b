"""The lightning indexer: a small score of every key for every row, and the choice of the keys that attention may see.

    score(row, key) = Σ_h weight(row, h) · relu( q(row, h) · k(key) · dim^-½ )          float32, heads summed by halving
    chosen          = the k best of the visible keys, of equal scores the older ones

The choice is a step function: one rounding apart and another key is seen. So the scores come from products of one shape
(all keys in whole tiles, rows in whole tiles), and equal scores are ordered by position.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from zllm_ref.runtime.numerics import KEY_TILE, Numerics, top_k_mask


@dataclass(frozen=True)
class Indexer:
    """Sizes of an indexer; its weights belong to the layer."""

    heads: int
    dim: int
    top_k: int
    key_tile: int = KEY_TILE

    def choose(self, queries: Tensor, weights: Tensor, keys: Tensor, visible: Tensor, numerics: Numerics) -> Tensor:
        """Which of the visible keys each row may attend to, bool [rows, num_keys].

        queries [rows, heads, dim] · weights [rows, heads] float32 · keys [num_keys, dim], whole tiles · visible [rows, num_keys].
        """
        scores = self.score(queries, weights, keys, numerics).masked_fill(~visible, float("-inf"))
        return top_k_mask(scores, self.top_k) & visible

    def score(self, queries: Tensor, weights: Tensor, keys: Tensor, numerics: Numerics) -> Tensor:
        """Float32 scores [rows, num_keys]."""
        rows = queries.shape[0]
        flat = queries.reshape(rows * self.heads, self.dim)
        tiles = []
        for start in range(0, keys.shape[0], self.key_tile):
            products = numerics.float32_linear(flat, keys[start : start + self.key_tile].float())
            positive = products.mul_(self.dim**-0.5).relu_().view(rows, self.heads, -1)
            tiles.append(numerics.sum(positive * weights.unsqueeze(-1), 1))
        return torch.cat(tiles, -1)
