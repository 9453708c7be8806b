"""Prompts into state: what a hit already holds is copied, the rest is computed in chunks.

prompt   |—— restored ——|—— chunk ——|—— chunk ——|last|
                                                  └── its hidden row gives the first token
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from zllm_ref.cache.block import Hit
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.state import Payload, SessionState
from zllm_ref.runtime.step import build_step, commit_step


@dataclass(frozen=True)
class ChunkRows:
    """What a chunk leaves: the final row behind its last id [1, width], and what a drafter reads of all its rows [n, width]."""

    last: Tensor
    followed: Tensor


def restore(state: SessionState, hit: Hit) -> None:
    """Copies a saved state into an empty session."""
    for use in hit.blocks:
        state.load_rows(use.start, use.num_rows, cast(Payload, use.payload))
    if hit.fixed is not None:
        state.load_fixed(cast(Payload, hit.fixed))
    state.prepare(hit.length)
    state.length = hit.length


def run_chunk(model: Model, state: SessionState, ids: NDArray[np.int32], feature_layers: tuple[int, ...] = ()) -> ChunkRows:
    """Appends `ids` to the state."""
    step = build_step([(state, ids.tolist())], model.numerics, model.device, feature_layers)
    hidden = model.forward(step)
    commit_step(step)
    followed = hidden if step.features is None else step.features.side_by_side()
    return ChunkRows(hidden[step.num_rows - 1 : step.num_rows], followed[: step.num_rows])
