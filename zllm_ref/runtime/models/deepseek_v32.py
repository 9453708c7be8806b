"""DeepSeek V3.2: latent attention (absorbed), an indexer that picks the keys, experts in groups.

x = embed[ids]
for each layer
    a, c, r, i = down(norm(x))                  query latent, key-value latent, shared rotated key, index key: one product
    q, j = up(norm(a))                          queries of the heads, queries of the indexer: one product
    row  = [ norm(c) | rotate(r) ]              → state `latent`
    key  = rotate(layer_norm(i))                → state `index_keys`
    x += out( W_UV · attend([ W_UKᵀ·q | rotate(q) ], rows that the indexer chose) )
    x += down(silu(gate) × up)                  in the first layers
    x += Σ weight · expert(norm(x)) + shared    in all others
logits = head(norm(x))

The main rotation pairs neighbours, the indexer's pairs halves. Behind the last layer lies one more, for a further token.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from zllm_ref.runtime.draft.joint import DraftJoint
from zllm_ref.runtime.feed_forward import FeedForward
from zllm_ref.runtime.indexer import Indexer
from zllm_ref.runtime.lane_keys import LaneKeys, lane_keys
from zllm_ref.runtime.latent_attention import LatentAttention
from zllm_ref.runtime.models.decoder import DecoderEnds
from zllm_ref.runtime.models.sizes import DecoderSizes, decoder_sizes, unstretched_length
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.parameters import Parameters
from zllm_ref.runtime.rope import build_pair_rope, build_rope, rotate, rotate_pairs
from zllm_ref.runtime.routed import RoutedFeedForward, RoutedShape
from zllm_ref.runtime.state import StateDeclaration, StateTensor
from zllm_ref.runtime.step import Step
from zllm_ref.runtime.weights.declared import deepseek_v32

_LATENT_EPS = 1e-6
"""The norms of the latents and of the index key have their own constant, whatever `rms_norm_eps` says."""


@dataclass(frozen=True)
class DeepseekV32Config(DecoderSizes):
    """Sizes of a DeepSeek V3.2 model."""

    num_dense_layers: int
    num_draft_layers: int
    query_rank: int
    latent_dim: int
    plain_dim: int
    rotated_dim: int
    value_dim: int
    attention_scale: float
    indexer: Indexer
    experts: RoutedShape

    @property
    def row_dim(self) -> int:
        """Width of a state row: latent and rotated key."""
        return self.latent_dim + self.rotated_dim

    @classmethod
    def from_dict(cls, config: Mapping[str, Any], context_length: int | None = None) -> DeepseekV32Config:
        """Reads a config.json. A `context_length` beyond the model's own is refused: its rotation is stretched already."""
        config = deepseek_v32.normalise("config", config)
        plain, rotated = config["qk_nope_head_dim"], config["qk_rope_head_dim"]
        return cls(
            **decoder_sizes(config, unstretched_length(config, context_length)),
            num_dense_layers=config["first_k_dense_replace"],
            num_draft_layers=config["num_nextn_predict_layers"],
            query_rank=config["q_lora_rank"],
            latent_dim=config["kv_lora_rank"],
            plain_dim=plain,
            rotated_dim=rotated,
            value_dim=config["v_head_dim"],
            attention_scale=_attention_scale(plain + rotated, config["rope_scaling"]),
            indexer=Indexer(config["index_n_heads"], config["index_head_dim"], config["index_topk"]),
            experts=RoutedShape.from_dict(config),
        )


@dataclass(frozen=True)
class DeepseekV32Layer:
    """Weights of one layer; everything that reads the same rows is one matrix."""

    input_norm: Tensor
    down: Tensor
    """[query_rank + row_dim + index_dim, hidden]"""
    query_norm: Tensor
    latent_norm: Tensor
    index_key_norm: Tensor
    index_key_bias: Tensor
    up: Tensor
    """[heads × (plain + rotated) + index_heads × index_dim, query_rank]"""
    index_weights: Tensor
    """[index_heads, hidden] float32"""
    key_up: Tensor
    """[heads, latent, plain]: W_UKᵀ"""
    value_up: Tensor
    """[heads, value, latent]: W_UV"""
    out: Tensor
    post_norm: Tensor
    feed_forward: FeedForward | RoutedFeedForward


@dataclass(frozen=True)
class StepKeys:
    """What the layers of a step share."""

    lanes: list[LaneKeys]
    pair_cos: Tensor
    pair_sin: Tensor
    half_cos: Tensor
    half_sin: Tensor


