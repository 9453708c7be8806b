"""Which model family runs which architecture: one row a family, and the one way to bring a checkpoint to life."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from zllm_ref.runtime.model import Model
from zllm_ref.runtime.models.deepseek_v4 import DeepseekV4, DeepseekV4Config
from zllm_ref.runtime.models.deepseek_v32 import DeepseekV32, DeepseekV32Config
from zllm_ref.runtime.models.glm4_moe import Glm4Moe, Glm4MoeConfig
from zllm_ref.runtime.models.llama import Llama, LlamaConfig
from zllm_ref.runtime.models.qwen3 import Qwen3, Qwen3Config
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.state import StateDeclaration, StateTensor
from zllm_ref.runtime.weights import Checkpoint
from zllm_ref.runtime.weights.architecture import find_architecture

ModelBuilder = Callable[[Mapping[str, Any], Mapping[str, Tensor], Numerics, torch.device, int | None, bool], Model]
"""(Hugging Face config, tensors by Hugging Face name, numerics, device, context length or None, drafting) → the model."""


@dataclass(frozen=True)
class ModelFamily:
    """One architecture that the runtime can compute; `architecture` is the `model_type` of its config.json."""

    architecture: str
    build: ModelBuilder
    declare_state: Callable[[Mapping[str, Any], torch.dtype], StateDeclaration]
    """The state of a model with this config, without its weights: (Hugging Face config, dtype) → declaration."""


def build_model(
    checkpoint: Checkpoint,
    numerics: Numerics,
    device: torch.device | str = "cpu",
    context_length: int | None = None,
    drafting: bool = False,
) -> Model:
    """The checkpoint's model on `device`. A `context_length` beyond the model's own stretches the rotation.

    `drafting` loads the layers that predict further tokens, where the checkpoint has them, and their state.
    Raises ValueError for an architecture without a family, or a length that the family cannot stretch to.
    """
    family = MODEL_FAMILIES.get(checkpoint.architecture)
    if family is None:
        raise ValueError(f"architecture: got {checkpoint.architecture!r}, allowed {', '.join(sorted(MODEL_FAMILIES))}")
    drafting = drafting and has_draft_layers(checkpoint)
    return family.build(checkpoint.config, checkpoint.tensors, numerics, torch.device(device), context_length, drafting)


def has_draft_layers(checkpoint: Checkpoint) -> bool:
    """Whether the checkpoint brings layers that predict further tokens: a config may speak of layers that a file leaves out."""
    architecture = find_architecture("checkpoint", checkpoint.architecture)
    shapes = architecture.draft_shapes(checkpoint.config)
    return bool(shapes) and all(name in checkpoint.tensors for name in shapes)


def _llama(
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    numerics: Numerics,
    device: torch.device,
    length: int | None,
    drafting: bool,
) -> Model:
    return Llama(LlamaConfig.from_dict(config, length), tensors, numerics, device)


def _qwen3(
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    numerics: Numerics,
    device: torch.device,
    length: int | None,
    drafting: bool,
) -> Model:
    return Qwen3(Qwen3Config.from_dict(config, length), tensors, numerics, device)


def _glm4_moe(
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    numerics: Numerics,
    device: torch.device,
    length: int | None,
    drafting: bool,
) -> Model:
    return Glm4Moe(Glm4MoeConfig.from_dict(config, length), tensors, numerics, device, drafting)


def _deepseek_v32(
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    numerics: Numerics,
    device: torch.device,
    length: int | None,
    drafting: bool,
) -> Model:
    return DeepseekV32(DeepseekV32Config.from_dict(config, length), tensors, numerics, device, drafting)


def _deepseek_v4(
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    numerics: Numerics,
    device: torch.device,
    length: int | None,
    drafting: bool,
) -> Model:
    return DeepseekV4(DeepseekV4Config.from_dict(config, length), tensors, numerics, device, drafting)


def _llama_state(config: Mapping[str, Any], dtype: torch.dtype) -> StateDeclaration:
    read = LlamaConfig.from_dict(config)
    return StateDeclaration([StateTensor("kv", read.num_layers, (2, read.num_kv_heads, read.head_dim), dtype)])


MODEL_FAMILIES: Mapping[str, ModelFamily] = {
    "llama": ModelFamily("llama", _llama, _llama_state),
    "qwen3": ModelFamily("qwen3", _qwen3, lambda config, dtype: Qwen3.declare_state(Qwen3Config.from_dict(config), dtype)),
    "glm4_moe": ModelFamily(
        "glm4_moe", _glm4_moe, lambda config, dtype: Glm4Moe.declare_state(Glm4MoeConfig.from_dict(config), dtype)
    ),
    "deepseek_v32": ModelFamily(
        "deepseek_v32",
        _deepseek_v32,
        lambda config, dtype: DeepseekV32.declare_state(DeepseekV32Config.from_dict(config), dtype),
    ),
    "deepseek_v4": ModelFamily(
        "deepseek_v4",
        _deepseek_v4,
        lambda config, dtype: DeepseekV4.declare_state(DeepseekV4Config.from_dict(config), dtype),
    ),
}
