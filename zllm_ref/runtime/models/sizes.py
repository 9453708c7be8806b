"""What every family reads from a config, read in one place: the sizes of a decoder, and how long its context may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zllm_ref.runtime.rope import yarn_scaling


@dataclass(frozen=True)
class DecoderSizes:
    """Sizes that any decoder has, from the names of a Hugging Face config.json."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: Mapping[str, Any] | None
    context_length: int
    tied_head: bool


@dataclass(frozen=True)
class GroupedSizes(DecoderSizes):
    """The same, where several query heads share a head of keys and values."""

    num_kv_heads: int
    head_dim: int


def decoder_sizes(config: Mapping[str, Any], context_length: int) -> dict[str, Any]:
    """The fields of `DecoderSizes`. A `context_length` beyond the model's own stretches the rotation by YaRN."""
    own_length = config["max_position_embeddings"]
    is_stretched = context_length > own_length
    return {
        "vocab_size": config["vocab_size"],
        "hidden_size": config["hidden_size"],
        "num_layers": config["num_hidden_layers"],
        "num_heads": config["num_attention_heads"],
        "rms_norm_eps": float(config["rms_norm_eps"]),
        "rope_theta": config["rope_theta"],
        "rope_scaling": yarn_scaling(own_length, context_length) if is_stretched else config["rope_scaling"],
        "context_length": context_length,
        "tied_head": config["tie_word_embeddings"],
    }


def grouped_sizes(config: Mapping[str, Any], context_length: int | None) -> dict[str, Any]:
    """The fields of `GroupedSizes`; `context_length` None: the model's own."""
    return {
        **decoder_sizes(config, context_length or config["max_position_embeddings"]),
        "num_kv_heads": config["num_key_value_heads"],
        "head_dim": config["head_dim"],
    }


def unstretched_length(config: Mapping[str, Any], context_length: int | None) -> int:
    """For rotations that are stretched already: the wanted length, or the model's own. Raises ValueError beyond it."""
    own_length = int(config["max_position_embeddings"])
    if (context_length or own_length) > own_length:
        raise ValueError(f"context length: got {context_length}, allowed {own_length} (the model's own)")
    return context_length or own_length
