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
from zllm_ref.runtime.state import StateDeclaration
from zllm_ref.runtime.weights import Checkpoint
from zllm_ref.runtime.weights.architecture import find_architecture


@dataclass(frozen=True)
class ModelFamily:
    """One architecture that the runtime can compute; `architecture` is the `model_type` of its config.json.

    A config is whatever the family's `read_config` makes of a Hugging Face config.
    """

    architecture: str
    read_config: Callable[[Mapping[str, Any], int | None], Any]
    """(Hugging Face config, context length or None) → the family's own config."""
    make: Callable[[Any, Mapping[str, Tensor], Numerics, torch.device, bool], Model]
    """(config, tensors by Hugging Face name, numerics, device, drafting) → the model."""
    declare: Callable[[Any, torch.dtype, int], StateDeclaration]
    """(config, dtype, layers for further tokens) → the state."""

    def declare_state(self, config: Mapping[str, Any], dtype: torch.dtype, *, drafting: bool = False) -> StateDeclaration:
        """The state of a model with this Hugging Face config, without its weights."""
        own = self.read_config(config, None)
        return self.declare(own, dtype, getattr(own, "num_draft_layers", 0) if drafting else 0)


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
    config = family.read_config(checkpoint.config, context_length)
    return family.make(config, checkpoint.tensors, numerics, torch.device(device), drafting)


def has_draft_layers(checkpoint: Checkpoint) -> bool:
    """Whether the checkpoint brings layers that predict further tokens: a config may speak of layers that a file leaves out."""
    architecture = find_architecture("checkpoint", checkpoint.architecture)
    shapes = architecture.draft_shapes(checkpoint.config)
    return bool(shapes) and all(name in checkpoint.tensors for name in shapes)


def _without_drafts(make: Callable[[Any, Mapping[str, Tensor], Numerics, torch.device], Model]) -> Callable[..., Model]:
    """For families that have no layers for further tokens."""
    return lambda config, tensors, numerics, device, drafting: make(config, tensors, numerics, device)


_FAMILIES = (
    ModelFamily(
        "llama", LlamaConfig.from_dict, _without_drafts(Llama), lambda config, dtype, _: Llama.declare_state(config, dtype)
    ),
    ModelFamily(
        "qwen3", Qwen3Config.from_dict, _without_drafts(Qwen3), lambda config, dtype, _: Qwen3.declare_state(config, dtype)
    ),
    ModelFamily("glm4_moe", Glm4MoeConfig.from_dict, Glm4Moe, Glm4Moe.declare_state),
    ModelFamily("deepseek_v32", DeepseekV32Config.from_dict, DeepseekV32, DeepseekV32.declare_state),
    ModelFamily("deepseek_v4", DeepseekV4Config.from_dict, DeepseekV4, DeepseekV4.declare_state),
)
MODEL_FAMILIES: Mapping[str, ModelFamily] = {family.architecture: family for family in _FAMILIES}
