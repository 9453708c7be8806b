"""Prompts into state: what a hit already holds is copied, the rest is computed in chunks.

prompt   |—— restored ——|—— chunk ——|—— chunk ——|last|
                                                  └── its hidden row gives the first token
"""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from zllm_ref.cache.block import Hit
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.state import Payload, SessionState
from zllm_ref.runtime.step import build_step, commit_step


def restore(state: SessionState, hit: Hit) -> None:
    """Copies a saved state into an empty session."""
    for use in hit.blocks:
        state.load_rows(use.start, use.num_rows, cast(Payload, use.payload))
    if hit.fixed is not None:
        state.load_fixed(cast(Payload, hit.fixed))
    state.prepare(hit.length)
    state.length = hit.length


def run_chunk(model: Model, state: SessionState, ids: NDArray[np.int32]) -> Tensor:
    """Appends `ids` to the state. → the hidden row of the last of them, [1, width]."""
    step = build_step([(state, ids.tolist())], model.numerics, model.device)
    hidden = model.forward(step)
    commit_step(step)
    return hidden[step.num_rows - 1 : step.num_rows]
