"""One pass of the model over some rows of some sequences: what goes in, before any layer is computed.

    rows      0 1 2 3 4 5 6 7 | 8 | 9 | padding
    lanes     lane 0 (chunk)  | 1 | 2 |            one lane = consecutive tokens of one sequence

A prefill chunk, an append, a decode round and a verification differ in how many rows each lane brings, in nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.state import SessionState


@dataclass(frozen=True)
class LaneSlice:
    """`num_rows` tokens of one sequence, at positions start …, in the step's rows row …"""

    state: SessionState
    start: int
    num_rows: int
    row: int


@dataclass(frozen=True)
class LayerFeatures:
    """What a drafter reads beside the last row: the rows that leave chosen layers, before any norm. A forward pass fills it.

    `layers`: counted from 0, ascending. Where layers pass on several streams, a row is the mean of them.
    """

    layers: tuple[int, ...]
    _rows: dict[int, Tensor] = field(default_factory=dict)

    def take(self, layer: int, rows: Tensor) -> None:
        """`rows` [padded rows, width, or streams × width as a middle dimension] leave `layer`."""
        if layer in self.layers:
            self._rows[layer] = rows if rows.dim() == 2 else rows.mean(1)

    def side_by_side(self) -> Tensor:
        """[padded rows, layers × width], in the order of `layers`."""
        return torch.cat([self._rows[layer] for layer in self.layers], -1)


@dataclass(frozen=True)
class Step:
    """ids, positions [padded rows] int64; padding rows hold id 0 at position 0 and belong to no lane.

    `features`: None in the usual case, where nobody asks for the rows of layers inside.
    """

    ids: Tensor
    positions: Tensor
    lanes: tuple[LaneSlice, ...]
    num_rows: int
    features: LayerFeatures | None = None

    @property
    def is_decode_round(self) -> bool:
        """True where every lane brings exactly one row."""
        return self.num_rows == len(self.lanes)

    def wait_for(self, layer: int) -> None:
        """Returns when the rows of `layer` are there, in every lane whose state is still being restored."""
        for lane in self.lanes:
            if lane.state.gate is not None:
                lane.state.gate(layer)


def build_step(
    lanes: Sequence[tuple[SessionState, Sequence[int]]],
    numerics: Numerics,
    device: torch.device,
    feature_layers: tuple[int, ...] = (),
) -> Step:
    """A step that appends to each state its ids. Makes the states' rows writable; their length grows by `commit_step`."""
    ids: list[int] = []
    positions: list[int] = []
    slices: list[LaneSlice] = []
    for state, new_ids in lanes:
        start = state.length
        state.prepare(start + len(new_ids))
        slices.append(LaneSlice(state, start, len(new_ids), len(ids)))
        ids.extend(new_ids)
        positions.extend(range(start, start + len(new_ids)))
    num_rows = len(ids)
    padding = [0] * (numerics.padded_rows(num_rows) - num_rows)
    both = torch.tensor([ids + padding, positions + padding], dtype=torch.int64, device=device)
    features = LayerFeatures(feature_layers) if feature_layers else None
    return Step(both[0], both[1], tuple(slices), num_rows, features)


def commit_step(step: Step) -> None:
    """The step's rows are written: the states are that much longer."""
    for lane in step.lanes:
        lane.state.length = lane.start + lane.num_rows
