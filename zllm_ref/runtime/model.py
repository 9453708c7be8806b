"""What the runtime asks of a model; which families there are stands in `models/registry.py`."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.state import StateDeclaration
from zllm_ref.runtime.step import Step


class Model(Protocol):
    """A loaded model: weights on a device, a numerics contract, a state declaration. Stateless between steps.

    `context_length` in tokens. `state`: what a session of it holds; a drafter may add advisory tensors, once, at loading.
    """

    architecture: str
    numerics: Numerics
    device: torch.device
    vocab_size: int
    context_length: int
    state: StateDeclaration

    def forward(self, step: Step) -> Tensor:
        """Runs the step's rows through all layers, writes their state, fills `step.features` where there are any.

        → final hidden rows [padded rows, width].
        """

    def logits(self, hidden: Tensor) -> Tensor:
        """The output head: hidden rows [n, width] → float32 logits [n, vocab]. Pads and cuts by itself."""
