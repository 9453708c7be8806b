"""The common result of every weight source: `Checkpoint`, and the mapping that makes its tensors one at a time."""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

Config = Mapping[str, Any]
"""A model's config with the names of Hugging Face's config.json: `hidden_size`, `num_hidden_layers`, `rope_theta`, …"""

Shapes = dict[str, tuple[int, ...]]
"""Parameter name → shape."""

Progress = Callable[[int, int], None]
"""Called as `(elements made so far, elements of the whole checkpoint)` after every tensor."""


class CheckpointError(ValueError):
    """A file that cannot be loaded. The text says where, what was there, and what is allowed."""

    def __init__(self, where: str, got: str, allowed: str) -> None:
        super().__init__(f"{where}: got {got}, allowed {allowed}")
        self.where = where
        self.got = got
        self.allowed = allowed


@dataclass(frozen=True)
class TokenizerSource:
    """Where the tokenizer can be built from. The runtime hands it on and never looks inside."""

    folder: Path | None = None
    """A folder with tokenizer.json; None when the tokenizer is not made from a folder."""
    gguf_metadata: Mapping[str, Any] | None = None
    """The whole metadata of a GGUF file (`tokenizer.ggml.tokens`, …merges, …); None when there is no such file."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything that a model needs to come to life, from whatever source."""

    architecture: str
    """The key of the model's file and of its row in `architecture.py`, as `model_type` in config.json says it."""
    config: Config
    tensors: Mapping[str, torch.Tensor]
    """By Hugging Face parameter name. Often a `LazyTensors`: each access makes the tensor anew, so take each one once."""
    digest: str
    """SHA-256 over every byte that can alter K/V; the same for every dtype that the tensors are asked in."""
    tokenizer_source: TokenizerSource = field(default_factory=TokenizerSource)
    chat_template: str | None = None


class LazyTensors(Mapping[str, torch.Tensor]):
    """Tensors that are made when they are asked for, and not kept: peak memory is the model plus one tensor.

    Counts elements, not bytes, for `progress`, since the bytes of a source differ from those of the result.
    """

    def __init__(
        self,
        makers: Mapping[str, Callable[[], torch.Tensor]],
        num_elements: Mapping[str, int],
        progress: Progress | None = None,
    ) -> None:
        if makers.keys() != num_elements.keys():
            raise ValueError("makers and num_elements name different tensors")
        self._makers = dict(makers)
        self._num_elements = dict(num_elements)
        self._total = sum(num_elements.values())
        self._progress = progress
        self._made: set[str] = set()
        self._num_made = 0

    def __getitem__(self, name: str) -> torch.Tensor:
        tensor = self._makers[name]()
        if name not in self._made:
            self._made.add(name)
            self._num_made += self._num_elements[name]
            if self._progress is not None:
                self._progress(self._num_made, self._total)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def __contains__(self, name: object) -> bool:  # without this, `in` would make the tensor
        return name in self._makers


def check_shapes(where: str, got: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]]) -> None:
    """Compares the shapes in a file with those that its config implies. Raises `CheckpointError` at the first difference."""
    for name, shape in expected.items():
        if name not in got:
            raise CheckpointError(where, f"no tensor {name!r}", f"one of shape {list(shape)}, as the config implies")
        if got[name] != shape:
            raise CheckpointError(
                f"{where}: tensor {name!r}", f"shape {list(got[name])}", f"{list(shape)}, as the config implies"
            )
    for name in got:
        if name not in expected:
            raise CheckpointError(where, f"tensor {name!r}", "only the tensors that the architecture declares")


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content as hex. About 0.6 seconds per GB: too little to keep a cache that could be stale."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        if path.stat().st_size:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                digest.update(content)
    return digest.hexdigest()


def combined_digest(kind: str, config: Config, parts: Mapping[str, str]) -> str:
    """One digest of a config and of named part digests, independent of the order in which they were found."""
    text = json.dumps({"kind": kind, "config": dict(config), "parts": dict(parts)}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
