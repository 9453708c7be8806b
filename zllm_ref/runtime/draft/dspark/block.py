"""The parallel backbone: one pass over [newest token, mask, mask, …] gives a row for every guess of the block.

    target rows of chosen layers ──norm, fuse──▶ context row c(i) ──▶ K, V of every layer      once for each token, kept
    newest token │ mask 1 │ mask 2 │ …   + the newest context row                              the block's own rows
        └───────────┴────────┴── attend to the newest context rows and to each other, in both directions
    row k ──▶ the guess k+1 tokens behind the newest context row

The same code trains and guesses: training runs it over many blocks at once, with an unpadded `Numerics`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from zllm_ref.runtime.draft.dspark.shape import DsparkShape
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.rope import RopeTable, rotate


@dataclass(frozen=True)
class BlockLayer:
    """Weights of one layer. The block and the context have matrices of their own for keys and values, and share the norm."""

    input_norm: Tensor
    query: Tensor
    keys_values: Tensor
    context_keys_values: Tensor
    query_norm: Tensor
    key_norm: Tensor
    out: Tensor
    post_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True)
class BlockContext:
    """What blocks of one sequence read: keys_values [layers, rows, 2, kv_heads, head_dim], and which rows each block sees,
    `visible` [blocks, rows].
    """

    keys_values: Tensor
    visible: Tensor


class DsparkBlock:
    """Context rows and block rows of a drafter. Stateless."""

    def __init__(
        self,
        shape: DsparkShape,
        tensors: Mapping[str, Tensor],
        numerics: Numerics,
        rope: RopeTable,
        thin: Callable[[Tensor], Tensor] = lambda rows: rows,
    ) -> None:
        """`rope` reaches `block` positions beyond the target's context. `thin`: what training drops, of features and branches."""
        self.shape = shape
        self.numerics = numerics
        self._rope = rope
        self._thin = thin
        self._fuse, self._fuse_norm = tensors["context.fuse"], tensors["context.norm"]
        self._newest, self._masks, self._norm = tensors["block.newest"], tensors["block.masks"], tensors["block.norm"]
        self._layers = [
            BlockLayer(**{name: tensors[f"layers.{index}.{name}"] for name in BlockLayer.__dataclass_fields__})
            for index in range(shape.layers)
        ]

    def context(self, features: Tensor) -> Tensor:
        """Target rows of the chosen layers, side by side, [n, layers × width] → context rows [n, context width]."""
        shape, numerics = self.shape, self.numerics
        rows = numerics.pad_rows(features)
        normed = numerics.rms_norm(rows.view(rows.shape[0], -1, shape.width), None, shape.norm_epsilon).flatten(-2)
        fused = numerics.linear(self._thin(normed), self._fuse)
        return numerics.rms_norm(fused, self._fuse_norm, shape.norm_epsilon)[: features.shape[0]]

    def context_keys_values(self, context: Tensor, positions: Tensor) -> Tensor:
        """Context rows [n, context width] at `positions` [n] → [layers, n, 2, kv_heads, head_dim], keys normed and rotated."""
        rows = self.numerics.pad_rows(context)
        cos, sin = self._rope.at(positions)
        made = []
        for layer in self._layers:
            product = self.numerics.linear(rows, layer.context_keys_values)[: context.shape[0]]
            made.append(self._keys_values(product, layer, cos, sin))
        return torch.stack(made)

    def rows(self, embedded: Tensor, newest: Tensor, starts: Tensor, contexts: Sequence[BlockContext]) -> Tensor:
        """One pass over blocks → [blocks × block, width], normed, ready for the target's head.

        embedded [blocks, width]: each block's newest token, normed · newest [blocks, context width]: the context row before
        it · starts [blocks]: its position · contexts: what the blocks of one sequence read, for one sequence after the other.
        """
        shape, numerics = self.shape, self.numerics
        count = embedded.shape[0]
        joined = numerics.linear(numerics.pad_rows(newest), self._newest)[:count]
        masks = self._masks.expand(count, -1, -1)
        x = (torch.cat((embedded[:, None], masks), 1) + joined[:, None]).flatten(0, 1)
        num_rows = x.shape[0]
        x = numerics.pad_rows(x)
        positions = (starts[:, None] + torch.arange(shape.block, device=starts.device)).flatten()
        cos, sin = self._rope.at(positions)
        sizes = [context.visible.shape[0] * shape.block for context in contexts]
        masks_of = [self._mask(context, x.dtype) for context in contexts]
        for index, layer in enumerate(self._layers):
            normed = numerics.rms_norm(x, layer.input_norm, shape.norm_epsilon)
            queries = numerics.linear(normed, layer.query)[:num_rows].view(num_rows, shape.heads, shape.head_dim)
            queries = rotate(numerics.rms_norm(queries, layer.query_norm, shape.norm_epsilon), cos, sin)
            own = self._keys_values(numerics.linear(normed, layer.keys_values)[:num_rows], layer, cos, sin)
            pieces = []
            for piece, own_piece, context, mask in zip(
                torch.split(queries, sizes), torch.split(own, sizes), contexts, masks_of, strict=True
            ):
                pieces.append(self._attend(piece, torch.cat((context.keys_values[index], own_piece)), mask))
            x = x + self._thin(numerics.linear(numerics.pad_rows(torch.cat(pieces)), layer.out))
            normed = numerics.rms_norm(x, layer.post_norm, shape.norm_epsilon)
            gate, up = numerics.linear(normed, layer.gate_up).chunk(2, -1)
            x = x + self._thin(numerics.linear(numerics.silu_gate(gate, up), layer.down))
        return numerics.rms_norm(x[:num_rows], self._norm, shape.norm_epsilon)

    def _keys_values(self, product: Tensor, layer: BlockLayer, cos: Tensor, sin: Tensor) -> Tensor:
        """[n, 2 × kv_heads × head_dim] → [n, 2, kv_heads, head_dim]."""
        shape = self.shape
        keys, values = product.view(-1, 2, shape.kv_heads, shape.head_dim).unbind(1)
        keys = rotate(self.numerics.rms_norm(keys, layer.key_norm, shape.norm_epsilon), cos, sin)
        return torch.stack((keys, values), 1)

    def _mask(self, context: BlockContext, dtype: torch.dtype) -> Tensor:
        """[1, 1, query rows, context rows + block rows]: 0 on the context rows that a block sees and on its own rows."""
        shape = self.shape
        visible = context.visible.repeat_interleave(shape.block, 0)
        blocks = torch.arange(visible.shape[0], device=visible.device) // shape.block
        seen = torch.cat((visible, blocks[:, None] == blocks[None, :]), 1).repeat_interleave(shape.heads // shape.kv_heads, 0)
        padding = self.numerics.query_rows(seen.shape[0]) - seen.shape[0]
        mask = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, float("-inf"))
        # padding rows see everything: their result is thrown away
        return F.pad(mask, (0, 0, 0, padding))[None, None]

    def _attend(self, queries: Tensor, keys_values: Tensor, mask: Tensor) -> Tensor:
        """queries [n, heads, dim] · keys_values [keys, 2, kv_heads, dim] → [n, heads × dim]."""
        shape = self.shape
        group, num_rows = shape.heads // shape.kv_heads, queries.shape[0]
        keys, values = keys_values.permute(1, 2, 0, 3)[:, None].unbind(0)  # [1, kv_heads, keys, dim]
        grouped = queries.view(num_rows, shape.kv_heads, group, shape.head_dim).transpose(0, 1).flatten(1, 2)[None]
        padded = F.pad(grouped, (0, 0, 0, mask.shape[2] - grouped.shape[2]))
        attended = self.numerics.attend(padded, keys, values, mask, shape.head_dim**-0.5)[0, :, : num_rows * group]
        heads = attended.view(shape.kv_heads, num_rows, group, shape.head_dim).transpose(0, 1)
        return heads.reshape(num_rows, shape.heads * shape.head_dim)
