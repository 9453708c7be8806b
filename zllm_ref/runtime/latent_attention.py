"""Attention over latent rows: one row a token serves every head, as key whole and as value in its first part (MLA, absorbed).

    state row     [ latent .............. | rotated key ]          the norm and the rotation are done before it is stored
    query row     [ q · W_UK ............ | rotated q   ]          one a head
    value         [ latent .............. ]                        what comes out is multiplied by W_UV afterwards

One algebra on every path: prefill, append, decode and verification all multiply the query, never expand the keys, because
the two are equal on paper and not in bits. The heads of a row are query rows of one product with the shared keys.
"""

from __future__ import annotations

import torch
from torch import Tensor

from zllm_ref.runtime.lane_keys import LaneKeys
from zllm_ref.runtime.numerics import Numerics

MOST_QUERIES = 4096
"""Query rows (tokens × heads) of one product: bounds the mask, and changes no bit."""


class LatentAttention:
    """Attention over one growing state tensor `name`, [layers, tokens, row_dim]."""

    def __init__(self, name: str, heads: int, row_dim: int, value_dim: int, scale: float, numerics: Numerics) -> None:
        self.name = name
        self.heads, self.row_dim, self.value_dim = heads, row_dim, value_dim
        self.scale = scale
        self.numerics = numerics

    def attend(self, layer: int, lanes: list[LaneKeys], visible: list[Tensor], queries: Tensor, latents: Tensor) -> Tensor:
        """Stores the step's latent rows, returns each row's attention.

        queries [padded rows, heads, row_dim] · latents [padded rows, row_dim] · visible: for each lane [rows, key_length]
        bool → [padded rows, heads, value_dim].
        """
        result = queries.new_zeros((queries.shape[0], self.heads, self.value_dim))
        step = max(1, MOST_QUERIES // self.heads)
        for keys, seen in zip(lanes, visible, strict=True):
            tensor = keys.lane.state.tensors[self.name][layer]
            tensor[keys.tokens] = latents[keys.rows]
            stored = tensor[None, None, : keys.key_length]
            for first in range(0, keys.lane.num_rows, step):
                rows = slice(keys.rows.start + first, min(keys.rows.start + first + step, keys.rows.stop))
                result[rows] = self._attend_rows(queries[rows], stored, seen[first : first + step])
        return result

    def _attend_rows(self, queries: Tensor, stored: Tensor, seen: Tensor) -> Tensor:
        """queries [rows, heads, row_dim], stored [1, 1, keys, row_dim], seen [rows, keys] → [rows, heads, value_dim]."""
        num_queries = queries.shape[0] * self.heads
        padded = self.numerics.query_rows(num_queries)
        rows = queries.new_zeros((1, 1, padded, self.row_dim))
        rows[0, 0, :num_queries] = queries.reshape(num_queries, self.row_dim)
        output = self.numerics.attend(rows, stored, stored, self._mask(seen, padded), self.scale)
        return output[0, 0, :num_queries, : self.value_dim].view(-1, self.heads, self.value_dim)

    def _mask(self, seen: Tensor, padded: int) -> Tensor:
        """[1, 1, padded, key_length]: a row of `seen` for each head; padding rows see everything and are thrown away."""
        row_masks = torch.zeros(seen.shape, dtype=self.numerics.dtype, device=seen.device).masked_fill_(~seen, float("-inf"))
        mask = row_masks.new_zeros((padded, seen.shape[1]))
        mask[: seen.shape[0] * self.heads].view(seen.shape[0], self.heads, -1).copy_(row_masks.unsqueeze(1))
        return mask[None, None]
