"""GLM-4.5 and 4.6: grouped-query attention that rotates part of a head, experts behind a sigmoid router.

x = embed[ids]
for each layer   x += out(attend(rotate(norm(q)), rotate(norm(k)), v))     q, k, v = qkv(norm(x)) + bias; norms where configured
                 x += down(silu(gate) × up)                                in the first layers
                 x += Σ weight · expert(norm(x)) + shared(norm(x))         in all others
logits = head(norm(x))

Behind the last layer lies one more, which predicts a further token (`draft`): its input joins the embedding of the next token
with the final hidden row, its K/V is a state tensor of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from zllm_ref.runtime.attention import KeyValueAttention, StepAttention
from zllm_ref.runtime.draft.joint import DraftJoint
from zllm_ref.runtime.feed_forward import FeedForward
from zllm_ref.runtime.models.decoder import DecoderEnds
from zllm_ref.runtime.models.sizes import GroupedSizes, grouped_sizes
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.parameters import Parameters
from zllm_ref.runtime.rope import build_rope, rotate
from zllm_ref.runtime.routed import RoutedFeedForward, RoutedShape
from zllm_ref.runtime.state import StateDeclaration, StateTensor
from zllm_ref.runtime.step import Step
from zllm_ref.runtime.weights.declared import glm4_moe


@dataclass(frozen=True)
class Glm4MoeConfig(GroupedSizes):
    """Sizes of a GLM-4.5 model."""

    num_dense_layers: int
    num_draft_layers: int
    rotated_dim: int
    has_bias: bool
    has_head_norm: bool
    experts: RoutedShape

    @classmethod
    def from_dict(cls, config: Mapping[str, Any], context_length: int | None = None) -> Glm4MoeConfig:
        """Reads a config.json; a `context_length` beyond the model's own stretches the rotation by YaRN."""
        config = glm4_moe.normalise("config", config)
        return cls(
            **grouped_sizes(config, context_length),
            num_dense_layers=config["first_k_dense_replace"],
            num_draft_layers=config["num_nextn_predict_layers"],
            rotated_dim=int(config["head_dim"] * config["partial_rotary_factor"]),
            has_bias=config["attention_bias"],
            has_head_norm=config["use_qk_norm"],
            experts=RoutedShape.from_dict(config),
        )


@dataclass(frozen=True)
class Glm4MoeLayer:
    """Weights of one layer. `head_norm` [query and key heads, head_dim]: the gain of each head's own norm."""

    input_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    head_norm: Tensor | None
    out: Tensor
    post_norm: Tensor
    feed_forward: FeedForward | RoutedFeedForward


