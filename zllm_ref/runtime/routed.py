"""A feed-forward of experts behind a sigmoid router, as DeepSeek V3 and its descendants have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from zllm_ref.runtime.experts import Experts
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.parameters import Parameters
from zllm_ref.runtime.router import Router


@dataclass(frozen=True)
class RoutedShape:
    """How many experts there are, how many a row takes, and how it chooses them."""

    num_experts: int
    experts_per_token: int
    groups: int
    kept_groups: int
    normalise_weights: bool
    scale: float

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> RoutedShape:
        """From the names of a Hugging Face config.json."""
        return cls(
            num_experts=config["n_routed_experts"],
            experts_per_token=config["num_experts_per_tok"],
            groups=config["n_group"],
            kept_groups=config["topk_group"],
            normalise_weights=config["norm_topk_prob"],
            scale=config["routed_scaling_factor"],
        )


@dataclass(frozen=True)
class RoutedFeedForward:
    """A router and its experts."""

    router: Router
    experts: Experts

    @classmethod
    def take(cls, parameters: Parameters, shape: RoutedShape) -> RoutedFeedForward:
        weight, bias = parameters.exact("gate.weight"), parameters.exact("gate.e_score_correction_bias")
        chosen = (shape.experts_per_token, shape.groups, shape.kept_groups, shape.normalise_weights, shape.scale)
        return cls(Router(weight, bias, *chosen), Experts.take(parameters, shape.num_experts))

    def apply(self, rows: Tensor, num_rows: int, numerics: Numerics) -> Tensor:
        """rows [padded rows, hidden], of which the first `num_rows` are real → [padded rows, hidden]."""
        return self.experts.apply(rows, self.router.route(rows[:num_rows], numerics), numerics)
