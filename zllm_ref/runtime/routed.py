"""A feed-forward of experts behind a sigmoid router, as DeepSeek V3 and its descendants have it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from zllm_ref.runtime.experts import Experts
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.parameters import Parameters
from zllm_ref.runtime.router import Router


@dataclass(frozen=True)
class RoutedFeedForward:
    """A router and its experts."""

    router: Router
    experts: Experts

    @classmethod
    def take(
        cls,
        parameters: Parameters,
        *,
        num_experts: int,
        experts_per_token: int,
        groups: int,
        kept_groups: int,
        normalise: bool,
        scale: float,
    ) -> RoutedFeedForward:
        weight, bias = parameters.exact("gate.weight"), parameters.exact("gate.e_score_correction_bias")
        router = Router(weight, bias, experts_per_token, groups, kept_groups, normalise, scale)
        return cls(router, Experts.take(parameters, num_experts))

    def apply(self, rows: Tensor, num_rows: int, numerics: Numerics) -> Tensor:
        """rows [padded rows, hidden], of which the first `num_rows` are real → [padded rows, hidden]."""
        return self.experts.apply(rows, self.router.route(rows[:num_rows], numerics), numerics)
