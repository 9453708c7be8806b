"""Rotary position embedding: the tables of cosines and sines, plain, linear, Llama-3 or YaRN scaled.

Half-split layout: element i is paired with i + dim/2. With the sign folded into the sine table, a rotation is
`x * cos + roll(x, dim/2) * sin`: three operations, no halves cut apart and glued together.

Pair layout (DeepSeek): element 2i is paired with 2i + 1, and the partner of `x` is `x` with its pairs swapped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class RopeTable:
    """cos, sin [length, 1, dim] in the model's dtype; the sign of the rotation is in `sin`."""

    cos: Tensor
    sin: Tensor

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of `positions` [n] → two of [n, 1, dim]."""
        return self.cos.index_select(0, positions), self.sin.index_select(0, positions)


def rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """heads [n, heads, dim] rotated by the tables' rows [n, 1, dim]."""
    return torch.addcmul(heads * cos, heads.roll(heads.shape[-1] // 2, -1), sin)


def rotate_pairs(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """heads [n, heads, dim] in pair layout, rotated by rows [n, 1, dim] of tables in pair layout; `-sin` turns it back.

    Three separate operations: a fused one may round differently in the last few elements of a small tensor.
    """
    swapped = heads.reshape(*heads.shape[:-1], -1, 2).flip(-1).reshape(heads.shape)
    return heads * cos + swapped * sin


def build_rope(
    dim: int, theta: float, length: int, dtype: torch.dtype, device: torch.device, scaling: Mapping[str, Any] | None = None
) -> RopeTable:
    """Tables for `length` positions. `scaling` is a Hugging Face `rope_scaling` mapping (see `frequencies`)."""
    cos, sin = _half_tables(dim, theta, length, scaling)
    return RopeTable(
        cos=torch.cat((cos, cos), -1)[:, None].to(dtype).to(device),
        sin=torch.cat((-sin, sin), -1)[:, None].to(dtype).to(device),
    )


def build_pair_rope(
    dim: int, theta: float, length: int, dtype: torch.dtype, device: torch.device, scaling: Mapping[str, Any] | None = None
) -> RopeTable:
    """The same tables in pair layout, for `rotate_pairs`."""
    cos, sin = _half_tables(dim, theta, length, scaling)
    return RopeTable(
        cos=torch.stack((cos, cos), -1).flatten(-2)[:, None].to(dtype).to(device),
        sin=torch.stack((-sin, sin), -1).flatten(-2)[:, None].to(dtype).to(device),
    )


def _half_tables(dim: int, theta: float, length: int, scaling: Mapping[str, Any] | None) -> tuple[Tensor, Tensor]:
    """Cosines and sines [length, dim/2], float64."""
    inverse, factor = frequencies(dim, theta, scaling)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * inverse[None, :]
    return angles.cos() * factor, angles.sin() * factor


def frequencies(dim: int, theta: float, scaling: Mapping[str, Any] | None) -> tuple[Tensor, float]:
    """Inverse frequencies [dim/2] (float64) and the factor on cosines and sines."""
    exponents = torch.arange(0, dim, 2, dtype=torch.float64) / dim
    inverse = 1.0 / theta**exponents
    kind = str(scaling.get("rope_type", scaling.get("type", "default"))) if scaling else "default"
    if scaling is None or kind == "default":
        return inverse, 1.0
    factor = float(scaling.get("factor", 1.0))
    if kind == "linear":
        return inverse / factor, 1.0
    if kind == "llama3":
        return _llama3(inverse, factor, scaling), 1.0
    if kind == "yarn":
        return _yarn(dim, theta, inverse, factor, scaling)
    raise ValueError(f"rope_scaling.rope_type: got {kind!r}, allowed default, linear, llama3, yarn")


def yarn_scaling(original_length: int, wanted_length: int) -> dict[str, Any]:
    """The scaling that stretches a context of `original_length` to `wanted_length`."""
    return {
        "rope_type": "yarn",
        "factor": wanted_length / original_length,
        "original_max_position_embeddings": original_length,
    }


def _llama3(inverse: Tensor, factor: float, scaling: Mapping[str, Any]) -> Tensor:
    low = float(scaling["low_freq_factor"])
    high = float(scaling["high_freq_factor"])
    turns = float(scaling["original_max_position_embeddings"]) * inverse / (2 * math.pi)
    share = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - share) * inverse / factor + share * inverse


def _yarn(dim: int, theta: float, inverse: Tensor, factor: float, scaling: Mapping[str, Any]) -> tuple[Tensor, float]:
    original = float(scaling["original_max_position_embeddings"])

    def dimension_of(turns: float) -> float:
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first = dimension_of(float(scaling.get("beta_fast", 32.0)))
    last = dimension_of(float(scaling.get("beta_slow", 1.0)))
    if scaling.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    ramp = ((torch.arange(dim // 2, dtype=torch.float64) - first) / max(last - first, 0.001)).clamp(0.0, 1.0)
    stretched = inverse / factor * ramp + inverse * (1 - ramp)
    return stretched, _yarn_factor(factor, scaling)


def _yarn_factor(factor: float, scaling: Mapping[str, Any]) -> float:
    if scaling.get("attention_factor") is not None:
        return float(scaling["attention_factor"])

    def magnitude(scale: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0

    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        return magnitude(float(scaling["mscale"])) / magnitude(float(scaling["mscale_all_dim"]))
    return magnitude(1.0)
