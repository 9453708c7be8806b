"""`python -m equivalence.fresh_process NAME DTYPE DEVICE` prints the digest of a plain run: a process that did nothing before."""

from __future__ import annotations

import hashlib
import sys

import torch
from torch import Tensor

from zllm_ref.runtime.model import Model

from .subjects import logits, prompt_ids, run_whole, subject

LENGTH = 300


def digest(model: Model) -> str:
    """SHA-256 over every logit of 300 rows and every bit of the state."""
    run = run_whole(model, prompt_ids(model, LENGTH, seed=50))
    found = hashlib.sha256()
    for tensor in (logits(model, run.hidden), *(run.state_rows(t.name) for t in model.state.tensors)):
        found.update(_bytes(tensor))
    return found.hexdigest()


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()


if __name__ == "__main__":
    print(digest(subject(sys.argv[1], sys.argv[2], device=sys.argv[3])))
