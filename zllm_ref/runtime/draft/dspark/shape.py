"""The sizes of a block drafter, and the names and shapes of its weights."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from zllm_ref.runtime.state import StateTensor
from zllm_ref.runtime.weights.checkpoint import CheckpointError, Shapes

CACHE = "dspark_kv"
"""The state tensor of a drafter."""
KEY_SLOTS = 128
"""Keys that a guess attends to, always so many: the newest rows of the context, then the block itself."""
MOST_BLOCK = 16


@dataclass(frozen=True)
class DsparkShape:
    """Sizes of one drafter. `width`, and the meaning of `feature_layers`, are the target's; all else is its own."""

    width: int
    """Of the target's rows, its embedding and its output head."""
    feature_layers: tuple[int, ...]
    """Layers of the target whose rows are the context, counted from 0, ascending."""
    num_drafted: int
    """How many ids of the target's vocabulary are ever guessed: the rare ones are not worth a row of the head."""
    block: int = 5
    """Guesses of one pass."""
    context_width: int = 384
    layers: int = 2
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 64
    intermediate: int = 384
    rank: int = 128
    """Width between the previous guess and its effect on the next one."""
    rope_theta: float = 10000.0
    norm_epsilon: float = 1e-5

    @property
    def window(self) -> int:
        """Rows of the context that a guess reads, the newest ones."""
        return KEY_SLOTS - self.block

    def cache(self, dtype: torch.dtype) -> StateTensor:
        """What a drafter of this shape keeps in a session's state: keys and values of every token, for every layer."""
        return StateTensor(CACHE, self.layers, (2, self.kv_heads, self.head_dim), dtype, advisory=True)

    def parameter_shapes(self) -> Shapes:
        """Every tensor of the file, by name."""
        width, context, rank = self.width, self.context_width, self.rank
        queries, keys_values = self.heads * self.head_dim, 2 * self.kv_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {
            "context.fuse": (context, len(self.feature_layers) * width),
            "context.norm": (context,),
            "block.newest": (width, context),
            "block.masks": (self.block - 1, width),
            "block.norm": (width,),
            "markov.previous": (rank, width),
            "markov.row": (rank, width),
            "markov.up": (width, rank),
            "confidence.weight": (1, width + rank + 1),
            "confidence.bias": (1,),
            "confidence.scale": (self.block,),
            "confidence.shift": (self.block,),
            "drafted_ids": (self.num_drafted,),
        }
        for index in range(self.layers):
            prefix = f"layers.{index}."
            shapes |= {
                prefix + "input_norm": (width,),
                prefix + "query": (queries, width),
                prefix + "keys_values": (keys_values, width),
                prefix + "context_keys_values": (keys_values, context),
                prefix + "query_norm": (self.head_dim,),
                prefix + "key_norm": (self.head_dim,),
                prefix + "out": (width, queries),
                prefix + "post_norm": (width,),
                prefix + "gate_up": (2 * self.intermediate, width),
                prefix + "down": (width, self.intermediate),
            }
        return shapes

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, where: str, text: str) -> DsparkShape:
        """Reads what a file says of itself. Raises `CheckpointError` for anything but sizes that make sense together."""
        try:
            found: Mapping[str, Any] = json.loads(text)
            shape = cls(**{**found, "feature_layers": tuple(found["feature_layers"])})
        except (ValueError, TypeError, KeyError) as error:
            raise CheckpointError(where, f"{text[:80]!r} ({error})", "the sizes of a block drafter as a JSON object") from error
        for field in dataclasses.fields(cls):
            value = getattr(shape, field.name)
            is_number = isinstance(value, float | int) and not isinstance(value, bool) and value > 0
            if field.name != "feature_layers" and not is_number:
                raise CheckpointError(f"{where}: {field.name}", repr(value), "a number above 0")
        layers = shape.feature_layers
        if not layers or list(layers) != sorted({layer for layer in layers if isinstance(layer, int) and layer >= 0}):
            raise CheckpointError(f"{where}: feature_layers", repr(layers), "layer numbers from 0, ascending")
        if not 1 < shape.block <= MOST_BLOCK:
            raise CheckpointError(f"{where}: block", repr(shape.block), f"2 to {MOST_BLOCK} guesses")
        if shape.heads % shape.kv_heads or shape.head_dim % 2:
            raise CheckpointError(
                f"{where}: heads",
                f"{shape.heads} of {shape.head_dim} over {shape.kv_heads}",
                "a multiple of kv_heads, of even width",
            )
        return shape
