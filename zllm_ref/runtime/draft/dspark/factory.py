"""A drafter's weights beside a loaded target: what its sessions need, and a `DsparkDrafter` for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from zllm_ref.runtime.draft.dspark.block import DsparkBlock
from zllm_ref.runtime.draft.dspark.drafter import DsparkDrafter
from zllm_ref.runtime.draft.dspark.heads import DsparkHeads
from zllm_ref.runtime.draft.dspark.shape import DsparkShape
from zllm_ref.runtime.draft.dspark.weights import DsparkWeights, fresh_weights, packaged_weights, read_weights
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.rope import build_rope
from zllm_ref.runtime.state import SessionState, StateTensor
from zllm_ref.runtime.step import build_step


@runtime_checkable
class TargetModel(Model, Protocol):
    """A model that shows the two matrices which a drafter shares with it."""

    @property
    def embedding(self) -> Tensor: ...

    @property
    def head(self) -> Tensor: ...


class Dspark:
    """Makes the drafters of one target's sessions."""

    name = "dspark"
    guesses_at_once = True

    def __init__(self, weights: DsparkWeights, model: Model, num_token_ids: int, most_length: int | None = None) -> None:
        """Raises ValueError where weights and target do not belong together."""
        shape = weights.shape
        if not isinstance(model, TargetModel):
            raise ValueError(f"dspark: got a {model.architecture} model, allowed one that shares its embedding and its head")
        _check(weights, model, num_token_ids)
        self.most_length = min(shape.block, most_length or shape.block)
        self.feature_layers = shape.feature_layers
        self.digest = weights.digest
        dtype, device = model.numerics.dtype, model.device
        self.state_tensors: tuple[StateTensor, ...] = (shape.cache(dtype),)
        tensors = weights.cast(dtype, device)
        rope = build_rope(shape.head_dim, shape.rope_theta, model.context_length + shape.block, dtype, device)
        self.block = DsparkBlock(shape, tensors, model.numerics, rope)
        self.heads = DsparkHeads(shape, tensors, model.numerics, model.embedding, model.head)

    def session_bytes(self, num_tokens: int) -> int:
        """Bytes of a drafter outside its session's state: none."""
        return 0

    def begin(self, state: SessionState, ids: Sequence[int]) -> DsparkDrafter:
        """A drafter for a session; what it knows lies in the state and comes by `follow`."""
        return DsparkDrafter(self.block, self.heads, state, self.most_length)


def load_dspark(path: Path, model: Model, num_token_ids: int, most_length: int | None = None) -> Dspark:
    """The drafter whose weights are in `path`. Raises `CheckpointError`, ValueError."""
    return Dspark(read_weights(path), model, num_token_ids, most_length)


def default_weights(model_digest: str) -> Path | None:
    """Weights that come with this package for the model with this digest (None: there are none)."""
    return packaged_weights(model_digest)


def seeded_dspark(model: TargetModel, seed: int = 0, num_token_ids: int | None = None) -> Dspark:
    """A tiny drafter whose every weight is random: bad guesses for any target, by the same code."""
    width = model.embedding.shape[1]
    num_drafted = min(num_token_ids or model.vocab_size, 192)
    shape = DsparkShape(
        width,
        feature_layers=(0, 1),
        num_drafted=num_drafted,
        context_width=64,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=32,
        intermediate=128,
        rank=32,
    )
    weights = fresh_weights(shape, range(num_drafted), seed)
    generator = torch.Generator().manual_seed(seed)
    drawn = {
        name: tensor if name == "drafted_ids" else tensor + torch.randn(tensor.shape, generator=generator) / width**0.5
        for name, tensor in weights.tensors.items()
    }
    return Dspark(DsparkWeights(shape, drawn, "", weights.digest), model, num_token_ids or model.vocab_size)


def _check(weights: DsparkWeights, model: TargetModel, num_token_ids: int) -> None:
    shape, width = weights.shape, model.embedding.shape[1]
    if shape.width != width:
        raise ValueError(f"dspark: got weights for a target of width {shape.width}, allowed {width} (this model)")
    ids = weights.tensors["drafted_ids"]
    if int(ids.min()) < 0 or int(ids.max()) >= num_token_ids:
        raise ValueError(f"dspark: got an id {int(ids.max())} to guess, allowed 0 to {num_token_ids - 1} (this model's ids)")
    with torch.inference_mode():
        scratch = SessionState(model.state, 1, model.device)
        step = build_step([(scratch, [0])], model.numerics, model.device, shape.feature_layers)
        model.forward(step)
    assert step.features is not None
    try:
        step.features.side_by_side()
    except KeyError as error:
        raise ValueError(f"dspark: got feature layer {error}, allowed those that this model has") from error
