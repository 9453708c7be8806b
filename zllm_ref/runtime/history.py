"""What a layer remembers beyond its window: nothing, every compressed row, or those that an indexer chooses (DeepSeek V4).

    WindowOnly      —
    HeavyHistory    compressor ─▶ all closed rows
    SparseHistory   compressor ─▶ closed rows      index compressor ─▶ keys ─▶ indexer ─▶ which of the rows

Each takes a step's tokens into the state and says, lane by lane, which compressed rows the lane's tokens may see: those
whose last token is not younger than they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from zllm_ref.runtime.compressor import Compressor, CompressorShape, rotate_tail
from zllm_ref.runtime.indexer import Indexer
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.rope import RopeTable
from zllm_ref.runtime.step import LaneSlice, Step
from zllm_ref.runtime.window_attention import History, whole_tiles


@dataclass(frozen=True)
class StepRows:
    """A layer's rows of one step: compressor inputs, query latents, the normed rows; rotation of queries and of histories."""

    step: Step
    inputs: list[Tensor]
    query_latent: Tensor
    normed: Tensor
    cos: Tensor
    sin: Tensor
    rope: RopeTable
    numerics: Numerics


@dataclass(frozen=True)
class WindowOnly:
    """A layer that sees its window and nothing else."""

    @property
    def widths(self) -> list[int]:
        """Columns of the layer's first product that are its compressors' inputs."""
        return []

    def take_in(self, rows: StepRows) -> list[History | None]:
        return [None for _ in rows.step.lanes]


@dataclass(frozen=True)
class HeavyHistory:
    """A layer that sees all compressed rows. `place`: its index among the layers of this kind."""

    place: int
    compressor: Compressor

    @property
    def widths(self) -> list[int]:
        return [2 * self.compressor.shape.dim]

    def take_in(self, rows: StepRows) -> list[History | None]:
        result: list[History | None] = []
        for lane in rows.step.lanes:
            extend(self.compressor, self.place, lane, rows.inputs[0], rows)
            result.append(History(*closed_rows(self.compressor.shape, self.place, lane, rows.step)))
        return result


@dataclass(frozen=True)
class SparseHistory:
    """A layer that sees the compressed rows that its indexer chooses. `place`: its index among the layers of this kind."""

    place: int
    compressor: Compressor
    index_compressor: Compressor
    indexer: Indexer
    index_queries: Tensor
    """[index_heads × index_dim, query_rank]"""
    index_weights: Tensor
    """[index_heads, hidden] float32"""

    @property
    def widths(self) -> list[int]:
        return [4 * self.compressor.shape.dim, 4 * self.index_compressor.shape.dim]

    def take_in(self, rows: StepRows) -> list[History | None]:
        numerics, indexer = rows.numerics, self.indexer
        queries = numerics.linear(rows.query_latent, self.index_queries).view(-1, indexer.heads, indexer.dim)
        queries = rotate_tail(queries, self.index_compressor.shape.rotated_dim, rows.cos, rows.sin)
        weights = numerics.float32_linear(rows.normed, self.index_weights) * indexer.heads**-0.5
        result: list[History | None] = []
        for lane in rows.step.lanes:
            own = slice(lane.row, lane.row + lane.num_rows)
            extend(self.compressor, self.place, lane, rows.inputs[0], rows)
            extend(self.index_compressor, self.place, lane, rows.inputs[1], rows)
            compressed, visible = closed_rows(self.compressor.shape, self.place, lane, rows.step)
            keys, _ = closed_rows(self.index_compressor.shape, self.place, lane, rows.step)
            if visible.shape[1]:
                visible = indexer.choose(queries[own], weights[own], keys, visible, numerics)
            result.append(History(compressed, visible))
        return result


def extend(compressor: Compressor, place: int, lane: LaneSlice, inputs: Tensor, rows: StepRows) -> None:
    """Takes the lane's tokens into one compressor of the lane's state."""
    shape, tensors = compressor.shape, lane.state.tensors
    new = inputs[lane.row : lane.row + lane.num_rows].reshape(lane.num_rows, 2, -1)  # kv, then gate
    compressor.extend(tensors[shape.pending][place], tensors[shape.rows][place], lane.start, new, rows.rope, rows.numerics)


def closed_rows(shape: CompressorShape, place: int, lane: LaneSlice, step: Step) -> tuple[Tensor, Tensor]:
    """The lane's compressed rows in whole tiles [rows, dim], and which each of its tokens may see [lane rows, rows]."""
    count = (lane.start + lane.num_rows) // shape.ratio
    rows = whole_tiles(lane.state.tensors[shape.rows][place], count, lane.state.readable_rows(shape.rows))
    positions = step.positions[lane.row : lane.row + lane.num_rows]
    closed = torch.div(positions + 1, shape.ratio, rounding_mode="floor")
    return rows, torch.arange(rows.shape[0], device=positions.device)[None, :] < closed[:, None]