class Glm4Moe(DecoderEnds):
    """A GLM-4.5 model on one device. State: `kv` [layers, tokens, 2, kv_heads, head_dim], growing, cuttable.

    With `drafting`, the layers for further tokens are loaded too, and `draft_kv`, advisory, is part of the state.
    """

    architecture = "glm4_moe"

    def __init__(
        self,
        config: Glm4MoeConfig,
        tensors: Mapping[str, Tensor],
        numerics: Numerics,
        device: torch.device | None = None,
        drafting: bool = False,
    ) -> None:
        parameters = Parameters(tensors, numerics, device or torch.device("cpu"))
        super().__init__(config, parameters, numerics, device or torch.device("cpu"))
        self.config = config
        self._layers = [self._take_layer(parameters, index) for index in range(config.num_layers)]
        drafts = range(config.num_layers, config.num_layers + config.num_draft_layers) if drafting else range(0)
        self._draft_layers = [self._take_layer(parameters, index) for index in drafts]
        self._joints = [DraftJoint.take(parameters.below(f"model.layers.{index}."), config.rms_norm_eps) for index in drafts]
        self._rope = build_rope(
            config.rotated_dim, config.rope_theta, config.context_length, numerics.dtype, self.device, config.rope_scaling
        )
        self.attention = self._attention_over("kv")
        self._draft_attention = self._attention_over("draft_kv")
        self.state = self.declare_state(config, numerics.dtype, len(self._draft_layers))

    @staticmethod
    def declare_state(config: Glm4MoeConfig, dtype: torch.dtype, num_draft_layers: int = 0) -> StateDeclaration:
        shape = (2, config.num_kv_heads, config.head_dim)
        tensors = [StateTensor("kv", config.num_layers, shape, dtype)]
        if num_draft_layers:
            tensors.append(StateTensor("draft_kv", num_draft_layers, shape, dtype, advisory=True))
        return StateDeclaration(tensors)

    def forward(self, step: Step) -> Tensor:
        cos, sin = self._rope.at(step.positions)
        attention = self.attention.prepare(step)
        x = F.embedding(step.ids, self.embedding)  # [rows, hidden]
        for index, layer in enumerate(self._layers):
            x = self._block(x, index, layer, attention, step, cos, sin)
            if step.features is not None:
                step.features.take(index, x)
        return self._normed(x)

    @property
    def num_draft_layers(self) -> int:
        """Layers for further tokens that are loaded."""
        return len(self._draft_layers)

    def draft(self, depth: int, step: Step, hidden: Tensor) -> Tensor:
        """The layer `depth` for further tokens: `step` brings the *next* token of each row, `hidden` the row before it.

        → hidden rows [padded rows, hidden] for `draft_logits`, each one token further.
        """
        joint = self._joints[depth]
        cos, sin = self._rope.at(step.positions)
        x = joint.join(F.embedding(step.ids, self.embedding), hidden, self.numerics)
        x = self._block(x, depth, self._draft_layers[depth], self._draft_attention.prepare(step), step, cos, sin)
        return self.numerics.rms_norm(x, joint.final_norm, self.config.rms_norm_eps)

    def draft_logits(self, depth: int, hidden: Tensor) -> Tensor:
        """The output head over rows of `draft`: the model's own, since the layer's norm lies behind them already."""
        return self.logits(hidden)

    def _block(
        self, x: Tensor, index: int, layer: Glm4MoeLayer, attention: StepAttention, step: Step, cos: Tensor, sin: Tensor
    ) -> Tensor:
        config, numerics = self.config, self.numerics
        num_rotated = config.num_heads + config.num_kv_heads
        normed = numerics.rms_norm(x, layer.input_norm, config.rms_norm_eps)
        heads = numerics.linear(normed, layer.qkv, layer.qkv_bias).view(-1, num_rotated + config.num_kv_heads, config.head_dim)
        queries_keys = heads[:, :num_rotated]
        if layer.head_norm is not None:
            queries_keys.copy_(numerics.rms_norm(queries_keys, None, config.rms_norm_eps) * layer.head_norm)
        rotated = queries_keys[..., : config.rotated_dim]
        rotated.copy_(rotate(rotated, cos, sin))
        queries = heads[: step.num_rows, : config.num_heads]
        keys_values = heads[: step.num_rows, config.num_heads :].view(-1, 2, config.num_kv_heads, config.head_dim)
        x = x + numerics.linear(attention.attend(index, queries, keys_values), layer.out)
        normed = numerics.rms_norm(x, layer.post_norm, config.rms_norm_eps)
        match layer.feed_forward:
            case FeedForward():
                return x + layer.feed_forward.apply(normed, numerics)
            case RoutedFeedForward():
                return x + layer.feed_forward.apply(normed, step.num_rows, numerics)

    def _attention_over(self, name: str) -> KeyValueAttention:
        config = self.config
        return KeyValueAttention(
            name, config.num_heads, config.num_kv_heads, config.head_dim, config.context_length, self.numerics, self.device
        )

    def _take_layer(self, all_parameters: Parameters, index: int) -> Glm4MoeLayer:
        config, parameters = self.config, all_parameters.below(f"model.layers.{index}.")
        projections = [f"self_attn.{part}_proj" for part in ("q", "k", "v")]
        head_norm = None
        if config.has_head_norm:
            gains = [parameters.take("self_attn.q_norm.weight")] * config.num_heads
            head_norm = torch.stack(gains + [parameters.take("self_attn.k_norm.weight")] * config.num_kv_heads)
        return Glm4MoeLayer(
            input_norm=parameters.take("input_layernorm.weight"),
            qkv=parameters.join(*(f"{name}.weight" for name in projections)),
            qkv_bias=parameters.join(*(f"{name}.bias" for name in projections)) if config.has_bias else None,
            head_norm=head_norm,
            out=parameters.take("self_attn.o_proj.weight"),
            post_norm=parameters.take("post_attention_layernorm.weight"),
            feed_forward=self._take_feed_forward(parameters.below("mlp."), index),
        )

    def _take_feed_forward(self, parameters: Parameters, index: int) -> FeedForward | RoutedFeedForward:
        config = self.config
        if index < config.num_dense_layers:
            return FeedForward.take(parameters)
        return RoutedFeedForward.take(parameters, config.experts)
