"""Grouped-query attention of a step over linear K/V state, lane by lane, in the shapes that `numerics` prescribes.

The state tensor holds keys and values of a token side by side, [layers, tokens, 2, kv_heads, dim]: one write a lane and
layer, and keys and values are read in place, never gathered. The query heads of a group become rows of one product with
their shared key head:

    queries  [rows, kv_heads, group, dim]  →  [1, kv_heads, rows × group (+ padding), dim]
"""

from __future__ import annotations

from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from zllm_ref.runtime.numerics import KEY_TILE, Numerics, causal_mask, round_up
from zllm_ref.runtime.state import SessionState
from zllm_ref.runtime.step import LaneSlice, Step

QUERY_TILE_TOKENS = 128
"""Rows of a lane that attend together while few keys lie before them: small tiles compute less of what is masked."""
LONG_QUERY_TILE_TOKENS = 512
"""The same where many keys do: the kernel then works in its largest row blocks, evenly spread over two threads."""
LONG_CONTEXT_TOKENS = 1536
"""From this position on there are many."""
CONTIGUOUS_KEYS_TOKENS, CONTIGUOUS_KEYS_ROWS = 2048, 256
"""So many keys, read by so many rows, are worth one copy into the order in which the kernel reads them."""


class StepAttention(Protocol):
    """Attention prepared for one step; called once a layer."""

    def attend(self, layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        """Stores the step's keys and values, returns each row's attention.

        queries [rows, heads, dim] · keys_values [rows, 2, kv_heads, dim] → [padded rows, heads × dim].
        """


class KeyValueAttention:
    """Attention over one growing state tensor `name`, for one model's head shape."""

    def __init__(
        self, name: str, heads: int, kv_heads: int, dim: int, context_length: int, numerics: Numerics, device: torch.device
    ) -> None:
        self.name = name
        self.heads, self.kv_heads, self.dim = heads, kv_heads, dim
        self.group = heads // kv_heads
        self.scale = dim**-0.5
        self.numerics = numerics
        self._visible = round_up(context_length, KEY_TILE)
        # zeros, then -inf: every decode mask is a window of this strip
        self._strip = torch.zeros(2 * self._visible, dtype=numerics.dtype, device=device)
        self._strip[self._visible :] = float("-inf")

    def prepare(self, step: Step) -> StepAttention:
        """What a step's layers share: masks, padded queries, views of the keys."""
        return _DecodeRound(self, step) if step.is_decode_round else _Chunks(self, step)

    def decode_mask(self, num_keys: int, key_length: int) -> Tensor:
        """[1, 1, 1, key_length]: the first `num_keys` visible."""
        start = self._visible - num_keys
        return self._strip[start : start + key_length][None, None, None]

    def views(self, state: SessionState, key_length: int) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of each layer, [1, kv_heads, key_length, dim], as they lie in the state."""
        cached = state.views.get(self.name)
        if cached is not None and cached[0] == key_length:
            return cached[1]
        tensor = state.tensors[self.name][:, :key_length].permute(0, 2, 3, 1, 4)
        views = [(layer[0][None], layer[1][None]) for layer in tensor]
        state.views[self.name] = (key_length, views)
        return views


class _DecodeRound:
    """Every lane brings one row: one padded query tensor for the round, one product with the keys a lane."""

    def __init__(self, attention: KeyValueAttention, step: Step) -> None:
        numerics = attention.numerics
        lanes = len(step.lanes)
        self._attention = attention
        self._stores = [(lane.state.tensors[attention.name], lane.start) for lane in step.lanes]
        self._gates = [lane.state.gate for lane in step.lanes if lane.state.gate is not None]
        query_rows = numerics.query_rows(attention.group)
        shape = (lanes, attention.kv_heads, query_rows, attention.dim)
        self._queries = torch.zeros(shape, dtype=numerics.dtype, device=step.ids.device)
        self._real_queries = self._queries[:, :, : attention.group]
        self._result = self._queries.new_zeros((step.ids.shape[0], attention.heads * attention.dim))
        self._real_result = self._result[:lanes].view(lanes, attention.kv_heads, attention.group, attention.dim)
        lengths = [numerics.key_length(lane.start + 1) for lane in step.lanes]
        self._masks = [attention.decode_mask(lane.start + 1, n) for lane, n in zip(step.lanes, lengths, strict=True)]
        self._views = [attention.views(lane.state, n) for lane, n in zip(step.lanes, lengths, strict=True)]

    def attend(self, layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        attention = self._attention
        for gate in self._gates:
            gate(layer)
        self._real_queries.copy_(queries.view(-1, attention.kv_heads, attention.group, attention.dim))
        outputs = []
        for index, (tensor, position) in enumerate(self._stores):
            tensor[layer, position].copy_(keys_values[index])
            keys, values = self._views[index][layer]
            outputs.append(
                attention.numerics.attend(self._queries[index : index + 1], keys, values, self._masks[index], attention.scale)
            )
        output = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        self._real_result.copy_(output[:, :, : attention.group])
        return self._result


class _Chunks:
    """Lanes of any number of rows: prefill chunks, appends, verifications.

    A lane is cut into query tiles at absolute positions, each with as many keys as its last row sees: of the square above
    the diagonal only what lies in the last key step is computed, whatever the chunk's length.
    """

    def __init__(self, attention: KeyValueAttention, step: Step) -> None:
        self._attention = attention
        self._lanes = step.lanes
        self._result = torch.zeros(
            (step.ids.shape[0], attention.heads * attention.dim), dtype=attention.numerics.dtype, device=step.ids.device
        )
        self._views = [attention.views(lane.state, round_up(lane.start + lane.num_rows, KEY_TILE)) for lane in step.lanes]
        self._tiles = [[_Tile(attention, step, lane, *rows) for rows in _tile_rows(lane)] for lane in step.lanes]

    def attend(self, layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        attention = self._attention
        heads = (attention.kv_heads, attention.group, attention.dim)
        for lane, views, tiles in zip(self._lanes, self._views, self._tiles, strict=True):
            if lane.state.gate is not None:
                lane.state.gate(layer)
            lane.state.tensors[attention.name][layer, lane.start : lane.start + lane.num_rows].copy_(
                keys_values[lane.row : lane.row + lane.num_rows]
            )
            keys, values = views[layer]
            if lane.num_rows >= CONTIGUOUS_KEYS_ROWS and keys.shape[2] >= CONTIGUOUS_KEYS_TOKENS:
                keys, values = keys.contiguous(), values.contiguous()
            for tile in tiles:
                tile.real_queries.copy_(queries[tile.first : tile.end].view(-1, *heads).transpose(0, 1))
                seen = tile.key_length
                output = attention.numerics.attend(
                    tile.queries, keys[:, :, :seen], values[:, :, :seen], tile.mask, attention.scale
                )
                self._result[tile.first : tile.end].view(-1, *heads).copy_(
                    output[0, :, : tile.num_queries].view(tile.real_queries.shape).transpose(0, 1)
                )
        return self._result


class _Tile:
    """Some rows of one lane, step rows [first, end): their padded queries, their mask, how many keys they read."""

    def __init__(self, attention: KeyValueAttention, step: Step, lane: LaneSlice, first: int, end: int) -> None:
        numerics, group = attention.numerics, attention.group
        self.first, self.end = first, end
        self.num_queries = (end - first) * group
        self.key_length = numerics.key_length(lane.start + end - lane.row)
        padding = numerics.query_rows(self.num_queries) - self.num_queries
        mask = causal_mask(step.positions[first:end].repeat_interleave(group), self.key_length, numerics.dtype)
        # padding rows see everything: their result is thrown away
        self.mask = torch.nn.functional.pad(mask, (0, 0, 0, padding)) if padding else mask
        self.queries = mask.new_zeros((1, attention.kv_heads, self.num_queries + padding, attention.dim))
        shape = (attention.kv_heads, end - first, group, attention.dim)
        self.real_queries = self.queries[0, :, : self.num_queries].view(shape)


def _tile_rows(lane: LaneSlice) -> list[tuple[int, int]]:
    """Step rows of a lane, cut at absolute positions."""
    end = lane.start + lane.num_rows
    cuts = [lane.start]
    while cuts[-1] < end:
        tile = QUERY_TILE_TOKENS if cuts[-1] < LONG_CONTEXT_TOKENS else LONG_QUERY_TILE_TOKENS
        cuts.append(min(end, (cuts[-1] // tile + 1) * tile))
    return list(pairwise(lane.row + cut - lane.start for cut in cuts))
