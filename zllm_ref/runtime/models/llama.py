"""Llama: RMS norm, rotary grouped-query attention, gated feed-forward. SmolLM2, Llama 2/3, Mistral-shaped models.

x = embed[ids]
for each layer   x += out(attend(rotate(q, k), v))        q, k, v = qkv(norm(x))
                 x += down(silu(gate) × up)               gate, up = gate_up(norm(x))
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
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.rope import build_rope, rotate, yarn_scaling
from zllm_ref.runtime.state import StateDeclaration, StateTensor
from zllm_ref.runtime.step import Step


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes of a Llama model, from the names of a Hugging Face config.json."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: Mapping[str, Any] | None
    context_length: int
    tied_head: bool
    attention_bias: bool

    @classmethod
    def from_dict(cls, config: Mapping[str, Any], context_length: int | None = None) -> LlamaConfig:
        """Reads `config`; a `context_length` beyond the model's own stretches the rotation by YaRN."""
        own_length = int(config["max_position_embeddings"])
        rope = dict(config.get("rope_parameters") or {})
        scaling = config.get("rope_scaling") or ({k: v for k, v in rope.items() if k != "rope_theta"} or None)
        wanted = context_length or own_length
        if wanted > own_length:
            scaling = yarn_scaling(own_length, wanted)
        heads = int(config["num_attention_heads"])
        return cls(
            vocab_size=int(config["vocab_size"]),
            hidden_size=int(config["hidden_size"]),
            intermediate_size=int(config["intermediate_size"]),
            num_layers=int(config["num_hidden_layers"]),
            num_heads=heads,
            num_kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or int(config["hidden_size"]) // heads),
            rms_norm_eps=float(config.get("rms_norm_eps", 1e-5)),
            rope_theta=float(config.get("rope_theta") or rope.get("rope_theta") or 10000.0),
            rope_scaling=scaling,
            context_length=wanted,
            tied_head=bool(config.get("tie_word_embeddings", False)),
            attention_bias=bool(config.get("attention_bias", False)),
        )


@dataclass(frozen=True)
class LlamaLayer:
    """Weights of one layer; q, k, v in one matrix, gate and up in one matrix: two products instead of five."""

    input_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    out: Tensor
    post_norm: Tensor
    gate_up: Tensor
    down: Tensor


class Llama:
    """A Llama model on one device. State: `kv` [layers, tokens, 2, kv_heads, head_dim], growing, cuttable."""

    architecture = "llama"

    def __init__(
        self, config: LlamaConfig, tensors: Mapping[str, Tensor], numerics: Numerics, device: torch.device | None = None
    ) -> None:
        self.config = config
        self.numerics = numerics
        self.device = device or torch.device("cpu")
        self.vocab_size = config.vocab_size
        self.context_length = config.context_length

        def take(name: str) -> Tensor:
            return tensors[name].to(device=self.device, dtype=numerics.dtype).contiguous()

        self.embedding = take("model.embed_tokens.weight")
        self.head = self.embedding if config.tied_head else take("lm_head.weight")
        self._norm = take("model.norm.weight")
        self._layers = [self._take_layer(tensors, index) for index in range(config.num_layers)]
        self._rope = build_rope(
            config.head_dim, config.rope_theta, config.context_length, numerics.dtype, self.device, config.rope_scaling
        )
        self.attention = KeyValueAttention(
            "kv", config.num_heads, config.num_kv_heads, config.head_dim, config.context_length, numerics, self.device
        )
        shape = (2, config.num_kv_heads, config.head_dim)
        self.state = StateDeclaration([StateTensor("kv", config.num_layers, shape, numerics.dtype)])

    def forward(self, step: Step) -> Tensor:
        config, numerics = self.config, self.numerics
        rotated = config.num_heads + config.num_kv_heads
        all_heads = rotated + config.num_kv_heads
        cos, sin = self._rope.at(step.positions)
        attention = self.attention.prepare(step)
        x = F.embedding(step.ids, self.embedding)  # [rows, hidden]
        for index, layer in enumerate(self._layers):
            normed = numerics.rms_norm(x, layer.input_norm, config.rms_norm_eps)
            heads = numerics.linear(normed, layer.qkv, layer.qkv_bias).view(-1, all_heads, config.head_dim)
            queries_keys = heads[:, :rotated]
            queries_keys.copy_(rotate(queries_keys, cos, sin))
            queries = heads[: step.num_rows, : config.num_heads]
            keys_values = heads[: step.num_rows, config.num_heads :].view(-1, 2, config.num_kv_heads, config.head_dim)
            attended = attention.attend(index, queries, keys_values)
            x = x + numerics.linear(attended, layer.out)
            normed = numerics.rms_norm(x, layer.post_norm, config.rms_norm_eps)
            gate, up = numerics.linear(normed, layer.gate_up).chunk(2, -1)
            x = x + numerics.linear(numerics.silu_gate(gate, up), layer.down)
            if step.features is not None:
                step.features.take(index, x)
        return numerics.rms_norm(x, self._norm, config.rms_norm_eps)

    def logits(self, hidden: Tensor) -> Tensor:
        rows = self.numerics.pad_rows(hidden)
        return self.numerics.linear(rows, self.head)[: hidden.shape[0]].float()

    def _take_layer(self, tensors: Mapping[str, Tensor], index: int) -> LlamaLayer:
        prefix = f"model.layers.{index}."

        def take(name: str) -> Tensor:
            return tensors[prefix + name].to(device=self.device, dtype=self.numerics.dtype)

        def join(*names: str) -> Tensor:
            return torch.cat([take(name) for name in names]).contiguous()

        projections = [f"self_attn.{part}_proj" for part in ("q", "k", "v")]
        bias = join(*(f"{name}.bias" for name in projections)) if self.config.attention_bias else None
        return LlamaLayer(
            input_norm=take("input_layernorm.weight"),
            qkv=join(*(f"{name}.weight" for name in projections)),
            qkv_bias=bias,
            out=take("self_attn.o_proj.weight").contiguous(),
            post_norm=take("post_attention_layernorm.weight"),
            gate_up=join("mlp.gate_proj.weight", "mlp.up_proj.weight"),
            down=take("mlp.down_proj.weight").contiguous(),
        )
