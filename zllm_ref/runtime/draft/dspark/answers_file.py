"""Recorded answers in one safetensors file, so that several trainings may learn from one recording."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from zllm_ref.runtime.draft.dspark.answers import LIKELY, Answer
from zllm_ref.runtime.weights.checkpoint import CheckpointError

FORMAT = "zllm_ref answers 1"
_NAMES = ("ids", "features", "likely_ids", "likely_shares", "lengths")


def save_answers(path: Path, answers: Sequence[Answer], recorded_from: str) -> None:
    """`recorded_from`: what the answers follow from; a reader that wants others is told so."""
    tensors = {
        "ids": torch.cat([answer.ids for answer in answers]),
        "features": torch.cat([answer.features for answer in answers]),
        "likely_ids": torch.cat([answer.likely_ids for answer in answers]),
        "likely_shares": torch.cat([answer.likely_shares for answer in answers]),
        "lengths": torch.tensor([[len(answer.ids), answer.prompt_length] for answer in answers]),
    }
    save_file(tensors, path, {"format": FORMAT, "recorded_from": recorded_from})


def read_answers(path: Path, recorded_from: str) -> list[Answer]:
    """Raises `CheckpointError` where the file is another, or its lengths do not add up."""
    try:
        with safe_open(path, framework="pt") as reader:
            metadata = reader.metadata() or {}
            if (metadata.get("format"), metadata.get("recorded_from")) != (FORMAT, recorded_from):
                raise CheckpointError(str(path), repr(metadata)[:200], f"answers recorded from {recorded_from}")
            ids, features, likely_ids, likely_shares, lengths = (reader.get_tensor(name) for name in _NAMES)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(str(path), f"a file that does not open ({error})", "a whole safetensors file") from error
    sizes = [(length, length - 1, length - prompt - 1) for length, prompt in lengths.tolist()]
    totals = [sum(column) for column in zip(*sizes, strict=True)]
    found = [len(ids), len(features), len(likely_ids)]
    if found != totals or likely_ids.shape[-1] != LIKELY or likely_shares.shape != likely_ids.shape:
        raise CheckpointError(str(path), f"{found} rows", f"{totals}, as its lengths say")
    pieces = [torch.split(tensor, [size[place] for size in sizes]) for tensor, place in ((ids, 0), (features, 1))]
    pieces += [torch.split(tensor, [size[2] for size in sizes]) for tensor in (likely_ids, likely_shares)]
    prompts = lengths[:, 1].tolist()
    return [
        Answer(own_ids, prompt, rows, likely, shares)
        for own_ids, prompt, rows, likely, shares in zip(pieces[0], prompts, *pieces[1:], strict=True)
    ]
