"""Weights: where a model's numbers come from.

Every source ends in the same `Checkpoint`: an architecture's name, a config with Hugging Face's names, tensors with Hugging
Face's parameter names in the wanted dtype, and a digest of the content. Three sources: a GGUF file, a Hugging Face folder,
and seeded random tensors made in code.

It knows file formats and the shapes that an architecture declares. It must never know how a model computes, what a token
means (the tokenizer's raw material is handed on unread), or what a client asked. Files are untrusted input: every length,
count and offset is checked against the file's size before it is used, and nothing in a file is ever executed.
"""

from zllm_ref.runtime.weights.checkpoint import Checkpoint, CheckpointError, LazyTensors, TokenizerSource
from zllm_ref.runtime.weights.loading import open_checkpoint
from zllm_ref.runtime.weights.seeded import SEEDED_MODELS, seeded_checkpoint

__all__ = [
    "SEEDED_MODELS",
    "Checkpoint",
    "CheckpointError",
    "LazyTensors",
    "TokenizerSource",
    "open_checkpoint",
    "seeded_checkpoint",
]
