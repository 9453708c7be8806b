"""One door for every model on disk: what lies at the path decides which reader opens it."""

from __future__ import annotations

from pathlib import Path

import torch

from zllm_ref.runtime.weights.checkpoint import Checkpoint, CheckpointError, Progress
from zllm_ref.runtime.weights.gguf import open_gguf
from zllm_ref.runtime.weights.safetensors import open_folder

ALLOWED_DTYPES = (torch.float32, torch.bfloat16)


def open_checkpoint(path: Path, dtype: torch.dtype, progress: Progress | None = None) -> Checkpoint:
    """A GGUF file or a Hugging Face folder as a `Checkpoint`. Raises `CheckpointError` on anything else."""
    if dtype not in ALLOWED_DTYPES:
        raise CheckpointError("dtype", str(dtype), ", ".join(str(allowed) for allowed in ALLOWED_DTYPES))
    if path.is_dir():
        return open_folder(path, dtype, progress)
    if path.is_file():
        return open_gguf(path, dtype, progress)
    raise CheckpointError(str(path), "nothing there", "a GGUF file or a Hugging Face folder")
