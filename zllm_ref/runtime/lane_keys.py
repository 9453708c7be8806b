"""Which keys the rows of a lane may see, in whole tiles: an indexer's product has one shape, never a cut one.

keys      |0 ............ position ...| future |  zeroed rest of the tile |
visible    1 1 1 1 1 1 1 1 1 1 1 1 1   0 0 0 0   0 0 0 0 0 0 0
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from zllm_ref.runtime.numerics import KEY_TILE, Numerics, round_up
from zllm_ref.runtime.step import LaneSlice, Step


@dataclass(frozen=True)
class LaneKeys:
    """One lane of a step. `visible` [rows, key_length] bool: key index ≤ the row's position."""

    lane: LaneSlice
    key_length: int
    visible: Tensor

    @property
    def rows(self) -> slice:
        """The lane's rows in the step."""
        return slice(self.lane.row, self.lane.row + self.lane.num_rows)

    @property
    def tokens(self) -> slice:
        """The lane's rows in its state."""
        return slice(self.lane.start, self.lane.start + self.lane.num_rows)


def lane_keys(step: Step, numerics: Numerics) -> list[LaneKeys]:
    """What the layers of a step share: made once, used by each."""
    result = []
    for lane in step.lanes:
        num_keys = lane.start + lane.num_rows
        key_length = round_up(num_keys, KEY_TILE) if numerics.invariant else num_keys
        positions = step.positions[lane.row : lane.row + lane.num_rows]
        keys = torch.arange(key_length, device=positions.device)
        result.append(LaneKeys(lane, key_length, keys[None, :] <= positions[:, None]))
    return result
