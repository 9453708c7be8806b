"""Routed experts: the rows of one expert gathered, padded, run as one feed-forward, and added back in the order of experts.

rows        r0 r1 r2 r3             routing       e1: r0 r2 (+ padding)   e4: r0 r1 r3 (+ padding)
result[r0]  0 + w·e1(r0) + w·e4(r0)               always by rising expert number, in float32

A row's sum has one order whoever shares its experts, and no group is ever a single row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from zllm_ref.runtime.feed_forward import FeedForward
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.parameters import Parameters
from zllm_ref.runtime.router import Routing


@dataclass(frozen=True)
class Experts:
    """The routed experts of a layer, and the one that serves every row."""

    routed: tuple[FeedForward, ...]
    shared: FeedForward

    @classmethod
    def take(
        cls, parameters: Parameters, count: int, limit: float | None = None, names: str = "gate_proj up_proj down_proj"
    ) -> Experts:
        routed = tuple(FeedForward.take(parameters.below(f"experts.{number}."), limit, names) for number in range(count))
        return cls(routed, FeedForward.take(parameters.below("shared_experts."), limit, names))

    def apply(self, rows: Tensor, routing: Routing, numerics: Numerics) -> Tensor:
        """rows [padded rows, hidden] → [padded rows, hidden]. `routing` speaks of the first rows; padding gets no expert."""
        sums = torch.zeros(rows.shape, dtype=torch.float32, device=rows.device)
        for number, (members, places) in enumerate(_groups(routing.experts, len(self.routed))):
            if not len(members):
                continue
            output = self.routed[number].apply(numerics.pad_rows(rows[members]), numerics)[: len(members)]
            weighted = output.float() * routing.weights[members, places].unsqueeze(-1)
            sums.index_add_(0, members, weighted)  # every row once: an addition a row, no order to choose
        return sums.to(rows.dtype) + self.shared.apply(rows, numerics)


def _groups(experts: Tensor, count: int) -> Sequence[tuple[Tensor, Tensor]]:
    """For each expert the rows that chose it, and at which place of their choice."""
    order = experts.flatten().sort(stable=True).indices
    sizes = torch.bincount(experts.flatten(), minlength=count).tolist()
    rows = torch.split(torch.div(order, experts.shape[1], rounding_mode="floor"), sizes)
    places = torch.split(order.remainder(experts.shape[1]), sizes)
    return list(zip(rows, places, strict=True))
