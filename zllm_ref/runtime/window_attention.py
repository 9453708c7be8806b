"""Attention over the last tokens, a compressed history, and a sink: one shared row is key and value (DeepSeek V4).

    positions      | tile T-1 ....... | tile T ...t.... |       tiles of the window's length, at absolute positions
    row t sees             xxxxxxxxxxx xxxxxx                   the last `window` positions, itself among them
    history        | 0 .. 127 | 128 .. 255 | …                  compressed rows, those that are closed (and chosen)
    sink           a logit a head: takes weight, gives nothing

The ring holds the last `window` rows, position p in slot p mod window. A row always meets its keys in the same tiles and at
the same places in them: history first, then tile T-1, then tile T, wherever the prompt was cut.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from zllm_ref.runtime.numerics import Numerics, RunningAttention, round_up
from zllm_ref.runtime.step import LaneSlice

HISTORY_TILE = 128
"""Compressed rows in one tile."""


@dataclass(frozen=True)
class History:
    """Compressed rows [rows, dim] of a lane, as many as `whole_tiles` gives; `visible` [lane rows, rows] bool."""

    rows: Tensor
    visible: Tensor


class WindowAttention:
    """Attention of all layers over the fixed state tensor `name`, [layers, window, dim]."""

    def __init__(self, name: str, heads: int, dim: int, window: int, numerics: Numerics) -> None:
        self.name = name
        self.heads, self.dim, self.window = heads, dim, window
        self.scale = dim**-0.5
        self.numerics = numerics

    def attend(self, layer: int, lane: LaneSlice, queries: Tensor, new: Tensor, sinks: Tensor, history: History | None) -> Tensor:
        """Attention of one lane's rows; then the ring takes in the lane's rows.

        queries [rows, heads, dim] · new [rows, dim] · sinks [heads] float32 → [rows, heads, dim].
        """
        ring = lane.state.tensors[self.name][layer]
        start, end, window = lane.start, lane.start + lane.num_rows, self.window
        first_tile = start // window
        tiles = self._tiles(ring, start, end, new)
        outputs = []
        for tile in range(first_tile, (end - 1) // window + 1):  # rows of one tile see that tile and the one before it
            rows = slice(max(start, tile * window) - start, min(end, (tile + 1) * window) - start)
            place = tile - first_tile
            outputs.append(
                self._attend_rows(
                    queries[rows],
                    torch.arange(start + rows.start, start + rows.stop, device=new.device),
                    ((tile - 1) * window, tiles[place]),
                    (tile * window, tiles[place + 1]),
                    sinks,
                    None if history is None else History(history.rows, history.visible[rows]),
                )
            )
        kept = torch.arange(max(start, end - window), end, device=new.device)
        ring[kept % window] = new[kept - start]
        return torch.cat(outputs)

    def _tiles(self, ring: Tensor, start: int, end: int, new: Tensor) -> Tensor:
        """[tiles, window, dim]: the rows of positions from the tile before `start` to `end`, zeros where nobody looks."""
        window = self.window
        base = (start // window - 1) * window
        rows = new.new_zeros((round_up(end - base, window), self.dim))
        earlier = torch.arange(max(0, start - window), start, device=new.device)
        rows[earlier - base] = ring[earlier % window]
        rows[start - base : end - base] = new
        return rows.view(-1, window, self.dim)

    def _attend_rows(
        self,
        queries: Tensor,
        positions: Tensor,
        before: tuple[int, Tensor],
        own: tuple[int, Tensor],
        sinks: Tensor,
        history: History | None,
    ) -> Tensor:
        count = queries.shape[0] * self.heads
        flat = self.numerics.pad_rows(queries.reshape(count, self.dim))
        padded_sinks = F.pad(sinks.repeat(queries.shape[0]), (0, flat.shape[0] - count)).unsqueeze(-1)
        running = RunningAttention(flat, self.dim, self.scale, padded_sinks)
        if history is not None:
            for first in range(0, history.rows.shape[0], HISTORY_TILE):
                rows = history.rows[first : first + HISTORY_TILE]
                running.add(rows, rows, self._mask(history.visible[:, first : first + HISTORY_TILE], flat.shape[0]))
        for first, rows in (before, own):
            keys = torch.arange(first, first + self.window, device=positions.device)
            age = positions[:, None] - keys[None, :]
            visible = (age >= 0) & (age < self.window) & (keys >= 0)[None, :]
            running.add(rows, rows, self._mask(visible, flat.shape[0]))
        return running.result()[:count].view(-1, self.heads, self.dim)

    def _mask(self, visible: Tensor, padded: int) -> Tensor:
        """[padded, keys] float32: a row of `visible` for each head."""
        mask = torch.zeros(visible.shape, device=visible.device).masked_fill_(~visible, float("-inf"))
        mask = mask.repeat_interleave(self.heads, 0)
        return F.pad(mask, (0, 0, 0, padded - mask.shape[0]))


def whole_tiles(rows: Tensor, count: int, readable: int) -> Tensor:
    """The first `count` of `rows` [rows, dim], up to a whole tile: in place where the state has that many, else padded."""
    padded = round_up(count, HISTORY_TILE)
    if padded <= readable:
        return rows[:padded]
    return F.pad(rows[:count], (0, 0, 0, padded - count))
