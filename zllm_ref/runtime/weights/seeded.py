"""Tiny models made in code: random weights that follow from a seed, the same on every machine, nothing to download.

The weights are drawn tensor by tensor from a generator that is keyed by (seed, tensor name), so that a change of one shape
leaves the other tensors as they were.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from zllm_ref.runtime.weights.architecture import find_architecture
from zllm_ref.runtime.weights.checkpoint import Checkpoint, CheckpointError, LazyTensors, Progress, combined_digest

RECIPE = "seeded-1"
"""Part of the digest: change it with the way in which weights are drawn."""

BYTE_VOCABULARY = 512
"""Room for 256 bytes and the markers of a byte-level tokenizer, a multiple of 64."""

LOGIT_SCALE = 4.0
"""Standard deviation of the logits: a sampled token surprises, the best one leads, and near ties still occur."""

SEEDED_MODELS: Mapping[str, Mapping[str, Any]] = {
    "tiny-llama": {
        "model_type": "llama",
        "hidden_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "intermediate_size": 352,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 16384,
        "tie_word_embeddings": True,
    },
    # bfloat16 hides a wrong reduction below K = 1,000: this one's down projection sums over K = 4,608.
    "tiny-llama-wide": {
        "model_type": "llama",
        "hidden_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "intermediate_size": 4608,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 16384,
        "tie_word_embeddings": False,
    },
    "tiny-qwen3": {
        "model_type": "qwen3",
        "hidden_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "intermediate_size": 384,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "max_position_embeddings": 16384,
        "tie_word_embeddings": True,
    },
    "tiny-glm4-moe": {
        "model_type": "glm4_moe",
        "hidden_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "partial_rotary_factor": 0.5,
        "attention_bias": True,
        "use_qk_norm": True,
        "intermediate_size": 384,
        "moe_intermediate_size": 128,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1000000.0,
        "max_position_embeddings": 16384,
        "num_nextn_predict_layers": 1,
        "tie_word_embeddings": False,
    },
    "tiny-deepseek-v32": {
        "model_type": "deepseek_v32",
        "hidden_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "q_lora_rank": 128,
        "kv_lora_rank": 64,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 32,
        "v_head_dim": 32,
        "index_topk": 64,
        "index_head_dim": 64,
        "index_n_heads": 4,
        "intermediate_size": 384,
        "moe_intermediate_size": 128,
        "n_routed_experts": 16,
        "n_group": 4,
        "topk_group": 2,
        "num_experts_per_tok": 4,
        "first_k_dense_replace": 1,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": 16384,
        "num_nextn_predict_layers": 1,
        "tie_word_embeddings": False,
    },
    # A layer of each kind, hash-routed and routed; windows and compressors small enough for tests to pass their borders.
    "tiny-deepseek-v4": {
        "model_type": "deepseek_v4",
        "hidden_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "head_dim": 64,
        "qk_rope_head_dim": 32,
        "q_lora_rank": 128,
        "o_groups": 2,
        "o_lora_rank": 64,
        "index_n_heads": 4,
        "index_head_dim": 64,
        "index_topk": 16,
        "sliding_window": 32,
        "layer_types": [
            "sliding_attention",
            "compressed_sparse_attention",
            "heavily_compressed_attention",
            "compressed_sparse_attention",
        ],
        "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 16},
        "mlp_layer_types": ["hash_moe", "moe", "moe", "moe"],
        "moe_intermediate_size": 128,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "max_position_embeddings": 16384,
        "num_nextn_predict_layers": 1,
    },
}


def seeded_checkpoint(
    name: str,
    dtype: torch.dtype,
    *,
    vocab_size: int = BYTE_VOCABULARY,
    seed: int = 0,
    progress: Progress | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Checkpoint:
    """The tiny model `name` with `vocab_size` tokens. `overrides` change its config, for tests of other shapes.

    Raises `CheckpointError` for a name that is not in `SEEDED_MODELS`.
    """
    if name not in SEEDED_MODELS:
        raise CheckpointError("seeded model", repr(name), ", ".join(sorted(SEEDED_MODELS)))
    found = dict(SEEDED_MODELS[name]) | {"vocab_size": vocab_size} | dict(overrides or {})
    architecture = find_architecture(name, found["model_type"])
    config = architecture.normalise(name, found)
    shapes = architecture.parameter_shapes(config) | architecture.draft_shapes(config)
    makers: dict[str, Callable[[], torch.Tensor]] = {}
    for parameter, shape in shapes.items():
        if parameter.endswith(".tid2eid"):
            makers[parameter] = partial(_draw_table, seed, parameter, shape, config["n_routed_experts"])
        else:
            wanted = torch.float32 if architecture.is_exact(parameter) else dtype
            makers[parameter] = partial(_draw, seed, parameter, shape, wanted, config["num_hidden_layers"])
    num_elements = {parameter: math.prod(shape) for parameter, shape in shapes.items()}
    return Checkpoint(
        architecture=architecture.name,
        config=config,
        tensors=LazyTensors(makers, num_elements, progress),
        digest=combined_digest(RECIPE, config, {"seed": str(seed)}),
    )


_EMBEDDINGS = ("embed_tokens.weight", "lm_head.weight", "embed.weight", "head.weight")
_LAST_NORMS = ("model.norm.weight", "norm.weight")
_QUERIES = ("q_proj.weight", "k_proj.weight", "q_b_proj.weight", "wq_b.weight")
_BLOCK_ENDS = ("o_proj.weight", "down_proj.weight", "wo_b.weight", "w2.weight")
_OFFSETS = ("bias", "attn_sink", "_base", ".ape")


def _draw(seed: int, name: str, shape: tuple[int, ...], dtype: torch.dtype, num_layers: int) -> torch.Tensor:
    """One tensor. Drawn as integers, so that no processor's vector sine or logarithm takes part in its bits."""
    steps = torch.randint(-(1 << 15), 1 << 15, shape, generator=_generator(seed, name), dtype=torch.int32)
    values = steps.to(torch.float32).mul_(math.sqrt(3.0) / (1 << 15))  # uniform, standard deviation 1
    if name.endswith(_OFFSETS):  # added to something of size one: visible, and far from deciding alone
        return values.mul_(0.3).to(dtype)
    if len(shape) == 1:  # a norm's gain: near one, and not constant, so that a dropped gain shows
        signs = steps.remainder(2).mul_(2).sub_(1) if name in _LAST_NORMS else 1
        # With random signs in the last norm, a tied head does not just repeat the token that came in.
        return values.mul_(0.1).add_(1.0).mul_(signs).to(dtype)
    fan_in = shape[-1]
    scale = 1.0 / math.sqrt(fan_in)
    if name.endswith(_EMBEDDINGS):
        # The final norm makes rows of length sqrt(hidden): this gives logits with the wanted spread, tied or not.
        scale = LOGIT_SCALE / math.sqrt(fan_in)
    elif name.endswith(_QUERIES):
        scale *= 1.6  # attention that prefers some positions: scores of about 2.5, far from a plain mean
    elif name.endswith(_BLOCK_ENDS):
        scale *= 1.5 / math.sqrt(num_layers)  # every layer moves the residual visibly, and none drowns it
    return values.mul_(scale).to(dtype)


def _draw_table(seed: int, name: str, shape: tuple[int, ...], num_experts: int) -> torch.Tensor:
    """Which experts serve a token id: different ones in a row, int64."""
    first = torch.randint(0, num_experts, (shape[0], 1), generator=_generator(seed, name), dtype=torch.int64)
    return (first + torch.arange(shape[1])).remainder(num_experts)


def _generator(seed: int, name: str) -> torch.Generator:
    key = hashlib.sha256(f"{RECIPE}/{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(key[:8], "little") >> 1)
