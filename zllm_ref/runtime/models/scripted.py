"""A model that computes nothing: its state holds the ids it was fed, so that cache hits can be checked, and a script speaks.

Everything around it is real: sessions, chunks, rounds, blocks, admission. Tests and conformance runs use it where the
content of an answer must be dictated.
"""

from __future__ import annotations

import torch
from torch import Tensor

from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.state import StateDeclaration, StateTensor
from zllm_ref.runtime.step import Step


class Scripted:
    """State: `ids` [1, tokens, 1] int64, growing, cuttable. Logits are all zero: nobody looks at them."""

    architecture = "scripted"

    def __init__(self, vocab_size: int, context_length: int, device: torch.device | None = None) -> None:
        self.numerics = Numerics(torch.float32)
        self.device = device or torch.device("cpu")
        self.vocab_size = vocab_size
        self.context_length = context_length
        self.state = StateDeclaration([StateTensor("ids", 1, (1,), torch.int64)])

    def forward(self, step: Step) -> Tensor:
        for lane in step.lanes:
            rows = step.ids[lane.row : lane.row + lane.num_rows]
            lane.state.tensors["ids"][0, lane.start : lane.start + lane.num_rows, 0] = rows
        return torch.zeros((step.ids.shape[0], 1), device=self.device)

    def logits(self, hidden: Tensor) -> Tensor:
        return torch.zeros((hidden.shape[0], self.vocab_size), device=self.device)
