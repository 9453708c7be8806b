"""Tiny models made in code: random weights that follow from a seed, the same on every machine, nothing to download.

The weights are drawn tensor by tensor from a generator that is keyed by (seed, tensor name), so that a change of one shape
leaves the other tensors as they were.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
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
    shapes = architecture.parameter_shapes(config)
    makers = {
        parameter: partial(_draw, seed, parameter, shape, dtype, config["num_hidden_layers"])
        for parameter, shape in shapes.items()
    }
    num_elements = {parameter: math.prod(shape) for parameter, shape in shapes.items()}
    return Checkpoint(
        architecture=architecture.name,
        config=config,
        tensors=LazyTensors(makers, num_elements, progress),
        digest=combined_digest(RECIPE, config, {"seed": str(seed)}),
    )


def _draw(seed: int, name: str, shape: tuple[int, ...], dtype: torch.dtype, num_layers: int) -> torch.Tensor:
    """One tensor. Drawn as integers, so that no processor's vector sine or logarithm takes part in its bits."""
    key = hashlib.sha256(f"{RECIPE}/{seed}/{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(key[:8], "little") >> 1)
    steps = torch.randint(-(1 << 15), 1 << 15, shape, generator=generator, dtype=torch.int32)
    values = steps.to(torch.float32).mul_(math.sqrt(3.0) / (1 << 15))  # uniform, standard deviation 1
    if len(shape) == 1:  # a norm's gain: near one, and not constant, so that a dropped gain shows
        signs = steps.remainder(2).mul_(2).sub_(1) if name == "model.norm.weight" else 1
        # With random signs in the last norm, a tied head does not just repeat the token that came in.
        return values.mul_(0.1).add_(1.0).mul_(signs).to(dtype)
    fan_in = shape[-1]
    scale = 1.0 / math.sqrt(fan_in)
    if name.endswith(("embed_tokens.weight", "lm_head.weight")):
        # The final norm makes rows of length sqrt(hidden): this gives logits with the wanted spread, tied or not.
        scale = LOGIT_SCALE / math.sqrt(fan_in)
    elif name.endswith(("q_proj.weight", "k_proj.weight")):
        scale *= 1.6  # attention that prefers some positions: scores of about 2.5, far from a plain mean
    elif name.endswith(("o_proj.weight", "down_proj.weight")):
        scale *= 1.5 / math.sqrt(num_layers)  # every layer moves the residual visibly, and none drowns it
    return values.mul_(scale).to(dtype)
