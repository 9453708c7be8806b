"""What dense transformers share: Llama's config and its matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zllm_ref.runtime.weights.checkpoint import CheckpointError, Config, Shapes
from zllm_ref.runtime.weights.config_check import positive, positive_number, refuse, rope, without_none


def normalise_dense(where: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """A dense transformer's config with defaults filled in: `head_dim`, `num_key_value_heads`, `rope_theta`, `rope_scaling`."""
    result = normalise_heads(where, config)
    refuse(where, result, "attention_bias", False)
    refuse(where, result, "mlp_bias", False)
    refuse(where, result, "use_sliding_window", False)
    return result


def normalise_heads(where: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of it that grouped-query attention needs, for models that are not dense or have biases too."""
    result = dict(config)
    for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"):
        result[key] = positive(where, result, key)
    heads = result["num_attention_heads"]
    result["num_key_value_heads"] = positive(where, {"num_key_value_heads": heads} | without_none(result), "num_key_value_heads")
    if result.get("head_dim") is None and result["hidden_size"] % heads:
        raise CheckpointError(
            f"{where}: hidden_size", str(result["hidden_size"]), f"a multiple of the {heads} heads, or a head_dim"
        )
    result["head_dim"] = positive(where, {"head_dim": result["hidden_size"] // heads} | without_none(result), "head_dim")
    if heads % result["num_key_value_heads"]:
        got = f"{result['num_key_value_heads']} for {heads} heads"
        raise CheckpointError(f"{where}: num_key_value_heads", got, "a divisor of num_attention_heads")
    result["rms_norm_eps"] = positive_number(where, {"rms_norm_eps": 1e-6} | without_none(result), "rms_norm_eps")
    result["max_position_embeddings"] = positive(
        where, {"max_position_embeddings": 2048} | without_none(result), "max_position_embeddings"
    )
    result["tie_word_embeddings"] = bool(result.get("tie_word_embeddings", False))
    result["rope_theta"], result["rope_scaling"] = rope(where, result)
    result.pop("rope_parameters", None)
    refuse(where, result, "hidden_act", "silu")
    refuse(where, result, "quantization_config", None)
    return result


def dense_shapes(config: Config) -> Shapes:
    """Llama: two norms, four attention matrices and three feed-forward matrices a layer."""
    hidden = config["hidden_size"]
    shapes: Shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        shapes[f"{prefix}.input_layernorm.weight"] = (hidden,)
        shapes |= attention_shapes(config, f"{prefix}.self_attn")
        shapes[f"{prefix}.post_attention_layernorm.weight"] = (hidden,)
        shapes |= feed_forward_shapes(hidden, config["intermediate_size"], f"{prefix}.mlp")
    return shapes | ending_shapes(config)


def ending_shapes(config: Config) -> Shapes:
    """The last norm, and the head where it is a matrix of its own."""
    shapes: Shapes = {"model.norm.weight": (config["hidden_size"],)}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], config["hidden_size"])
    return shapes


def attention_shapes(config: Config, prefix: str) -> Shapes:
    hidden, head_dim = config["hidden_size"], config["head_dim"]
    query, key_value = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    return {
        f"{prefix}.q_proj.weight": (query, hidden),
        f"{prefix}.k_proj.weight": (key_value, hidden),
        f"{prefix}.v_proj.weight": (key_value, hidden),
        f"{prefix}.o_proj.weight": (hidden, query),
    }


def feed_forward_shapes(hidden: int, intermediate: int, prefix: str) -> Shapes:
    return {
        f"{prefix}.gate_proj.weight": (intermediate, hidden),
        f"{prefix}.up_proj.weight": (intermediate, hidden),
        f"{prefix}.down_proj.weight": (hidden, intermediate),
    }
