"""Every reduction of the runtime, and its contract: a row's result depends on that row's inputs alone.

Not on how many rows run beside it, not on where a prompt was cut into chunks, not on the path by which its keys came.
Stock kernels pick their algorithm by shape, so the contract is kept by shapes that never vary where it matters:

    linear      rows padded to `row_tile`: oneDNN bf16 takes another path for 1 row, MKL fp32 for fewer than 4 rows a thread
    attention   query rows padded to `QUERY_TILE`, keys in tiles of `KEY_TILE` from absolute position 0, the last one
                cut at `KEY_STEPS`; what lies beyond a row's own position is masked, and a masked tile adds exactly nothing
    grouped     one product a group of columns, as a batch of products with the step's padded rows
    float32     router logits, indexer scores: products that stay float32 in any model pad to `FLOAT32_ROW_TILE` by themselves
    elementwise exponentials and sigmoids of odd sizes go through `whole_vectors`
    rms_norm    one row, one reduction over a width that the model fixes
    order       experts, heads, slots: always summed in the same order, by halving (`fold_sum`) or one after the other
    choice      the k largest of a row with ties broken by index: never by whatever order a selection algorithm meets them in

`invariant=False` switches all of that off: the control that shows that the tests can see a difference. Which shapes are
identical was measured (docs/decisions/0002); `python -m zllm_ref doctor` proves it again for the loaded model, here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

KEY_TILE = 512
"""Keys in one tile of the fused CPU attention kernel: its own split, so that no tile is ever cut short."""
KEY_STEPS = (64, 128, 192, 384, KEY_TILE)
"""Lengths to which the last tile may be cut. The kernel sums a tile in pieces of 192, 192 and 128 keys; at these lengths the
pieces stay what they are, and what lies beyond adds exactly nothing. At 256, say, it would cut 128 and 128: other bits."""
QUERY_TILE = 4
"""Query rows are padded to a multiple of this; fewer take the kernel's matrix × vector path."""
FLOAT32_ROW_TILE = 16
"""Rows of a product that stays float32 are padded to a multiple of this."""
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

    def layer_norm(self, rows: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
        """Mean and variance norm over the last dimension."""
        return F.layer_norm(rows, (rows.shape[-1],), weight, bias, epsilon)

    def float32_linear(self, rows: Tensor, weight: Tensor) -> Tensor:
        """rows [n, k] of any dtype × float32 weight [m, k]ᵀ → float32 [n, m]. Pads and cuts by itself."""
        wide = rows.float()
        if not self.invariant:
            return F.linear(wide, weight)
        count = rows.shape[0]
        padded = round_up(count, max(FLOAT32_ROW_TILE, 4 * self.num_threads))
        return F.linear(F.pad(wide, (0, 0, 0, padded - count)), weight)[:count]

    def grouped_linear(self, rows: Tensor, weight: Tensor) -> Tensor:
        """rows [n, g, k] × weight [g, m, k]ᵀ → [n, g, m]: each group of a row by its own matrix. Rows are padded already."""
        if self.invariant and rows.shape[0] != self.padded_rows(rows.shape[0]):
            raise ValueError(f"grouped_linear: got {rows.shape[0]} rows, allowed {self.padded_rows(rows.shape[0])} (pad_rows)")
        return torch.bmm(rows.transpose(0, 1), weight.transpose(1, 2)).transpose(0, 1)

    def sum(self, values: Tensor, dim: int) -> Tensor:
        """The sum over `dim`, in the order of `fold_sum`."""
        return fold_sum(values, dim) if self.invariant else values.sum(dim)

    def silu_gate(self, gate: Tensor, up: Tensor) -> Tensor:
        """silu(gate) × up, elementwise. Widths are multiples of 64, so that no element falls into a scalar tail."""
        return F.silu(gate) * up

    def key_length(self, num_keys: int) -> int:
        """How many keys attention reads for `num_keys` of them: whole tiles, the last one at a length that changes no bit."""
        if not self.invariant:
            return num_keys
        tiles, rest = divmod(num_keys, KEY_TILE)
        return tiles * KEY_TILE + (next(step for step in KEY_STEPS if step >= rest) if rest else 0)

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
    mask = mask.expand(1, 1, queries.shape[2], -1)
    running = RunningAttention(queries, values.shape[-1], scale)
    for start in range(0, keys.shape[2], KEY_TILE):
        end = min(start + KEY_TILE, keys.shape[2])
        running.add(keys[:, :, start:end], values[:, :, start:end], mask[..., start:end])
    return running.result()


class RunningAttention:
    """Softmax attention that sees its keys tile by tile: running maximum, running sum, in float32.

    A tile that is masked for a row adds exactly nothing to that row, wherever it stands, so rows may share tiles of which
    each sees only some. Tiles of one place must always have the same width: the sum over a tile's keys is one product.
    """

    def __init__(self, queries: Tensor, value_dim: int, scale: float, sinks: Tensor | None = None) -> None:
        """`queries` [..., rows, dim]; `sinks` [..., rows, 1]: a logit of each row that takes weight and gives no value."""
        self._queries = queries
        self._scale = scale
        shape = queries.shape[:-1]
        if sinks is None:
            self._best = queries.new_full((*shape, 1), _NEGATIVE_INFINITY, dtype=torch.float32)
            self._total = torch.zeros_like(self._best)
        else:
            self._best = sinks.float()
            self._total = torch.ones_like(self._best)
        self._sum = queries.new_zeros((*shape, value_dim), dtype=torch.float32)

    def add(self, keys: Tensor, values: Tensor, mask: Tensor) -> None:
        """keys [..., tile, dim] · values [..., tile, value_dim] · mask [..., rows, tile], 0 or -inf."""
        scores = torch.matmul(self._queries, keys.transpose(-1, -2)).float() * self._scale + mask.float()
        best = torch.maximum(self._best, scores.amax(-1, keepdim=True))
        safe = torch.where(best == _NEGATIVE_INFINITY, torch.zeros_like(best), best)
        weights = torch.exp(scores - safe)
        fade = whole_vectors(torch.exp, self._best - safe)
        self._total = self._total * fade + fold_sum(weights, -1).unsqueeze(-1)
        self._sum = self._sum * fade + torch.matmul(weights.to(values.dtype), values).float()
        self._best = best

    def result(self) -> Tensor:
        """[..., rows, value_dim] in the queries' dtype; zeros for a row that saw nothing."""
        return (self._sum / self._total.clamp_min(torch.finfo(torch.float32).tiny)).to(self._queries.dtype)


def fold_sum(values: Tensor, dim: int) -> Tensor:
    """The sum over `dim` by halving: additions of whole tensors alone, so the order is the same for any shape around it."""
    while values.shape[dim] > 1:
        size = values.shape[dim]
        half = (size + 1) // 2
        upper = values.narrow(dim, half, size - half)
        if size % 2:  # the middle one has no partner
            whole = values.narrow(dim, 0, half - 1) + upper
            values = torch.cat((whole, values.narrow(dim, half - 1, 1)), dim)
        else:
            values = values.narrow(dim, 0, half) + upper
    return values.squeeze(dim)


def fold_softmax(values: Tensor, dim: int) -> Tensor:
    """Softmax over `dim` in float32, its sum by `fold_sum`. -inf has weight 0; one finite value at least."""
    values = values.float()
    weights = whole_vectors(torch.exp, values - values.amax(dim, keepdim=True))
    return weights / fold_sum(weights, dim).unsqueeze(dim)


def whole_vectors(function: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    """`function`, elementwise, with every element inside a whole vector register: the last few of a tensor whose size is no
    multiple of 64 would otherwise take a scalar routine, whose sigmoid or exponential has other last bits.
    """
    missing = -values.numel() % 64
    flat = values.reshape(-1)
    return function(F.pad(flat, (0, missing)))[: values.numel()].view(values.shape)


def top_k_mask(scores: Tensor, k: int) -> Tensor:
    """Booleans [..., n]: the `k` largest of each row; of equal scores the smaller index is taken first. All, where n ≤ k."""
    if scores.shape[-1] <= k:
        return torch.ones_like(scores, dtype=torch.bool)
    threshold = scores.topk(k, -1).values[..., -1:]  # the k-th largest value: the same whatever order ties are met in
    above = scores > threshold
    ties = scores == threshold
    room = k - above.sum(-1, keepdim=True)
    return above | (ties & (ties.cumsum(-1) <= room))


def top_k_indices(scores: Tensor, k: int) -> Tensor:
    """[..., k] int64: indices of the `k` largest of each row, rising; of equal scores the smaller index is taken first."""
    chosen = top_k_mask(scores, k)
    return chosen.nonzero()[:, -1].view(*scores.shape[:-1], k)


def causal_mask(positions: Tensor, key_length: int, dtype: torch.dtype) -> Tensor:
    """[1, 1, rows, key_length]: 0 where key index ≤ the row's position, -inf beyond."""
    keys = torch.arange(key_length, device=positions.device)
    mask = torch.zeros((positions.shape[0], key_length), dtype=dtype, device=positions.device)
    return mask.masked_fill_(keys[None, :] > positions[:, None], _NEGATIVE_INFINITY)[None, None]


def round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
