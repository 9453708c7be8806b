"""DeepSeek V4: windows, two kinds of compressed history, hyper-connections, hash-routed experts.

The names are those of the published checkpoints (`layers.0.attn.wq_a.weight`); what `transformers` writes differs from them
in a prefix and in five names, see `rename`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zllm_ref.runtime.weights.checkpoint import CheckpointError, Config, Shapes
from zllm_ref.runtime.weights.config_check import count, positive, refuse, without_none

WINDOW, SPARSE, HEAVY = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
HASH, ROUTED = "hash_moe", "moe"
_KIND_OF_RATIO: Mapping[int, str] = {0: WINDOW, 4: SPARSE, 128: HEAVY}

_DEFAULTS: Mapping[str, Any] = {
    "n_shared_experts": 1,
    "num_experts_per_tok": 6,
    "routed_scaling_factor": 1.5,
    "scoring_func": "sqrtsoftplus",
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 1048576,
    "rope_theta": 10000.0,
    "compress_rope_theta": 160000.0,
    "sliding_window": 128,
    "swiglu_limit": 10.0,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "hc_eps": 1e-6,
    "num_hash_layers": 3,
    "num_nextn_predict_layers": 0,
}
_SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "head_dim",
    "q_lora_rank",
    "o_groups",
    "o_lora_rank",
    "index_n_heads",
    "index_head_dim",
    "index_topk",
    "sliding_window",
    "moe_intermediate_size",
    "n_routed_experts",
    "num_experts_per_tok",
    "hc_mult",
    "hc_sinkhorn_iters",
)
_RENAMED: Mapping[str, str] = {
    "embed_tokens.weight": "embed.weight",
    "lm_head.weight": "head.weight",
    "hc_head.hc_fn": "hc_head_fn",
    "hc_head.hc_base": "hc_head_base",
    "hc_head.hc_scale": "hc_head_scale",
}


def rename(name: str) -> str:
    """The published name of a tensor as `transformers` saves it."""
    name = name.removeprefix("model.")
    return _RENAMED.get(name, name)


def normalise(where: str, config: Mapping[str, Any]) -> dict[str, Any]:
    result = {**_DEFAULTS, **without_none(config)}
    for key in _SIZES:
        result[key] = positive(where, result, key)
    result["num_nextn_predict_layers"] = count(where, result, "num_nextn_predict_layers")
    layers = result["num_hidden_layers"]
    result["compress_rates"] = _compress_rates(where, result)
    result["layer_types"] = _layer_types(where, result, layers)
    hashed = min(layers, count(where, result, "num_hash_layers"))
    result["mlp_layer_types"] = _kinds(
        where, result, "mlp_layer_types", [HASH] * hashed + [ROUTED] * (layers - hashed), (HASH, ROUTED)
    )
    result["qk_rope_head_dim"] = _rotated_dim(where, result)
    result["rope_scaling"] = _rope_scaling(result)
    if result["num_attention_heads"] % result["o_groups"]:
        got = f"{result['o_groups']} for {result['num_attention_heads']} heads"
        raise CheckpointError(f"{where}: o_groups", got, "a divisor of num_attention_heads")
    refuse(where, result, "scoring_func", "sqrtsoftplus")
    refuse(where, result, "hidden_act", "silu")
    refuse(where, result, "n_shared_experts", 1)
    refuse(where, result, "num_key_value_heads", 1)
    refuse(where, result, "attention_bias", False)
    refuse(where, result, "mlp_bias", False)
    refuse(where, result, "quantization_config", None)
    refuse(where, result, "tie_word_embeddings", False)
    for key in ("rope_parameters", "compress_ratios", "compress_rate_csa", "compress_rate_hca"):
        result.pop(key, None)
    return result


def parameter_shapes(config: Config) -> Shapes:
    hidden, streams = config["hidden_size"], config["hc_mult"]
    shapes: Shapes = {"embed.weight": (config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        kind, routed_by = config["layer_types"][layer], config["mlp_layer_types"][layer]
        shapes |= _block_shapes(config, f"layers.{layer}", kind, routed_by)
    shapes |= {"norm.weight": (hidden,), "head.weight": (config["vocab_size"], hidden)}
    return shapes | _head_shapes(streams, hidden, "")


def draft_shapes(config: Config) -> Shapes:
    """`mtp.0` …: a window-only block over streams, the joining matrices, its own norm and head mixture."""
    hidden, streams = config["hidden_size"], config["hc_mult"]
    shapes: Shapes = {}
    for depth in range(config["num_nextn_predict_layers"]):
        prefix = f"mtp.{depth}"
        shapes |= {
            f"{prefix}.enorm.weight": (hidden,),
            f"{prefix}.hnorm.weight": (hidden,),
            f"{prefix}.e_proj.weight": (hidden, hidden),
            f"{prefix}.h_proj.weight": (hidden, hidden),
            f"{prefix}.norm.weight": (hidden,),
        }
        shapes |= _block_shapes(config, prefix, WINDOW, ROUTED) | _head_shapes(streams, hidden, f"{prefix}.")
    return shapes


def _block_shapes(config: Config, prefix: str, kind: str, routed_by: str) -> Shapes:
    hidden, streams = config["hidden_size"], config["hc_mult"]
    heads, dim, rank = config["num_attention_heads"], config["head_dim"], config["q_lora_rank"]
    groups, group_rank = config["o_groups"], config["o_lora_rank"]
    shapes: Shapes = {f"{prefix}.attn_norm.weight": (hidden,), f"{prefix}.ffn_norm.weight": (hidden,)}
    for place in ("attn", "ffn"):
        weights = (2 + streams) * streams
        shapes |= {
            f"{prefix}.hc_{place}_fn": (weights, streams * hidden),
            f"{prefix}.hc_{place}_base": (weights,),
            f"{prefix}.hc_{place}_scale": (3,),
        }
    shapes |= {
        f"{prefix}.attn.wq_a.weight": (rank, hidden),
        f"{prefix}.attn.q_norm.weight": (rank,),
        f"{prefix}.attn.wq_b.weight": (heads * dim, rank),
        f"{prefix}.attn.wkv.weight": (dim, hidden),
        f"{prefix}.attn.norm.weight": (dim,),
        f"{prefix}.attn.wo_a.weight": (groups * group_rank, heads * dim // groups),
        f"{prefix}.attn.wo_b.weight": (hidden, groups * group_rank),
        f"{prefix}.attn.attn_sink": (heads,),
    }
    rates = config["compress_rates"]
    if kind == HEAVY:
        shapes |= _compressor_shapes(hidden, dim, rates[HEAVY], 1, f"{prefix}.attn.compressor")
    if kind == SPARSE:
        index_heads, index_dim = config["index_n_heads"], config["index_head_dim"]
        shapes |= _compressor_shapes(hidden, dim, rates[SPARSE], 2, f"{prefix}.attn.compressor")
        shapes |= _compressor_shapes(hidden, index_dim, rates[SPARSE], 2, f"{prefix}.attn.indexer.compressor")
        shapes |= {
            f"{prefix}.attn.indexer.wq_b.weight": (index_heads * index_dim, rank),
            f"{prefix}.attn.indexer.weights_proj.weight": (index_heads, hidden),
        }
    return shapes | _expert_shapes(config, f"{prefix}.ffn", routed_by)


def _expert_shapes(config: Config, prefix: str, routed_by: str) -> Shapes:
    hidden, intermediate, experts = config["hidden_size"], config["moe_intermediate_size"], config["n_routed_experts"]
    shapes: Shapes = {f"{prefix}.gate.weight": (experts, hidden)}
    if routed_by == HASH:
        shapes[f"{prefix}.gate.tid2eid"] = (config["vocab_size"], config["num_experts_per_tok"])
    else:
        shapes[f"{prefix}.gate.bias"] = (experts,)
    for expert in [*(f"experts.{number}" for number in range(experts)), "shared_experts"]:
        shapes |= {
            f"{prefix}.{expert}.w1.weight": (intermediate, hidden),
            f"{prefix}.{expert}.w2.weight": (hidden, intermediate),
            f"{prefix}.{expert}.w3.weight": (intermediate, hidden),
        }
    return shapes


def _compressor_shapes(hidden: int, dim: int, ratio: int, series: int, prefix: str) -> Shapes:
    return {
        f"{prefix}.wkv.weight": (series * dim, hidden),
        f"{prefix}.wgate.weight": (series * dim, hidden),
        f"{prefix}.ape": (ratio, series * dim),
        f"{prefix}.norm.weight": (dim,),
    }


def _head_shapes(streams: int, hidden: int, prefix: str) -> Shapes:
    return {
        f"{prefix}hc_head_fn": (streams, streams * hidden),
        f"{prefix}hc_head_base": (streams,),
        f"{prefix}hc_head_scale": (1,),
    }


def _compress_rates(where: str, config: Mapping[str, Any]) -> dict[str, int]:
    rates = {SPARSE: 4, HEAVY: 128, **config.get("compress_rates", {})}
    rates[SPARSE] = config.get("compress_rate_csa", rates[SPARSE])
    rates[HEAVY] = config.get("compress_rate_hca", rates[HEAVY])
    return {kind: positive(f"{where}: compress_rates", rates, kind) for kind in (SPARSE, HEAVY)}


def _layer_types(where: str, config: Mapping[str, Any], layers: int) -> list[str]:
    ratios = config.get("compress_ratios")
    if config.get("layer_types") is None and ratios is not None:
        unknown = [ratio for ratio in ratios if ratio not in _KIND_OF_RATIO]
        if unknown:
            raise CheckpointError(f"{where}: compress_ratios", repr(unknown[0]), ", ".join(map(str, _KIND_OF_RATIO)))
        default = [_KIND_OF_RATIO[ratio] for ratio in ratios][:layers]
    else:
        # Two heavily compressed layers first, then in turn: what a config without a list means.
        default = [HEAVY if layer < 2 or layer % 2 == 0 else SPARSE for layer in range(layers)]
    return _kinds(where, config, "layer_types", default, (WINDOW, SPARSE, HEAVY))


def _kinds(where: str, config: Mapping[str, Any], key: str, default: list[str], allowed: tuple[str, ...]) -> list[str]:
    kinds = list(config.get(key) or default)
    if len(kinds) != config["num_hidden_layers"] or not set(kinds) <= set(allowed):
        raise CheckpointError(f"{where}: {key}", repr(kinds), f"one of {', '.join(allowed)} for each layer")
    return kinds


def _rotated_dim(where: str, config: Mapping[str, Any]) -> int:
    nested = (config.get("rope_parameters") or {}).get("main") or {}
    factor = nested.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 64 / 512
    rotated = int(config.get("qk_rope_head_dim") or int(config["head_dim"] * factor))
    if rotated % 2 or not 0 < rotated <= min(config["head_dim"], config["index_head_dim"]):
        raise CheckpointError(f"{where}: qk_rope_head_dim", str(rotated), "an even number within head_dim and index_head_dim")
    return rotated


def _rope_scaling(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The scaling of the compressed layers' rotation; the window layers' is plain. Its factor on cosines is always 1."""
    parameters = dict(config.get("rope_parameters") or {})
    parameters = dict(parameters.get("compress") or parameters or config.get("rope_scaling") or {})
    kind = parameters.pop("type", None) if "rope_type" not in parameters else parameters["rope_type"]
    if kind in (None, "default"):
        return None
    for key in ("rope_theta", "partial_rotary_factor", "main"):
        parameters.pop(key, None)
    return {"attention_factor": 1.0, **parameters, "rope_type": kind}
