"""DeepSeek V3.2: latent attention, an indexer that picks the keys, experts in groups, layers for further tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zllm_ref.runtime.weights.checkpoint import CheckpointError, Config, Shapes
from zllm_ref.runtime.weights.config_check import count, positive, refuse, rope
from zllm_ref.runtime.weights.declared.dense import ending_shapes, feed_forward_shapes
from zllm_ref.runtime.weights.declared.experts import draft_layer_shapes, expert_shapes, is_routed, normalise_experts

_DEFAULTS: Mapping[str, Any] = {
    "n_group": 8,
    "topk_group": 4,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "num_experts_per_tok": 8,
    "routed_scaling_factor": 2.5,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 163840,
    "num_nextn_predict_layers": 0,
}
_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "index_topk",
    "index_head_dim",
    "index_n_heads",
)


def normalise(where: str, config: Mapping[str, Any]) -> dict[str, Any]:
    result = normalise_experts(where, config, _DEFAULTS)
    for key in _SIZES:
        result[key] = positive(where, result, key)
    if result["qk_rope_head_dim"] > result["index_head_dim"] or result["qk_rope_head_dim"] % 2:
        got = f"{result['qk_rope_head_dim']} with index_head_dim {result['index_head_dim']}"
        raise CheckpointError(f"{where}: qk_rope_head_dim", got, "an even number, at most index_head_dim")
    dense = result["first_k_dense_replace"]
    kinds = ["sparse" if layer >= dense else "dense" for layer in range(result["num_hidden_layers"])]
    refuse(where, result, "mlp_layer_types", kinds)
    refuse(where, result, "layer_types", ["indexed_attention"] * result["num_hidden_layers"])
    refuse(where, result, "scoring_func", "sigmoid")
    refuse(where, result, "hidden_act", "silu")
    refuse(where, result, "attention_bias", False)
    refuse(where, result, "mlp_bias", False)
    refuse(where, result, "quantization_config", None)
    result["tie_word_embeddings"] = bool(result.get("tie_word_embeddings", False))
    result["num_nextn_predict_layers"] = count(where, result, "num_nextn_predict_layers")
    result["rope_theta"], result["rope_scaling"] = rope(where, result)
    result.pop("rope_parameters", None)
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
    shapes |= _attention_shapes(config, f"{prefix}.self_attn")
    if is_routed(config, layer):
        return shapes | expert_shapes(config, f"{prefix}.mlp")
    return shapes | feed_forward_shapes(hidden, config["intermediate_size"], f"{prefix}.mlp")


def _attention_shapes(config: Config, prefix: str) -> Shapes:
    hidden, heads, index_dim = config["hidden_size"], config["num_attention_heads"], config["index_head_dim"]
    query_rank, latent = config["q_lora_rank"], config["kv_lora_rank"]
    nope, rotated, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    return {
        f"{prefix}.q_a_proj.weight": (query_rank, hidden),
        f"{prefix}.q_a_layernorm.weight": (query_rank,),
        f"{prefix}.q_b_proj.weight": (heads * (nope + rotated), query_rank),
        f"{prefix}.kv_a_proj_with_mqa.weight": (latent + rotated, hidden),
        f"{prefix}.kv_a_layernorm.weight": (latent,),
        f"{prefix}.kv_b_proj.weight": (heads * (nope + value), latent),
        f"{prefix}.o_proj.weight": (hidden, heads * value),
        f"{prefix}.indexer.wq_b.weight": (config["index_n_heads"] * index_dim, query_rank),
        f"{prefix}.indexer.wk.weight": (index_dim, hidden),
        f"{prefix}.indexer.k_norm.weight": (index_dim,),
        f"{prefix}.indexer.k_norm.bias": (index_dim,),
        f"{prefix}.indexer.weights_proj.weight": (config["index_n_heads"], hidden),
    }
