"""Qwen3: Llama's matrices, and a norm over each query and key head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zllm_ref.runtime.weights.checkpoint import Config, Shapes
from zllm_ref.runtime.weights.declared.dense import dense_shapes, normalise_dense


def normalise(where: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """As a dense transformer's; `head_dim` is independent of `hidden_size` and 128 where nothing is said."""
    return normalise_dense(where, {"head_dim": 128} | {k: v for k, v in config.items() if v is not None or k != "head_dim"})


def parameter_shapes(config: Config) -> Shapes:
    shapes = dense_shapes(config)
    for layer in range(config["num_hidden_layers"]):
        for norm in ("q_norm", "k_norm"):
            shapes[f"model.layers.{layer}.self_attn.{norm}.weight"] = (config["head_dim"],)
    return shapes
