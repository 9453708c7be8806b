"""Hyper-connections: the residual is several streams, mixed into a block and out of it by weights that follow from them.

    mix       = float32 product of the normed streams
    pre, post = sigmoid(…)                      a weight a stream
    comb      = Sinkhorn(softmax(…))            rows and columns that sum to one
    block in  = Σ_j pre_j · x_j
    x_k       ← post_k · block out + Σ_j comb_jk · x_j

Everything about one token stays with that token: no state. All in float32; sums over streams by halving.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from zllm_ref.runtime.numerics import Numerics, fold_softmax, fold_sum, whole_vectors
from zllm_ref.runtime.parameters import Parameters


@dataclass(frozen=True)
class HyperShape:
    """What all connections of a model share."""

    streams: int
    sinkhorn_rounds: int
    epsilon: float
    rms_norm_eps: float


@dataclass(frozen=True)
class Mixed:
    """What a block needs to hand its output back: post [rows, streams], comb [rows, streams, streams], float32."""

    post: Tensor
    comb: Tensor

    def spread(self, output: Tensor, streams: Tensor) -> Tensor:
        """output [rows, hidden] into `streams` [rows, streams, hidden]."""
        given = self.post.unsqueeze(-1) * output.float().unsqueeze(1)
        kept = fold_sum(self.comb.unsqueeze(-1) * streams.float().unsqueeze(2), 1)
        return (given + kept).to(streams.dtype)


@dataclass(frozen=True)
class HyperConnection:
    """One connection: `product` [(2 + streams) × streams, streams × hidden], `base`, `scale` [3], float32."""

    shape: HyperShape
    product: Tensor
    base: Tensor
    scale: Tensor

    @classmethod
    def take(cls, parameters: Parameters, name: str, shape: HyperShape) -> HyperConnection:
        return cls(shape, *(parameters.exact(f"{name}_{part}") for part in ("fn", "base", "scale")))

    def collapse(self, streams: Tensor, numerics: Numerics) -> tuple[Tensor, Mixed]:
        """streams [rows, streams, hidden] → the block's input [rows, hidden], and the way back."""
        shape, count = self.shape, self.shape.streams
        mix = numerics.float32_linear(normed_streams(streams, shape, numerics), self.product)
        pre, post, comb = (
            part * scale + base
            for part, scale, base in zip(
                torch.split(mix, [count, count, count * count], -1),
                self.scale,
                torch.split(self.base, [count, count, count * count]),
                strict=True,
            )
        )
        weights = fold_softmax(comb.view(-1, count, count), -1) + shape.epsilon
        weights = weights / (fold_sum(weights, 1).unsqueeze(1) + shape.epsilon)
        for _ in range(shape.sinkhorn_rounds - 1):
            weights = weights / (fold_sum(weights, 2).unsqueeze(2) + shape.epsilon)
            weights = weights / (fold_sum(weights, 1).unsqueeze(1) + shape.epsilon)
        collapsed = weighted_streams(whole_vectors(torch.sigmoid, pre) + shape.epsilon, streams)
        return collapsed, Mixed(2 * whole_vectors(torch.sigmoid, post), weights)


@dataclass(frozen=True)
class HyperHead:
    """The last mixture: streams into the one row that the output head reads."""

    shape: HyperShape
    product: Tensor
    base: Tensor
    scale: Tensor

    @classmethod
    def take(cls, parameters: Parameters, shape: HyperShape) -> HyperHead:
        return cls(shape, *(parameters.exact(f"hc_head_{part}") for part in ("fn", "base", "scale")))

    def collapse(self, streams: Tensor, numerics: Numerics) -> Tensor:
        """streams [rows, streams, hidden] → [rows, hidden]."""
        mix = numerics.float32_linear(normed_streams(streams, self.shape, numerics), self.product)
        return weighted_streams(whole_vectors(torch.sigmoid, mix * self.scale + self.base) + self.shape.epsilon, streams)


def normed_streams(streams: Tensor, shape: HyperShape, numerics: Numerics) -> Tensor:
    """All streams of a row as one, normed: [rows, streams × hidden] float32."""
    return numerics.rms_norm(streams.float().flatten(1), None, shape.rms_norm_eps)


def weighted_streams(weights: Tensor, streams: Tensor) -> Tensor:
    """Σ_j weights_j · x_j: [rows, streams] and [rows, streams, hidden] → [rows, hidden]."""
    return fold_sum(weights.unsqueeze(-1) * streams.float(), 1).to(streams.dtype)
