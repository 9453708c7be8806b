"""GLM-4.5 and 4.6: grouped-query attention with biases, rotation of half a head, experts, layers for further tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zllm_ref.runtime.weights.checkpoint import Config, Shapes
from zllm_ref.runtime.weights.config_check import count
from zllm_ref.runtime.weights.declared.dense import attention_shapes, ending_shapes, feed_forward_shapes, normalise_heads
from zllm_ref.runtime.weights.declared.experts import draft_layer_shapes, expert_shapes, is_routed, normalise_experts

_DEFAULTS: Mapping[str, Any] = {
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "num_experts_per_tok": 8,
    "routed_scaling_factor": 1.0,
    "rms_norm_eps": 1e-5,
    "num_nextn_predict_layers": 0,
}


def normalise(where: str, config: Mapping[str, Any]) -> dict[str, Any]:
    rope = dict(config.get("rope_parameters") or {})
    partial = rope.pop("partial_rotary_factor", None) or config.get("partial_rotary_factor") or 0.5
    result = normalise_experts(where, normalise_heads(where, {**config, "rope_parameters": rope or None}), _DEFAULTS)
    result["partial_rotary_factor"] = float(partial)
    result["attention_bias"] = bool(result.get("attention_bias", False))
    result["use_qk_norm"] = bool(result.get("use_qk_norm", False))
    result["rope_scaling"] = result.get("rope_scaling")
    result["num_nextn_predict_layers"] = count(where, result, "num_nextn_predict_layers")
    return result


def parameter_shapes(config: Config) -> Shapes:
    shapes: Shapes = {"model.embed_tokens.weight": (config["vocab_size"], config["hidden_size"])}
    for layer in range(config["num_hidden_layers"]):
        shapes |= _block_shapes(config, layer)
    return shapes | ending_shapes(config)


def draft_shapes(config: Config) -> Shapes:
    shapes: Shapes = {}
    for layer in range(config["num_hidden_layers"], config["num_hidden_layers"] + config["num_nextn_predict_layers"]):
        shapes |= draft_layer_shapes(config, layer, _block_shapes(config, layer))
    return shapes


def _block_shapes(config: Config, layer: int) -> Shapes:
    hidden, prefix = config["hidden_size"], f"model.layers.{layer}"
    shapes: Shapes = {
        f"{prefix}.input_layernorm.weight": (hidden,),
        f"{prefix}.post_attention_layernorm.weight": (hidden,),
    }
    attention = attention_shapes(config, f"{prefix}.self_attn")
    shapes |= attention
    if config["attention_bias"]:
        for part in ("q", "k", "v"):
            name = f"{prefix}.self_attn.{part}_proj"
            shapes[f"{name}.bias"] = attention[f"{name}.weight"][:1]
    if config["use_qk_norm"]:
        for norm in ("q_norm", "k_norm"):
            shapes[f"{prefix}.self_attn.{norm}.weight"] = (config["head_dim"],)
    if is_routed(config, layer):
        return shapes | expert_shapes(config, f"{prefix}.mlp")
    return shapes | feed_forward_shapes(hidden, config["intermediate_size"], f"{prefix}.mlp")
