"""What each architecture declares about its weights: the names and shapes of its parameters, and what it cannot compute.

One row per architecture. A loader checks a file against its row before anything is made; the seeded models are drawn from
the same rows. The names are those of Hugging Face, so that a parity test compares like with like.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from zllm_ref.runtime.weights.checkpoint import CheckpointError, Config

Shapes = dict[str, tuple[int, ...]]

MAX_LAYERS = 1024
"""Bounds the work that a damaged config can cause before the shapes are compared."""


@dataclass(frozen=True)
class Architecture:
    """One row: how to read a config and which parameters follow from it."""

    name: str
    normalise: Callable[[str, Mapping[str, Any]], dict[str, Any]]
    """`(where, config.json as found) → config with every default written out`. Raises on what the model cannot compute."""
    parameter_shapes: Callable[[Config], Shapes]


def find_architecture(where: str, name: str) -> Architecture:
    """The row of `name`. Raises `CheckpointError` that lists the rows."""
    if name not in ARCHITECTURES:
        raise CheckpointError(where, f"architecture {name!r}", ", ".join(sorted(ARCHITECTURES)))
    return ARCHITECTURES[name]


def normalise_dense(where: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """A dense transformer's config with defaults filled in: `head_dim`, `num_key_value_heads`, `rope_theta`, `rope_scaling`."""
    result = dict(config)
    for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"):
        result[key] = _positive(where, result, key)
    heads = result["num_attention_heads"]
    result["num_key_value_heads"] = _positive(
        where, {"num_key_value_heads": heads} | _without_none(result), "num_key_value_heads"
    )
    if result.get("head_dim") is None and result["hidden_size"] % heads:
        raise CheckpointError(
            f"{where}: hidden_size", str(result["hidden_size"]), f"a multiple of the {heads} heads, or a head_dim"
        )
    result["head_dim"] = _positive(where, {"head_dim": result["hidden_size"] // heads} | _without_none(result), "head_dim")
    if heads % result["num_key_value_heads"]:
        got = f"{result['num_key_value_heads']} for {heads} heads"
        raise CheckpointError(f"{where}: num_key_value_heads", got, "a divisor of num_attention_heads")
    if result["num_hidden_layers"] > MAX_LAYERS:
        raise CheckpointError(f"{where}: num_hidden_layers", str(result["num_hidden_layers"]), f"at most {MAX_LAYERS}")
    result["rms_norm_eps"] = _positive_number(where, {"rms_norm_eps": 1e-6} | _without_none(result), "rms_norm_eps")
    result["max_position_embeddings"] = _positive(
        where, {"max_position_embeddings": 2048} | _without_none(result), "max_position_embeddings"
    )
    result["tie_word_embeddings"] = bool(result.get("tie_word_embeddings", False))
    result["rope_theta"], result["rope_scaling"] = _rope(where, result)
    result.pop("rope_parameters", None)
    _refuse(where, result, "hidden_act", "silu")
    _refuse(where, result, "attention_bias", False)
    _refuse(where, result, "mlp_bias", False)
    _refuse(where, result, "quantization_config", None)
    _refuse(where, result, "use_sliding_window", False)
    return result


def llama_shapes(config: Config) -> Shapes:
    """Llama: two norms, four attention matrices and three feed-forward matrices a layer."""
    hidden, intermediate, head_dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    query, key_value = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    shapes: Shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        shapes |= {
            f"{prefix}.input_layernorm.weight": (hidden,),
            f"{prefix}.self_attn.q_proj.weight": (query, hidden),
            f"{prefix}.self_attn.k_proj.weight": (key_value, hidden),
            f"{prefix}.self_attn.v_proj.weight": (key_value, hidden),
            f"{prefix}.self_attn.o_proj.weight": (hidden, query),
            f"{prefix}.post_attention_layernorm.weight": (hidden,),
            f"{prefix}.mlp.gate_proj.weight": (intermediate, hidden),
            f"{prefix}.mlp.up_proj.weight": (intermediate, hidden),
            f"{prefix}.mlp.down_proj.weight": (hidden, intermediate),
        }
    shapes["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    return shapes


ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture("llama", normalise_dense, llama_shapes),
}


def _without_none(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if value is not None}


def _positive(where: str, config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1 << 32:
        raise CheckpointError(f"{where}: {key}", repr(value), "an integer of at least 1")
    return value


def _refuse(where: str, config: Mapping[str, Any], key: str, allowed: object) -> None:
    """What the model would compute differently is refused, never ignored."""
    if config.get(key) not in (None, allowed):
        raise CheckpointError(f"{where}: {key}", repr(config[key]), repr(allowed))


def _positive_number(where: str, config: Mapping[str, Any], key: str) -> float:
    value = config.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise CheckpointError(f"{where}: {key}", repr(value), "a positive finite number")
    return float(value)


def _rope(where: str, config: Mapping[str, Any]) -> tuple[float, dict[str, Any] | None]:
    """`rope_theta` and `rope_scaling` (None: plain) from either spelling: top level, or one `rope_parameters` object."""
    found = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(found, Mapping):
        raise CheckpointError(f"{where}: rope_scaling", repr(found), "an object or null")
    parameters = dict(found)
    theta = _positive_number(where, {"rope_theta": 10000.0} | _without_none(config) | _without_none(parameters), "rope_theta")
    parameters.pop("rope_theta", None)
    old_spelling = parameters.pop("type", None)
    kind = parameters.get("rope_type", old_spelling)
    if kind in (None, "default"):
        return theta, None
    return theta, parameters | {"rope_type": kind}
