"""Which model family runs which architecture: one row a family, and the one way to bring a checkpoint to life."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from zllm_ref.runtime.model import Model
from zllm_ref.runtime.models.llama import Llama, LlamaConfig
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.weights import Checkpoint

ModelBuilder = Callable[[Mapping[str, Any], Mapping[str, Tensor], Numerics, torch.device, int | None], Model]
"""(Hugging Face config, tensors by Hugging Face name, numerics, device, context length or None) → the model."""


@dataclass(frozen=True)
class ModelFamily:
    """One architecture that the runtime can compute; `architecture` is the `model_type` of its config.json."""

    architecture: str
    build: ModelBuilder


def _llama(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor], numerics: Numerics, device: torch.device, length: int | None
) -> Model:
    return Llama(LlamaConfig.from_dict(config, length), tensors, numerics, device)


MODEL_FAMILIES: Mapping[str, ModelFamily] = {
    "llama": ModelFamily("llama", _llama),
}


def build_model(
    checkpoint: Checkpoint, numerics: Numerics, device: torch.device | str = "cpu", context_length: int | None = None
) -> Model:
    """The checkpoint's model on `device`. A `context_length` beyond the model's own stretches the rotation.

    Raises ValueError for an architecture without a family.
    """
    family = MODEL_FAMILIES.get(checkpoint.architecture)
    if family is None:
        raise ValueError(f"architecture: got {checkpoint.architecture!r}, allowed {', '.join(sorted(MODEL_FAMILIES))}")
    return family.build(checkpoint.config, checkpoint.tensors, numerics, torch.device(device), context_length)
