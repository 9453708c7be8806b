"""The two ends of a decoder, the same in most families: the embedding, and the norm and head behind the last layer."""

from __future__ import annotations

import torch
from torch import Tensor

from zllm_ref.runtime.models.sizes import DecoderSizes
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.parameters import Parameters


class DecoderEnds:
    """Takes both ends from a checkpoint, under the names of Hugging Face, and computes logits."""

    def __init__(self, sizes: DecoderSizes, parameters: Parameters, numerics: Numerics, device: torch.device) -> None:
        self.numerics = numerics
        self.device = device
        self.vocab_size = sizes.vocab_size
        self.context_length = sizes.context_length
        self.embedding = parameters.take("model.embed_tokens.weight")
        self.head = self.embedding if sizes.tied_head else parameters.take("lm_head.weight")
        self._norm = parameters.take("model.norm.weight")
        self._norm_eps = sizes.rms_norm_eps

    def logits(self, hidden: Tensor) -> Tensor:
        """The output head over rows behind the last norm, [n, hidden] → float32 [n, vocab]."""
        rows = self.numerics.pad_rows(hidden)
        return self.numerics.linear(rows, self.head)[: hidden.shape[0]].float()

    def _normed(self, rows: Tensor) -> Tensor:
        """Behind the last layer."""
        return self.numerics.rms_norm(rows, self._norm, self._norm_eps)
