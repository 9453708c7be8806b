"""A Hugging Face folder as a `Checkpoint`: config.json, one or many *.safetensors, memory-mapped.

Only safetensors are read: pickled weights would execute what a stranger wrote.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from zllm_ref.runtime.weights.architecture import Architecture, find_architecture
from zllm_ref.runtime.weights.checkpoint import (
    Checkpoint,
    CheckpointError,
    Config,
    LazyTensors,
    Progress,
    Shapes,
    TokenizerSource,
    check_shapes,
    combined_digest,
    file_digest,
)

MAX_JSON_BYTES = 64 << 20
FLOAT_DTYPES = ("F32", "BF16", "F16")
"""The element types that convert without a scale beside them."""
INTEGER_DTYPES = ("I64", "I32")
"""Allowed for tables of whole numbers alone: tensors that an architecture keeps exact."""


def open_folder(folder: Path, dtype: torch.dtype, progress: Progress | None = None) -> Checkpoint:
    """Opens `folder`, checks every name, type and shape against its config, and hashes the weights.

    Raises `CheckpointError`.
    """
    found = read_json_object(folder / "config.json")
    architecture = find_architecture(f"{folder / 'config.json'}: model_type", str(found.get("model_type")))
    config = architecture.normalise(str(folder / "config.json"), found)
    expected = architecture.parameter_shapes(config)
    files = _tensor_files(folder)
    # A tied head may be stored all the same: a second copy of the embedding that nobody reads.
    ignored = {"lm_head.weight"} if config.get("tie_word_embeddings") else set()
    # So may the layers for further tokens bring the embedding and the head, which they share with the model.
    for number in range(config.get("num_nextn_predict_layers", 0)):
        for name in ("embed_tokens.weight", "shared_head.head.weight"):
            ignored.add(f"model.layers.{config['num_hidden_layers'] + number}.{name}")
    places: dict[str, Callable[[], torch.Tensor]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for file, names in files.items():
        reader = _open(file)
        stored = set(reader.keys())
        for name in sorted(stored if names is None else names):
            if name not in stored:
                raise CheckpointError(str(file), f"no tensor {name!r}", "every tensor that the index places there")
            declared = architecture.rename(name)
            if declared in places:
                raise CheckpointError(str(file), f"tensor {name!r} a second time", "every name in one file")
            if declared in ignored:
                continue
            view = reader.get_slice(name)
            is_exact = architecture.is_exact(declared)
            allowed = FLOAT_DTYPES + INTEGER_DTYPES if is_exact else FLOAT_DTYPES
            if view.get_dtype() not in allowed:
                raise CheckpointError(f"{file}: tensor {name!r}", f"type {view.get_dtype()}", ", ".join(allowed))
            wanted = dtype if not is_exact else torch.int64 if view.get_dtype() in INTEGER_DTYPES else torch.float32
            places[declared] = partial(_make_tensor, reader, name, wanted)
            shapes[declared] = tuple(view.get_shape())
    check_shapes(str(folder), shapes, expected | _drafting(architecture, config, shapes))
    num_elements = {name: torch.Size(shape).numel() for name, shape in shapes.items()}
    return Checkpoint(
        architecture=architecture.name,
        config=config,
        tensors=LazyTensors(places, num_elements, progress),
        digest=combined_digest("folder", config, {file.name: file_digest(file) for file in files}),
        tokenizer_source=TokenizerSource(folder=folder),
        chat_template=_chat_template(folder),
    )


def _drafting(architecture: Architecture, config: Config, found: Shapes) -> Shapes:
    """The shapes of the further-token layers, where the folder has any part of them."""
    shapes = architecture.draft_shapes(config)
    return shapes if any(name in found for name in shapes) else {}


def read_json_object(path: Path) -> dict[str, Any]:
    """A JSON file whose top level is an object. Raises `CheckpointError`."""
    if not path.is_file():
        raise CheckpointError(str(path), "no such file", "a JSON file")
    if path.stat().st_size > MAX_JSON_BYTES:
        raise CheckpointError(str(path), f"{path.stat().st_size} bytes", f"at most {MAX_JSON_BYTES}")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise CheckpointError(str(path), f"text that is not JSON ({error})", "a JSON object") from error
    if not isinstance(value, dict):
        raise CheckpointError(str(path), f"a JSON {type(value).__name__}", "a JSON object")
    return value


def _tensor_files(folder: Path) -> Mapping[Path, set[str] | None]:
    """Which file holds which tensors; None: all that the file has."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        weight_map = read_json_object(index).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise CheckpointError(f"{index}: weight_map", repr(weight_map)[:80], "an object of tensor name to file name")
        files: dict[Path, set[str] | None] = {}
        by_name: dict[str, set[str]] = {}
        for tensor, name in weight_map.items():
            # A path in the index must not lead out of the folder.
            if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
                raise CheckpointError(f"{index}: weight_map[{tensor!r}]", repr(name), "the name of a .safetensors file beside it")
            by_name.setdefault(name, set()).add(tensor)
        for name, tensors in sorted(by_name.items()):
            files[folder / name] = tensors
        return files
    found = sorted(folder.glob("*.safetensors"))
    if not found:
        raise CheckpointError(str(folder), "no *.safetensors", "a Hugging Face folder with safetensors weights")
    return dict.fromkeys(found)


def _open(file: Path) -> Any:
    if not file.is_file():
        raise CheckpointError(str(file), "no such file", "a file that the index names")
    try:
        return safe_open(file, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise CheckpointError(str(file), f"a file that does not open ({error})", "a whole safetensors file") from error


def _make_tensor(reader: Any, name: str, dtype: torch.dtype) -> torch.Tensor:
    """A copy in memory: a view of the mapping would change, or fault, with the file."""
    tensor: torch.Tensor = reader.get_tensor(name)
    return tensor.to(dtype, copy=True)


def _chat_template(folder: Path) -> str | None:
    """From chat_template.jinja, else from tokenizer_config.json (a string, or the list's entry named `default`)."""
    alone = folder / "chat_template.jinja"
    if alone.is_file():
        return alone.read_text(encoding="utf-8")
    settings = folder / "tokenizer_config.json"
    template = read_json_object(settings).get("chat_template") if settings.is_file() else None
    if isinstance(template, list):
        template = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}.get("default")
    return template if isinstance(template, str) else None
