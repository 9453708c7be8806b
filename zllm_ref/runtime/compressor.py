"""Windows of tokens pooled into one row each: the compressed history of DeepSeek V4.

    tokens       0 1 2 3 | 4 5 6 7 | 8 9          ratio 4
    rows         row 0     row 1     (open)       row w is written when its last token is there
    row w        Σ_slots softmax(gate + bias) ⊙ kv, then norm, then rotation at position ratio·w

With two series, a token gives its first half to the window after its own and its second half to its own, so a row pools
2 × ratio slots. What is still needed of the tokens lies in a ring of `series × ratio` slots, a fixed state tensor: the open
window and, with two series, the one before it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from zllm_ref.runtime.numerics import Numerics, fold_softmax, fold_sum
from zllm_ref.runtime.parameters import Parameters
from zllm_ref.runtime.rope import RopeTable, rotate_pairs


@dataclass(frozen=True)
class CompressorShape:
    """What all layers with the same compressor share. Rows go to state tensor `rows`, the ring is state tensor `pending`."""

    rows: str
    pending: str
    ratio: int
    series: int
    dim: int
    rotated_dim: int
    rms_norm_eps: float

    @property
    def slots(self) -> int:
        return self.series * self.ratio

    @property
    def pending_shape(self) -> tuple[int, ...]:
        """[slots, 2 (kv and gate), series × dim]"""
        return (self.slots, 2, self.series * self.dim)


@dataclass(frozen=True)
class Compressor:
    """A layer's own part: `bias` [ratio, series × dim] float32 by place in the window, `norm` [dim] float32."""

    shape: CompressorShape
    bias: Tensor
    norm: Tensor

    @classmethod
    def take(cls, parameters: Parameters, shape: CompressorShape) -> Compressor:
        return cls(shape, parameters.exact("ape"), parameters.exact("norm.weight"))

    def extend(self, pending: Tensor, rows: Tensor, start: int, new: Tensor, rope: RopeTable, numerics: Numerics) -> None:
        """Takes in the projections `new` [n, 2, series × dim] of the tokens from `start` on; writes the rows they close.

        `pending` [slots, 2, series × dim] and `rows` [rows, dim] are the layer's parts of the state.
        """
        shape = self.shape
        end = start + new.shape[0]
        first, last = start // shape.ratio, end // shape.ratio  # the windows that close now
        if last > first:
            base = max(0, (first + 1 - shape.series) * shape.ratio)
            earlier = pending[torch.arange(base, start, device=new.device) % shape.slots]
            known = torch.cat((earlier, new))[: last * shape.ratio - base]
            rows[first:last] = self._pool(known.view(-1, shape.ratio, *known.shape[1:]), last - first, first, rope, numerics)
        kept = torch.arange(max(start, end - shape.slots), end, device=new.device)
        pending[kept % shape.slots] = new[kept - start]

    def _pool(self, windows: Tensor, count: int, first: int, rope: RopeTable, numerics: Numerics) -> Tensor:
        """The last `count` of `windows` [windows, ratio, 2, series × dim] → rows [count, dim] from row `first` on."""
        shape, dim = self.shape, self.shape.dim
        own = windows[-count:]
        values, gates = own[:, :, 0].float(), own[:, :, 1].float() + self.bias  # [count, ratio, series × dim]
        if shape.series == 2:
            before = windows[:-1] if windows.shape[0] > count else windows[: count - 1]
            before_values = before[:, :, 0, :dim].float()
            before_gates = before[:, :, 1, :dim].float() + self.bias[:, :dim]
            if first == 0:  # nothing lies before the first window: no weight there
                blank = values.new_zeros((1, shape.ratio, dim))
                before_values = torch.cat((blank, before_values))
                before_gates = torch.cat((blank + float("-inf"), before_gates))
            values = torch.cat((before_values, values[..., dim:]), 1)
            gates = torch.cat((before_gates, gates[..., dim:]), 1)
        pooled = fold_sum(values * fold_softmax(gates, 1), 1).to(windows.dtype)
        normed = numerics.rms_norm(pooled.float(), self.norm, shape.rms_norm_eps).to(windows.dtype)
        positions = torch.arange(first, first + count, device=normed.device) * shape.ratio
        return rotate_tail(normed.unsqueeze(1), shape.rotated_dim, *rope.at(positions)).squeeze(1)


def rotate_tail(heads: Tensor, rotated_dim: int, cos: Tensor, sin: Tensor) -> Tensor:
    """heads [n, heads, dim] with their last `rotated_dim` elements rotated in pairs."""
    return torch.cat((heads[..., :-rotated_dim], rotate_pairs(heads[..., -rotated_dim:], cos, sin)), -1)
