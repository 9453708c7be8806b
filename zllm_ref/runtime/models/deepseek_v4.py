"""DeepSeek V4: windows with a sink, two kinds of compressed history, hyper-connections, hash-routed experts.

x = embed[ids], once in every stream
for each layer
    r = norm(mix in)
    q = rotate(norm(up(norm(a)))), k = rotate(norm(c))              a, c, compressor inputs: one product of r
    mix out += out(rotate back(attend(q, window · history · sink)))
        window only       nothing else is seen
        sparse (CSA)      a row for every 4 tokens, of which the indexer chooses; it has a compressor of its own
        heavy (HCA)       a row for every 128 tokens, all of them
    mix out += Σ weight · expert(norm(mix in)) + shared             experts by score, in the first layers by token id
logits = head(norm(last mixture))

`forward` returns the streams: the last mixture belongs to the output head, and a drafting layer reads them unmixed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from zllm_ref.runtime.compressor import Compressor, CompressorShape, rotate_tail
from zllm_ref.runtime.experts import Experts
from zllm_ref.runtime.history import HeavyHistory, SparseHistory, StepRows, WindowOnly
from zllm_ref.runtime.hyper_connection import HyperConnection, HyperHead, HyperShape
from zllm_ref.runtime.indexer import Indexer
from zllm_ref.runtime.models.sizes import unstretched_length
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.parameters import Parameters
from zllm_ref.runtime.rope import build_pair_rope
from zllm_ref.runtime.router import SoftplusRouter
from zllm_ref.runtime.state import StateDeclaration, StateTensor
from zllm_ref.runtime.step import Step
from zllm_ref.runtime.weights.declared import deepseek_v4
from zllm_ref.runtime.weights.declared.deepseek_v4 import HASH, HEAVY, SPARSE, WINDOW
from zllm_ref.runtime.window_attention import HISTORY_TILE, WindowAttention

_EXPERT_NAMES = "w1 w3 w2"


@dataclass(frozen=True)
class DeepseekV4Config:
    """Sizes of a DeepSeek V4 model, from the names of a config.json."""

    vocab_size: int
    hidden_size: int
    layer_kinds: tuple[str, ...]
    hashed_layers: tuple[bool, ...]
    num_draft_layers: int
    num_heads: int
    head_dim: int
    rotated_dim: int
    query_rank: int
    window: int
    out_groups: int
    out_rank: int
    indexer: Indexer
    heavy: CompressorShape
    sparse: CompressorShape
    sparse_index: CompressorShape
    hyper: HyperShape
    num_experts: int
    experts_per_token: int
    routing_scale: float
    gate_limit: float
    rms_norm_eps: float
    rope_theta: float
    history_rope_theta: float
    history_rope_scaling: Mapping[str, Any] | None
    context_length: int

    @classmethod
    def from_dict(cls, config: Mapping[str, Any], context_length: int | None = None) -> DeepseekV4Config:
        """Reads `config`. A `context_length` beyond the model's own is refused: its rotation is stretched already."""
        config = deepseek_v4.normalise("config", config)
        eps, rotated = float(config["rms_norm_eps"]), config["qk_rope_head_dim"]
        dim, index_dim, rates = config["head_dim"], config["index_head_dim"], config["compress_rates"]
        return cls(
            vocab_size=config["vocab_size"],
            hidden_size=config["hidden_size"],
            layer_kinds=tuple(config["layer_types"]),
            hashed_layers=tuple(kind == HASH for kind in config["mlp_layer_types"]),
            num_draft_layers=config["num_nextn_predict_layers"],
            num_heads=config["num_attention_heads"],
            head_dim=dim,
            rotated_dim=rotated,
            query_rank=config["q_lora_rank"],
            window=config["sliding_window"],
            out_groups=config["o_groups"],
            out_rank=config["o_lora_rank"],
            indexer=Indexer(config["index_n_heads"], index_dim, config["index_topk"], HISTORY_TILE),
            heavy=CompressorShape("heavy_rows", "heavy_pending", rates[HEAVY], 1, dim, rotated, eps),
            sparse=CompressorShape("sparse_rows", "sparse_pending", rates[SPARSE], 2, dim, rotated, eps),
            sparse_index=CompressorShape("index_rows", "index_pending", rates[SPARSE], 2, index_dim, rotated, eps),
            hyper=HyperShape(config["hc_mult"], config["hc_sinkhorn_iters"], float(config["hc_eps"]), eps),
            num_experts=config["n_routed_experts"],
            experts_per_token=config["num_experts_per_tok"],
            routing_scale=float(config["routed_scaling_factor"]),
            gate_limit=float(config["swiglu_limit"]),
            rms_norm_eps=eps,
            rope_theta=float(config["rope_theta"]),
            history_rope_theta=float(config["compress_rope_theta"]),
            history_rope_scaling=config["rope_scaling"],
            context_length=unstretched_length(config, context_length),
        )


