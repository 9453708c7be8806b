"""Grouped-query attention of a step over linear K/V state, lane by lane, in the shapes that `numerics` prescribes.

The state tensor holds keys and values of a token side by side, [layers, tokens, 2, kv_heads, dim]: one write a lane and
layer, and keys and values are read in place, never gathered. The query heads of a group become rows of one product with
their shared key head:

    queries  [rows, kv_heads, group, dim]  →  [1, kv_heads, rows × group (+ padding), dim]
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from zllm_ref.runtime.numerics import KEY_TILE, Numerics, causal_mask, round_up
from zllm_ref.runtime.state import SessionState
from zllm_ref.runtime.step import LaneSlice, Step


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
    """Lanes of any number of rows: prefill chunks, appends, verifications."""

    def __init__(self, attention: KeyValueAttention, step: Step) -> None:
        self._attention = attention
        self._step = step
        self._result = torch.zeros(
            (step.ids.shape[0], attention.heads * attention.dim), dtype=attention.numerics.dtype, device=step.ids.device
        )
        self._lanes = [self._prepare(lane, step) for lane in step.lanes]

    def _prepare(self, lane: LaneSlice, step: Step) -> tuple[Tensor, list[tuple[Tensor, Tensor]], Tensor]:
        attention, numerics = self._attention, self._attention.numerics
        key_length = numerics.key_length(lane.start + lane.num_rows)
        rows = lane.num_rows * attention.group
        positions = step.positions[lane.row : lane.row + lane.num_rows].repeat_interleave(attention.group)
        mask = causal_mask(positions, key_length, numerics.dtype)
        padded = numerics.query_rows(rows)
        if padded != rows:  # padding rows see everything: their result is thrown away
            mask = torch.cat((mask, mask.new_zeros((1, 1, padded - rows, key_length))), 2)
        queries = mask.new_zeros((1, attention.kv_heads, padded, attention.dim))
        return mask, attention.views(lane.state, key_length), queries

    def attend(self, layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        attention = self._attention
        heads = (attention.kv_heads, attention.group, attention.dim)
        for lane, (mask, views, padded) in zip(self._step.lanes, self._lanes, strict=True):
            if lane.state.gate is not None:
                lane.state.gate(layer)
            end = lane.row + lane.num_rows
            lane.state.tensors[attention.name][layer, lane.start : lane.start + lane.num_rows].copy_(keys_values[lane.row : end])
            rows = lane.num_rows * attention.group
            padded[0, :, :rows].view(attention.kv_heads, lane.num_rows, attention.group, attention.dim).copy_(
                queries[lane.row : end].view(-1, *heads).transpose(0, 1)
            )
            keys, values = views[layer]
            output = attention.numerics.attend(padded, keys, values, mask, attention.scale)
            self._result[lane.row : end].view(-1, *heads).copy_(
                output[0, :, :rows].view(attention.kv_heads, lane.num_rows, attention.group, attention.dim).transpose(0, 1)
            )
        return self._result