class DeepseekV32(DecoderEnds):
    """A DeepSeek V3.2 model on one device. State, growing, cuttable:

    `latent` [layers, tokens, latent + rotated], `index_keys` [layers, tokens, index_dim]; with `drafting` also
    `draft_latent` and `draft_index_keys`, advisory.
    """

    architecture = "deepseek_v32"

    def __init__(
        self,
        config: DeepseekV32Config,
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
        rope = (config.rotated_dim, config.rope_theta, config.context_length, numerics.dtype, self.device, config.rope_scaling)
        self._pair_rope = build_pair_rope(*rope)
        self._half_rope = build_rope(*rope)
        self.state = self.declare_state(config, numerics.dtype, len(self._draft_layers))

    @staticmethod
    def declare_state(config: DeepseekV32Config, dtype: torch.dtype, num_draft_layers: int = 0) -> StateDeclaration:
        tensors = [
            StateTensor("latent", config.num_layers, (config.row_dim,), dtype),
            StateTensor("index_keys", config.num_layers, (config.indexer.dim,), dtype),
        ]
        if num_draft_layers:
            tensors.append(StateTensor("draft_latent", num_draft_layers, (config.row_dim,), dtype, advisory=True))
            tensors.append(StateTensor("draft_index_keys", num_draft_layers, (config.indexer.dim,), dtype, advisory=True))
        return StateDeclaration(tensors)

    def forward(self, step: Step) -> Tensor:
        shared = self._prepare(step)
        x = F.embedding(step.ids, self.embedding)  # [rows, hidden]
        for index, layer in enumerate(self._layers):
            step.wait_for(index)
            x = self._block(x, index, layer, "", step, shared)
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
        x = joint.join(F.embedding(step.ids, self.embedding), hidden, self.numerics)
        x = self._block(x, depth, self._draft_layers[depth], "draft_", step, self._prepare(step))
        return self.numerics.rms_norm(x, joint.final_norm, self.config.rms_norm_eps)

    def draft_logits(self, depth: int, hidden: Tensor) -> Tensor:
        """The output head over rows of `draft`: the model's own, since the layer's norm lies behind them already."""
        return self.logits(hidden)

    def _prepare(self, step: Step) -> StepKeys:
        return StepKeys(lane_keys(step, self.numerics), *self._pair_rope.at(step.positions), *self._half_rope.at(step.positions))

    def _block(self, x: Tensor, index: int, layer: DeepseekV32Layer, prefix: str, step: Step, shared: StepKeys) -> Tensor:
        config, numerics = self.config, self.numerics
        normed = numerics.rms_norm(x, layer.input_norm, config.rms_norm_eps)
        x = x + self._attend(normed, index, layer, prefix, shared)
        normed = numerics.rms_norm(x, layer.post_norm, config.rms_norm_eps)
        match layer.feed_forward:
            case FeedForward():
                return x + layer.feed_forward.apply(normed, numerics)
            case RoutedFeedForward():
                return x + layer.feed_forward.apply(normed, step.num_rows, numerics)

    def _attend(self, normed: Tensor, index: int, layer: DeepseekV32Layer, prefix: str, shared: StepKeys) -> Tensor:
        config, numerics = self.config, self.numerics
        rows = normed.shape[0]
        down = numerics.linear(normed, layer.down)
        query_latent, latent, rotated_key, index_key = torch.split(
            down, [config.query_rank, config.latent_dim, config.rotated_dim, config.indexer.dim], -1
        )
        query_latent = numerics.rms_norm(query_latent, layer.query_norm, _LATENT_EPS)
        latent = numerics.rms_norm(latent, layer.latent_norm, _LATENT_EPS)
        rotated_key = rotate_pairs(rotated_key.unsqueeze(1), shared.pair_cos, shared.pair_sin).squeeze(1)

        head_dim = config.plain_dim + config.rotated_dim
        up = numerics.linear(query_latent, layer.up)
        queries = up[:, : config.num_heads * head_dim].reshape(rows, config.num_heads, head_dim)
        plain, rotated = torch.split(queries, [config.plain_dim, config.rotated_dim], -1)
        absorbed = numerics.grouped_linear(plain, layer.key_up)  # [rows, heads, latent]
        queries = torch.cat((absorbed, rotate_pairs(rotated, shared.pair_cos, shared.pair_sin)), -1)

        index_queries = up[:, config.num_heads * head_dim :].reshape(rows, config.indexer.heads, config.indexer.dim)
        visible = self._choose(index_queries, index_key, normed, index, layer, prefix, shared)
        attention = LatentAttention(
            f"{prefix}latent", config.num_heads, config.row_dim, config.latent_dim, config.attention_scale, numerics
        )
        attended = attention.attend(index, shared.lanes, visible, queries, torch.cat((latent, rotated_key), -1))
        values = numerics.grouped_linear(attended, layer.value_up)  # [rows, heads, value]
        return numerics.linear(values.reshape(rows, config.num_heads * config.value_dim), layer.out)

    def _choose(
        self,
        queries: Tensor,
        key: Tensor,
        normed: Tensor,
        index: int,
        layer: DeepseekV32Layer,
        prefix: str,
        shared: StepKeys,
    ) -> list[Tensor]:
        """Stores the step's index keys; for each lane which keys its rows may see."""
        numerics, indexer = self.numerics, self.config.indexer
        key = numerics.layer_norm(key, layer.index_key_norm, layer.index_key_bias, _LATENT_EPS).unsqueeze(1)
        key = self._rotate_front(key, shared).squeeze(1)
        name = f"{prefix}index_keys"
        for keys in shared.lanes:
            keys.lane.state.tensors[name][index][keys.tokens] = key[keys.rows]
        if all(keys.lane.start + keys.lane.num_rows <= indexer.top_k for keys in shared.lanes):
            return [keys.visible for keys in shared.lanes]  # nothing to leave out: the choice would be all of them
        queries = self._rotate_front(queries, shared)
        weights = numerics.float32_linear(normed, layer.index_weights) * indexer.heads**-0.5
        return [
            indexer.choose(
                queries[keys.rows],
                weights[keys.rows],
                keys.lane.state.tensors[name][index, : keys.key_length],
                keys.visible,
                numerics,
            )
            for keys in shared.lanes
        ]

    def _rotate_front(self, heads: Tensor, shared: StepKeys) -> Tensor:
        """heads [rows, heads, index_dim] with the first dimensions rotated, halves paired."""
        rotated = self.config.rotated_dim
        return torch.cat((rotate(heads[..., :rotated], shared.half_cos, shared.half_sin), heads[..., rotated:]), -1)

    def _take_layer(self, all_parameters: Parameters, index: int) -> DeepseekV32Layer:
        config, parameters = self.config, all_parameters.below(f"model.layers.{index}.")
        attention = parameters.below("self_attn.")
        kv_up = attention.take("kv_b_proj.weight").view(config.num_heads, config.plain_dim + config.value_dim, config.latent_dim)
        return DeepseekV32Layer(
            input_norm=parameters.take("input_layernorm.weight"),
            down=attention.join("q_a_proj.weight", "kv_a_proj_with_mqa.weight", "indexer.wk.weight"),
            query_norm=attention.take("q_a_layernorm.weight"),
            latent_norm=attention.take("kv_a_layernorm.weight"),
            index_key_norm=attention.take("indexer.k_norm.weight"),
            index_key_bias=attention.take("indexer.k_norm.bias"),
            up=attention.join("q_b_proj.weight", "indexer.wq_b.weight"),
            index_weights=attention.exact("indexer.weights_proj.weight"),
            key_up=kv_up[:, : config.plain_dim].transpose(1, 2).contiguous(),
            value_up=kv_up[:, config.plain_dim :].contiguous(),
            out=attention.take("o_proj.weight"),
            post_norm=parameters.take("post_attention_layernorm.weight"),
            feed_forward=self._take_feed_forward(parameters.below("mlp."), index),
        )

    def _take_feed_forward(self, parameters: Parameters, index: int) -> FeedForward | RoutedFeedForward:
        config = self.config
        if index < config.num_dense_layers:
            return FeedForward.take(parameters)
        return RoutedFeedForward.take(parameters, config.experts)


def _attention_scale(head_dim: int, scaling: Mapping[str, Any] | None) -> float:
    """head_dim^-½; under a scaled rotation with `mscale_all_dim` times the square of its magnitude."""
    scale: float = head_dim**-0.5
    all_dims = float(scaling.get("mscale_all_dim") or 0.0) if scaling else 0.0
    if scaling and all_dims and float(scaling["factor"]) > 1:
        magnitude = 0.1 * all_dims * math.log(float(scaling["factor"])) + 1.0
        scale *= magnitude * magnitude
    return scale
