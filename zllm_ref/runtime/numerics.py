"""Every reduction of the runtime, and its contract: a row's result depends on that row's inputs alone.

Not on how many rows run beside it, not on where a prompt was cut into chunks, not on the path by which its keys came.
Stock kernels pick their algorithm by shape, so the contract is kept by shapes that never vary where it matters:

    linear      rows padded to `row_tile`: oneDNN bf16 takes another path for 1 row, MKL fp32 for fewer than 4 rows a thread
    attention   query rows padded to `QUERY_TILE`, keys always in whole tiles of `KEY_TILE` from absolute position 0;
                what lies beyond a row's own position is masked, and a masked tile adds exactly nothing
    rms_norm    one row, one reduction over a width that the model fixes
    order       experts, heads, blocks: always summed in the same order

`invariant=False` switches all of that off: the control that shows that the tests can see a difference. Which shapes are
identical was measured (docs/decisions/0002); `python -m zllm_ref doctor` proves it again for the loaded model, here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

KEY_TILE = 512
"""Keys in one tile of the fused CPU attention kernel: its own split, so that no tile is ever cut short."""
QUERY_TILE = 4
"""Query rows are padded to a multiple of this; fewer take the kernel's matrix × vector path."""
_NEGATIVE_INFINITY = float("-inf")


@dataclass(frozen=True)
class Numerics:
    """The numerics of one loaded model: its dtype, the thread count that it was proved for, invariance on or off."""

    dtype: torch.dtype
    num_threads: int = 1
    invariant: bool = True

    @property
    def row_tile(self) -> int:
        """Rows of a step are padded to a multiple of this (bf16: 2 rows are enough, at any count from there on)."""
        if not self.invariant:
            return 1
        if self.dtype == torch.float32:
            return max(8, 4 * self.num_threads)
        return 2

    def padded_rows(self, num_rows: int) -> int:
        """How many rows a step of `num_rows` runs with."""
        if self.dtype == torch.float32 or not self.invariant:
            return round_up(num_rows, self.row_tile)
        return max(num_rows, self.row_tile)

    def pad_rows(self, rows: Tensor) -> Tensor:
        """`rows` [n, ...] with zero rows added up to the padded count."""
        missing = self.padded_rows(rows.shape[0]) - rows.shape[0]
        return F.pad(rows, (0, 0) * (rows.dim() - 1) + (0, missing)) if missing else rows

    def linear(self, rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """rows [n, k] × weight [m, k]ᵀ → [n, m]. `rows` are padded already: a whole step is padded once, not each product."""
        if self.invariant and rows.shape[0] != self.padded_rows(rows.shape[0]):
            raise ValueError(f"linear: got {rows.shape[0]} rows, allowed {self.padded_rows(rows.shape[0])} (pad_rows)")
        return F.linear(rows, weight, bias)

    def rms_norm(self, rows: Tensor, weight: Tensor | None, epsilon: float) -> Tensor:
        """Root-mean-square norm over the last dimension."""
        return F.rms_norm(rows, (rows.shape[-1],), weight, epsilon)

    def silu_gate(self, gate: Tensor, up: Tensor) -> Tensor:
        """silu(gate) × up, elementwise. Widths are multiples of 64, so that no element falls into a scalar tail."""
        return F.silu(gate) * up

    def key_length(self, num_keys: int) -> int:
        """How many keys attention reads for `num_keys` of them: whole tiles."""
        return round_up(num_keys, KEY_TILE) if self.invariant else num_keys

    def query_rows(self, num_rows: int) -> int:
        """How many query rows attention runs with for `num_rows` of them."""
        return round_up(num_rows, QUERY_TILE) if self.invariant else num_rows

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
        """Softmax attention of padded queries over whole key tiles.

        queries [1, kv_heads, rows, dim] · keys, values [1, kv_heads, length, dim] · mask [1, 1, 1 | rows, length], 0 or -inf.
        """
        if queries.device.type == "cpu" or not self.invariant:
            return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=scale)
        return attend_by_tiles(queries, keys, values, mask, scale)


def attend_by_tiles(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The same attention in plain operations: key tiles in order, running maximum and sum in float32.

    For devices whose fused kernel chooses its splits by shape. Shapes as `Numerics.attend`.
    """
    rows = queries.shape[2]
    best = queries.new_full((*queries.shape[:3], 1), _NEGATIVE_INFINITY, dtype=torch.float32)
    total = torch.zeros_like(best)
    result = queries.new_zeros(queries.shape[:3] + values.shape[3:], dtype=torch.float32)
    for start in range(0, keys.shape[2], KEY_TILE):
        end = start + KEY_TILE
        scores = torch.matmul(queries, keys[:, :, start:end].transpose(2, 3)).float() * scale
        scores = scores + mask[..., start:end].expand(1, 1, rows, -1).float()
        new_best = torch.maximum(best, scores.amax(-1, keepdim=True))
        safe_best = torch.where(new_best == _NEGATIVE_INFINITY, torch.zeros_like(new_best), new_best)
        weights = torch.exp(scores - safe_best)
        fade = torch.exp(best - safe_best)
        total = total * fade + weights.sum(-1, keepdim=True)
        result = result * fade + torch.matmul(weights.to(values.dtype), values[:, :, start:end]).float()
        best = new_best
    return (result / total.clamp_min(torch.finfo(torch.float32).tiny)).to(queries.dtype)


def causal_mask(positions: Tensor, key_length: int, dtype: torch.dtype) -> Tensor:
    """[1, 1, rows, key_length]: 0 where key index ≤ the row's position, -inf beyond."""
    keys = torch.arange(key_length, device=positions.device)
    mask = torch.zeros((positions.shape[0], key_length), dtype=dtype, device=positions.device)
    return mask.masked_fill_(keys[None, :] > positions[:, None], _NEGATIVE_INFINITY)[None, None]


def round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