@dataclass(frozen=True)
class DeepseekV4Layer:
    """Weights of one layer; everything that reads the same rows is one matrix."""

    attention_mixture: HyperConnection
    attention_norm: Tensor
    down: Tensor
    """[query_rank + head_dim + compressor inputs, hidden]"""
    query_norm: Tensor
    query_up: Tensor
    row_norm: Tensor
    sinks: Tensor
    """[heads] float32"""
    out_groups: Tensor
    """[groups, out_rank, heads × head_dim / groups]"""
    out: Tensor
    expert_mixture: HyperConnection
    expert_norm: Tensor
    router: SoftplusRouter
    experts: Experts
    history: WindowOnly | HeavyHistory | SparseHistory


@dataclass(frozen=True)
class DraftAround:
    """Weights around a drafting layer: join the next token's embedding to each stream; a mixture and a norm of its own."""

    embedding_norm: Tensor
    stream_norm: Tensor
    embedding_product: Tensor
    stream_product: Tensor
    mixture: HyperHead
    final_norm: Tensor


class DeepseekV4:
    """A DeepSeek V4 model on one device. State, reusable at whole lengths only:

    `window` [layers, window, head_dim] fixed · for sparse layers `sparse_rows`, `index_rows` growing by one row for 4 tokens
    and `sparse_pending`, `index_pending` fixed · for heavy layers `heavy_rows` (one for 128) and `heavy_pending` fixed ·
    with `drafting` also `draft_window`, fixed, advisory.
    """

    architecture = "deepseek_v4"

    def __init__(
        self,
        config: DeepseekV4Config,
        tensors: Mapping[str, Tensor],
        numerics: Numerics,
        device: torch.device | None = None,
        drafting: bool = False,
    ) -> None:
        self.config = config
        self.numerics = numerics
        self.device = device or torch.device("cpu")
        self.vocab_size = config.vocab_size
        self.context_length = config.context_length
        parameters = Parameters(tensors, numerics, self.device)
        self.embedding = parameters.take("embed.weight")
        self.head = parameters.take("head.weight")
        self._norm = parameters.exact("norm.weight")
        self._mixture = HyperHead.take(parameters, config.hyper)
        self._layers = [
            self._take_layer(parameters.below(f"layers.{index}."), kind, config.layer_kinds[:index].count(kind), hashed)
            for index, (kind, hashed) in enumerate(zip(config.layer_kinds, config.hashed_layers, strict=True))
        ]
        drafts = [parameters.below(f"mtp.{depth}.") for depth in range(config.num_draft_layers if drafting else 0)]
        self._draft_layers = [self._take_layer(below, WINDOW, depth, False) for depth, below in enumerate(drafts)]
        self._around = [self._take_around(below) for below in drafts]
        length, dtype = config.context_length, numerics.dtype
        self._window_rope = build_pair_rope(config.rotated_dim, config.rope_theta, length, dtype, self.device)
        self._history_rope = build_pair_rope(
            config.rotated_dim, config.history_rope_theta, length, dtype, self.device, config.history_rope_scaling
        )
        self.state = self.declare_state(config, dtype, len(drafts))

    @staticmethod
    def declare_state(config: DeepseekV4Config, dtype: torch.dtype, num_draft_layers: int = 0) -> StateDeclaration:
        ring = (config.window, config.head_dim)
        tensors = [StateTensor("window", len(config.layer_kinds), ring, dtype, grows=False)]
        for kind, shapes in ((SPARSE, (config.sparse, config.sparse_index)), (HEAVY, (config.heavy,))):
            layers = config.layer_kinds.count(kind)
            for shape in shapes if layers else ():
                tensors.append(StateTensor(shape.rows, layers, (shape.dim,), dtype, tokens_per_row=shape.ratio))
                tensors.append(StateTensor(shape.pending, layers, shape.pending_shape, dtype, grows=False))
        if num_draft_layers:
            tensors.append(StateTensor("draft_window", num_draft_layers, ring, dtype, grows=False, advisory=True))
        return StateDeclaration(tensors)

    def forward(self, step: Step) -> Tensor:
        embedded = F.embedding(step.ids, self.embedding)  # [rows, hidden]
        streams = embedded.unsqueeze(1).repeat(1, self.config.hyper.streams, 1)
        step.wait_for(len(self._layers) - 1)  # kinds of layers are spread unevenly: a tensor's depth is not the layer's
        for index, layer in enumerate(self._layers):
            streams = self._block(streams, "window", index, layer, step)
            if step.features is not None:
                step.features.take(index, streams)
        return streams.flatten(1)

    def logits(self, hidden: Tensor) -> Tensor:
        return self._project(hidden, self._mixture, self._norm)

    @property
    def num_draft_layers(self) -> int:
        """Layers for further tokens that are loaded."""
        return len(self._draft_layers)

    def draft(self, depth: int, step: Step, hidden: Tensor) -> Tensor:
        """The layer `depth` for further tokens: `step` brings the *next* token of each row, `hidden` the row before it.

        → streams [padded rows, streams × hidden] for `draft_logits`, each one token further.
        """
        around, numerics = self._around[depth], self.numerics
        embedded = self._normed(F.embedding(step.ids, self.embedding), around.embedding_norm)
        joined = numerics.linear(embedded, around.embedding_product).unsqueeze(1)
        streams = hidden.view(hidden.shape[0], self.config.hyper.streams, -1)
        own = numerics.linear(self._normed(streams, around.stream_norm).flatten(0, 1), around.stream_product)
        streams = own.view(streams.shape) + joined
        return self._block(streams, "draft_window", depth, self._draft_layers[depth], step).flatten(1)

    def draft_logits(self, depth: int, hidden: Tensor) -> Tensor:
        """The output head over rows of `draft`."""
        return self._project(hidden, self._around[depth].mixture, self._around[depth].final_norm)

    def _project(self, hidden: Tensor, mixture: HyperHead, norm: Tensor) -> Tensor:
        rows = self.numerics.pad_rows(hidden)
        row = mixture.collapse(rows.view(rows.shape[0], self.config.hyper.streams, -1), self.numerics)
        return self.numerics.linear(self._normed(row, norm), self.head)[: hidden.shape[0]].float()

    def _normed(self, rows: Tensor, weight: Tensor | None) -> Tensor:
        """The norm, whole in float32."""
        return self.numerics.rms_norm(rows.float(), weight, self.config.rms_norm_eps).to(rows.dtype)

    def _block(self, streams: Tensor, window: str, index: int, layer: DeepseekV4Layer, step: Step) -> Tensor:
        row, mixed = layer.attention_mixture.collapse(streams, self.numerics)
        streams = mixed.spread(self._attend(self._normed(row, layer.attention_norm), window, index, layer, step), streams)
        row, mixed = layer.expert_mixture.collapse(streams, self.numerics)
        normed = self._normed(row, layer.expert_norm)
        routing = layer.router.route(normed[: step.num_rows], step.ids[: step.num_rows], self.numerics)
        return mixed.spread(layer.experts.apply(normed, routing, self.numerics), streams)

    def _attend(self, normed: Tensor, window: str, index: int, layer: DeepseekV4Layer, step: Step) -> Tensor:
        config, numerics = self.config, self.numerics
        rope = self._window_rope if isinstance(layer.history, WindowOnly) else self._history_rope
        cos, sin = rope.at(step.positions)
        down = numerics.linear(normed, layer.down)
        query_latent, row, *inputs = torch.split(down, [config.query_rank, config.head_dim, *layer.history.widths], -1)
        query_latent = self._normed(query_latent, layer.query_norm)
        queries = numerics.linear(query_latent, layer.query_up).view(-1, config.num_heads, config.head_dim)
        queries = rotate_tail(self._normed(queries, None), config.rotated_dim, cos, sin)
        row = rotate_tail(self._normed(row, layer.row_norm).unsqueeze(1), config.rotated_dim, cos, sin).squeeze(1)

        attention = WindowAttention(window, config.num_heads, config.head_dim, config.window, numerics)
        told = StepRows(step, inputs, query_latent, normed, cos, sin, self._history_rope, numerics)
        histories = layer.history.take_in(told)
        attended = torch.zeros_like(queries)
        for lane, history in zip(step.lanes, histories, strict=True):
            rows = slice(lane.row, lane.row + lane.num_rows)
            attended[rows] = attention.attend(index, lane, queries[rows], row[rows], layer.sinks, history)
        # Key and value are one row, so the value came rotated; turned back at the query, what is left is their distance.
        attended = rotate_tail(attended, config.rotated_dim, cos, -sin)
        grouped = numerics.grouped_linear(attended.reshape(attended.shape[0], config.out_groups, -1), layer.out_groups)
        return numerics.linear(grouped.reshape(attended.shape[0], -1), layer.out)

    def _take_layer(self, parameters: Parameters, kind: str, place: int, hashed: bool) -> DeepseekV4Layer:
        config = self.config
        attention, experts = parameters.below("attn."), parameters.below("ffn.")
        names = ["wq_a.weight", "wkv.weight"]
        history: WindowOnly | HeavyHistory | SparseHistory = WindowOnly()
        if kind == HEAVY:
            names += ["compressor.wkv.weight", "compressor.wgate.weight"]
            history = HeavyHistory(place, Compressor.take(attention.below("compressor."), config.heavy))
        elif kind == SPARSE:
            names += ["compressor.wkv.weight", "compressor.wgate.weight"]
            names += ["indexer.compressor.wkv.weight", "indexer.compressor.wgate.weight"]
            history = SparseHistory(
                place,
                Compressor.take(attention.below("compressor."), config.sparse),
                Compressor.take(attention.below("indexer.compressor."), config.sparse_index),
                config.indexer,
                attention.take("indexer.wq_b.weight"),
                attention.exact("indexer.weights_proj.weight"),
            )
        return DeepseekV4Layer(
            attention_mixture=HyperConnection.take(parameters, "hc_attn", config.hyper),
            attention_norm=parameters.exact("attn_norm.weight"),
            down=attention.join(*names),
            query_norm=attention.exact("q_norm.weight"),
            query_up=attention.take("wq_b.weight"),
            row_norm=attention.exact("norm.weight"),
            sinks=attention.exact("attn_sink"),
            out_groups=attention.take("wo_a.weight").view(config.out_groups, config.out_rank, -1),
            out=attention.take("wo_b.weight"),
            expert_mixture=HyperConnection.take(parameters, "hc_ffn", config.hyper),
            expert_norm=parameters.exact("ffn_norm.weight"),
            router=SoftplusRouter(
                experts.exact("gate.weight"),
                config.experts_per_token,
                config.routing_scale,
                bias=None if hashed else experts.exact("gate.bias"),
                table=experts.exact("gate.tid2eid") if hashed else None,
            ),
            experts=Experts.take(experts, config.num_experts, config.gate_limit, _EXPERT_NAMES),
            history=history,
        )

    def _take_around(self, parameters: Parameters) -> DraftAround:
        return DraftAround(
            embedding_norm=parameters.exact("enorm.weight"),
            stream_norm=parameters.exact("hnorm.weight"),
            embedding_product=parameters.take("e_proj.weight"),
            stream_product=parameters.take("h_proj.weight"),
            mixture=HyperHead.take(parameters, self.config.hyper),
            final_norm=parameters.exact("norm.weight"),
        )
