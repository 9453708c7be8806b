"""The router and the experts as DeepSeek V3 and its descendants store them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zllm_ref.runtime.weights.checkpoint import CheckpointError, Config, Shapes
from zllm_ref.runtime.weights.config_check import count, positive, without_none
from zllm_ref.runtime.weights.declared.dense import feed_forward_shapes


def normalise_experts(where: str, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The expert part of a config: sizes, groups, scaling. Raises `CheckpointError` on groups that do not divide."""
    result = {**defaults, **without_none(config)}
    for key in ("moe_intermediate_size", "n_routed_experts", "n_group", "topk_group", "num_experts_per_tok"):
        result[key] = positive(where, result, key)
    result["n_shared_experts"] = positive(where, result, "n_shared_experts")
    result["first_k_dense_replace"] = count(where, result, "first_k_dense_replace")
    result["norm_topk_prob"] = bool(result.get("norm_topk_prob", True))
    result["routed_scaling_factor"] = float(result["routed_scaling_factor"])
    experts, groups = result["n_routed_experts"], result["n_group"]
    if experts % groups or experts // groups < 2:
        raise CheckpointError(f"{where}: n_group", f"{groups} for {experts} experts", "groups of two experts and more, all alike")
    if result["topk_group"] > groups or result["num_experts_per_tok"] > experts // groups * result["topk_group"]:
        got = f"{result['num_experts_per_tok']} of {result['topk_group']} groups"
        raise CheckpointError(f"{where}: num_experts_per_tok", got, "no more experts than the chosen groups have")
    return result


def expert_shapes(config: Config, prefix: str) -> Shapes:
    """One routed layer: router, its correction bias, every expert, the shared ones as one."""
    hidden, intermediate = config["hidden_size"], config["moe_intermediate_size"]
    shapes: Shapes = {
        f"{prefix}.gate.weight": (config["n_routed_experts"], hidden),
        f"{prefix}.gate.e_score_correction_bias": (config["n_routed_experts"],),
    }
    for expert in range(config["n_routed_experts"]):
        shapes |= feed_forward_shapes(hidden, intermediate, f"{prefix}.experts.{expert}")
    return shapes | feed_forward_shapes(hidden, intermediate * config["n_shared_experts"], f"{prefix}.shared_experts")


def is_routed(config: Config, layer: int) -> bool:
    """Whether the layer's feed-forward is experts; the first few are dense."""
    return layer >= int(config["first_k_dense_replace"])


def draft_layer_shapes(config: Config, layer: int, block: Shapes) -> Shapes:
    """A layer beyond the last that predicts one token further: two norms, the joining matrix, a whole block, its own norm."""
    hidden, prefix = config["hidden_size"], f"model.layers.{layer}"
    return {
        f"{prefix}.enorm.weight": (hidden,),
        f"{prefix}.hnorm.weight": (hidden,),
        f"{prefix}.eh_proj.weight": (hidden, 2 * hidden),
        **block,
        f"{prefix}.shared_head.norm.weight": (hidden,),
    }
