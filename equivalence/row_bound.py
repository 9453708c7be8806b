"""A product as stock kernels may have it, but surely: one row alone is summed in another order than the same row in company.

Whether the kernels of a machine do that depends on its CPU and its libraries: with some of them nothing differs though nothing
is padded. What the comparisons here are able to see must not depend on that.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from zllm_ref.runtime.numerics import Numerics

_OUTPUTS = 8
"""So many outputs are summed otherwise: few, to cost little; the next layer carries them into all."""


def one_row_otherwise(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """rows [n, k] × weight [m, k]ᵀ → [n, m]. Of one row alone the first outputs are sums of two rounded halves."""
    result = F.linear(rows, weight, bias)
    if rows.shape[0] == 1:
        half, some = rows.shape[1] // 2, weight[:_OUTPUTS]
        halves = F.linear(rows[:, :half], some[:, :half]) + F.linear(rows[:, half:], some[:, half:])
        result[:, :_OUTPUTS] = halves if bias is None else halves + bias[:_OUTPUTS]
    return result


@dataclass(frozen=True)
class RowBoundNumerics(Numerics):
    """Nothing is padded, and rows are bound to their company."""

    invariant: bool = False

    def linear(self, rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return one_row_otherwise(rows, weight, bias)

    def float32_linear(self, rows: Tensor, weight: Tensor) -> Tensor:
        return one_row_otherwise(rows.float(), weight)
