"""What makes a decoder layer one that predicts a further token: the join before it and the norm behind it.

x(i) = eh_proj [ norm(embed(token i+1)) ; norm(h(i)) ]         the embedding first, as published checkpoints hold it
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.parameters import Parameters


@dataclass(frozen=True)
class DraftJoint:
    """Weights around the layer's block."""

    embedding_norm: Tensor
    hidden_norm: Tensor
    projection: Tensor
    final_norm: Tensor
    rms_norm_eps: float

    @classmethod
    def take(cls, parameters: Parameters, rms_norm_eps: float) -> DraftJoint:
        return cls(
            embedding_norm=parameters.take("enorm.weight"),
            hidden_norm=parameters.take("hnorm.weight"),
            projection=parameters.take("eh_proj.weight"),
            final_norm=parameters.take("shared_head.norm.weight"),
            rms_norm_eps=rms_norm_eps,
        )

    def join(self, embedded: Tensor, hidden: Tensor, numerics: Numerics) -> Tensor:
        """embedded, hidden [padded rows, hidden] → the block's input [padded rows, hidden]."""
        both = (
            numerics.rms_norm(embedded, self.embedding_norm, self.rms_norm_eps),
            numerics.rms_norm(hidden, self.hidden_norm, self.rms_norm_eps),
        )
        return numerics.linear(torch.cat(both, -1), self.projection)
