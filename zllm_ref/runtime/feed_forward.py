"""The gated feed-forward: down(silu(gate(x)) × up(x)), gate and up as one product."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.parameters import Parameters


@dataclass(frozen=True)
class FeedForward:
    """gate_up [2 × intermediate, hidden], down [hidden, intermediate]; `limit` clips gate from above and up on both sides."""

    gate_up: Tensor
    down: Tensor
    limit: float | None = None

    @classmethod
    def take(cls, parameters: Parameters, limit: float | None = None, names: str = "gate_proj up_proj down_proj") -> FeedForward:
        gate, up, down = (f"{name}.weight" for name in names.split())
        return cls(parameters.join(gate, up), parameters.take(down), limit)

    def apply(self, rows: Tensor, numerics: Numerics) -> Tensor:
        """rows [padded rows, hidden] → [padded rows, hidden]."""
        gate, up = numerics.linear(rows, self.gate_up).chunk(2, -1)
        if self.limit is not None:
            gate, up = gate.clamp(max=self.limit), up.clamp(min=-self.limit, max=self.limit)
        return numerics.linear(numerics.silu_gate(gate, up), self.down)
