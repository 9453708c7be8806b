"""Qwen3: Llama with a norm over every query and key head before the rotation.

x = embed[ids]
for each layer   x += out(attend(rotate(norm(q)), rotate(norm(k)), v))     q, k, v = qkv(norm(x))
                 x += down(silu(gate) × up)                                gate, up = gate_up(norm(x))
logits = head(norm(x))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from zllm_ref.runtime.attention import KeyValueAttention
from zllm_ref.runtime.feed_forward import FeedForward
from zllm_ref.runtime.models.decoder import DecoderEnds
from zllm_ref.runtime.models.sizes import GroupedSizes, grouped_sizes
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.parameters import Parameters
from zllm_ref.runtime.rope import build_rope, rotate
from zllm_ref.runtime.state import StateDeclaration, StateTensor
from zllm_ref.runtime.step import Step
from zllm_ref.runtime.weights.declared import qwen3


class Qwen3Config(GroupedSizes):
    """Sizes of a Qwen3 model."""

    @classmethod
    def from_dict(cls, config: Mapping[str, Any], context_length: int | None = None) -> Qwen3Config:
        """Reads a config.json; a `context_length` beyond the model's own stretches the rotation by YaRN."""
        return cls(**grouped_sizes(qwen3.normalise("config", config), context_length))


@dataclass(frozen=True)
class Qwen3Layer:
    """Weights of one layer. `head_norm` [query and key heads, head_dim]: the gain of each head's own norm."""

    input_norm: Tensor
    qkv: Tensor
    head_norm: Tensor
    out: Tensor
    post_norm: Tensor
    feed_forward: FeedForward


class Qwen3(DecoderEnds):
    """A Qwen3 model on one device. State: `kv` [layers, tokens, 2, kv_heads, head_dim], growing, cuttable."""

    architecture = "qwen3"

    def __init__(
        self, config: Qwen3Config, tensors: Mapping[str, Tensor], numerics: Numerics, device: torch.device | None = None
    ) -> None:
        parameters = Parameters(tensors, numerics, device or torch.device("cpu"))
        super().__init__(config, parameters, numerics, device or torch.device("cpu"))
        self.config = config
        self._layers = [self._take_layer(parameters.below(f"model.layers.{index}.")) for index in range(config.num_layers)]
        self._rope = build_rope(
            config.head_dim, config.rope_theta, config.context_length, numerics.dtype, self.device, config.rope_scaling
        )
        self.attention = KeyValueAttention(
            "kv", config.num_heads, config.num_kv_heads, config.head_dim, config.context_length, numerics, self.device
        )
        self.state = self.declare_state(config, numerics.dtype)

    @staticmethod
    def declare_state(config: Qwen3Config, dtype: torch.dtype) -> StateDeclaration:
        return StateDeclaration([StateTensor("kv", config.num_layers, (2, config.num_kv_heads, config.head_dim), dtype)])

    def forward(self, step: Step) -> Tensor:
        config, numerics = self.config, self.numerics
        rotated = config.num_heads + config.num_kv_heads
        all_heads = rotated + config.num_kv_heads
        cos, sin = self._rope.at(step.positions)
        attention = self.attention.prepare(step)
        x = F.embedding(step.ids, self.embedding)  # [rows, hidden]
        for index, layer in enumerate(self._layers):
            normed = numerics.rms_norm(x, layer.input_norm, config.rms_norm_eps)
            heads = numerics.linear(normed, layer.qkv).view(-1, all_heads, config.head_dim)
            queries_keys = heads[:, :rotated]
            gained = numerics.rms_norm(queries_keys, None, config.rms_norm_eps) * layer.head_norm
            queries_keys.copy_(rotate(gained, cos, sin))
            queries = heads[: step.num_rows, : config.num_heads]
            keys_values = heads[: step.num_rows, config.num_heads :].view(-1, 2, config.num_kv_heads, config.head_dim)
            attended = attention.attend(index, queries, keys_values)
            x = x + numerics.linear(attended, layer.out)
            normed = numerics.rms_norm(x, layer.post_norm, config.rms_norm_eps)
            x = x + layer.feed_forward.apply(normed, numerics)
            if step.features is not None:
                step.features.take(index, x)
        return self._normed(x)

    def _take_layer(self, parameters: Parameters) -> Qwen3Layer:
        gains = [parameters.take("self_attn.q_norm.weight")] * self.config.num_heads
        gains += [parameters.take("self_attn.k_norm.weight")] * self.config.num_kv_heads
        return Qwen3Layer(
            input_norm=parameters.take("input_layernorm.weight"),
            qkv=parameters.join(*(f"self_attn.{part}_proj.weight" for part in ("q", "k", "v"))),
            head_norm=torch.stack(gains),
            out=parameters.take("self_attn.o_proj.weight"),
            post_norm=parameters.take("post_attention_layernorm.weight"),
            feed_forward=FeedForward.take(parameters.below("mlp.")),
        )
