"""`python -m equivalence.restored_process NAME DTYPE DEVICE DIRECTORY`: a new process that continues a snapshot of another one.

Prints how many tokens it restored, and the digest of every logit that follows and of every bit of the state.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from zllm_ref.cache.ssd.chunks import Encoding
from zllm_ref.cache.ssd.store import SnapshotStore
from zllm_ref.cache.tiered import TieredCache
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.restore import TensorCodec, restore_from_ssd
from zllm_ref.runtime.state import SessionState

from .subjects import Run, logits, prompt_ids, run_pieces, subject

SAVED = 200
FOLLOWING = 260


class AtOnce:
    """A worker that does the work before `submit` returns."""

    def submit(self, work: Callable[[], None], /) -> object:
        work()
        return None


def whole_prompt(model: Model) -> list[int]:
    """The saved part, and what follows it."""
    return [*prompt_ids(model, SAVED, seed=51), *prompt_ids(model, FOLLOWING, seed=52)]


def tiered_cache(model: Model, root: Path, encoding: Encoding = Encoding.RAW, num_stages: int = 1) -> TieredCache:
    """A cache with nothing resident, on a directory that may have snapshots already."""
    store = SnapshotStore.open(root, 1 << 40, identity=f"equivalence {model.numerics.dtype}", encoding=encoding)
    return TieredCache(
        model.state.layout(),
        1 << 34,
        identity=store.identity,
        store=store,
        codec=TensorCodec(model.state),
        writer=AtOnce(),
        reader=AtOnce(),
        num_stages=num_stages,
    )


def digest(model: Model, run: Run, first_row: int) -> str:
    """SHA-256 over the logits of the rows from `first_row` of the prompt on, and over all of the state."""
    rows = run.hidden[run.hidden.shape[0] - (run.state.length - first_row) :]
    found = hashlib.sha256()
    for tensor in (logits(model, rows), *(run.state_rows(t.name) for t in model.state.tensors)):
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def main(name: str, dtype: str, device: str, root: Path) -> None:
    model = subject(name, dtype, device=device)
    cache = tiered_cache(model, root)
    ids = whole_prompt(model)
    admission = cache.admit("", np.array(ids, dtype=np.int32), reserve_bytes=model.state.session_bytes(len(ids)))
    assert admission is not None
    assert admission.restore is not None
    state = SessionState(model.state, len(ids), model.device)
    with torch.inference_mode():
        restored = restore_from_ssd(state, cache, admission)
    run = run_pieces(model, ids[restored:], [len(ids) - restored], state)
    print(restored, digest(model, run, SAVED))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
