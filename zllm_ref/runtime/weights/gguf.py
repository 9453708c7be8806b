"""A GGUF file as a `Checkpoint`: names and config translated to Hugging Face's, blocks dequantised tensor by tensor.

The arithmetic of the blocks is the `gguf` package's own (`gguf.quants.dequantize`), run over pieces small enough to stay in
the processor's cache and rounded straight into the wanted dtype.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray

from zllm_ref.runtime.weights.architecture import find_architecture
from zllm_ref.runtime.weights.checkpoint import (
    Checkpoint,
    CheckpointError,
    LazyTensors,
    Progress,
    TokenizerSource,
    check_shapes,
    combined_digest,
    file_digest,
)
from zllm_ref.runtime.weights.gguf_header import GgufHeader, TensorEntry, read_gguf_header

PIECE_ELEMENTS = 1 << 16
"""Elements dequantised at once: 256 KiB of float32, which fits a second-level cache."""

CONFIG_KEYS: Mapping[str, str] = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
    "vocab_size": "vocab_size",
}
"""GGUF's metadata key after the architecture's prefix → config.json's key. Keys in neither table are refused: see `_config`."""

CHECKED_KEYS: Mapping[str, Callable[[Any, Mapping[str, Any]], bool]] = {
    "rope.dimension_count": lambda value, config: value == config["head_dim"],
    "attention.value_length": lambda value, config: value == config["head_dim"],
    "rope.scaling.type": lambda value, config: value == "none",
    "attention.causal": lambda value, config: value is True,
}
"""Keys that change the arithmetic, with the only value that the models compute."""

TENSOR_NAMES: Mapping[str, str] = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


@dataclass(frozen=True)
class GgufDialect:
    """What is peculiar to one architecture inside GGUF."""

    permuted: Mapping[str, str]
    """Tensors whose rows were interleaved for GGUF's rotary layout, with the config key that counts their heads."""


DIALECTS: Mapping[str, GgufDialect] = {
    "llama": GgufDialect(permuted={"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}),
}


def open_gguf(path: Path, dtype: torch.dtype, progress: Progress | None = None) -> Checkpoint:
    """Opens `path`, checks all of it but the values, and hashes it. The tensors are made when they are asked for.

    Raises `CheckpointError`.
    """
    header = read_gguf_header(path)
    if header.metadata.get("split.count", 1) not in (0, 1):
        got = f"one of {header.metadata['split.count']} parts of a split file"
        raise CheckpointError(str(path), got, "one whole GGUF file (`llama-gguf-split --merge` joins the parts)")
    architecture = find_architecture(f"{path}: general.architecture", str(header.metadata.get("general.architecture")))
    if architecture.name not in DIALECTS:
        got = f"architecture {architecture.name!r} as GGUF"
        raise CheckpointError(str(path), got, f"{', '.join(sorted(DIALECTS))}; others as a Hugging Face folder")
    config = architecture.normalise(str(path), _config(header, architecture.name))
    _check_fixed_keys(header, architecture.name, config)
    entries = {_tensor_name(path, entry.name): entry for entry in header.tensors.values()}
    check_shapes(str(path), {name: entry.shape for name, entry in entries.items()}, architecture.parameter_shapes(config))
    content = np.memmap(path, dtype=np.uint8, mode="r")
    permuted = DIALECTS[architecture.name].permuted
    makers = {
        name: partial(_make_tensor, content, entry, dtype, _num_permuted_heads(entry, permuted, config))
        for name, entry in entries.items()
    }
    num_elements = {name: int(np.prod(entry.shape)) for name, entry in entries.items()}
    template = header.metadata.get("tokenizer.chat_template")
    return Checkpoint(
        architecture=architecture.name,
        config=config,
        tensors=LazyTensors(makers, num_elements, progress),
        digest=combined_digest("gguf", config, {"file": file_digest(path)}),
        tokenizer_source=TokenizerSource(gguf_metadata=header.metadata),
        chat_template=template if isinstance(template, str) else None,
    )


def dequantise(content: NDArray[np.uint8], entry: TensorEntry, dtype: torch.dtype) -> torch.Tensor:
    """The values of one tensor, in `dtype` and in the file's own row order. [*entry.shape]

    Raises `CheckpointError` for a value that is not finite and for an encoding that the `gguf` package cannot dequantise.
    """
    columns = entry.shape[-1]
    rows = int(np.prod(entry.shape[:-1], dtype=np.int64))
    blocks = content[entry.offset : entry.offset + entry.num_bytes].reshape(rows, -1)  # [rows, bytes of a row]
    result = torch.empty(rows, columns, dtype=dtype)
    rows_at_once = max(1, PIECE_ELEMENTS // columns)
    for start in range(0, rows, rows_at_once):
        values = _dequantise_piece(blocks[start : start + rows_at_once], entry)
        # One infinity or NaN makes the sum one too; a sum costs a fraction of asking every value.
        if not np.isfinite(values.sum()):
            raise CheckpointError(f"tensor {entry.name!r}", f"a value that is not finite from row {start}", "finite numbers")
        result[start : start + rows_at_once] = torch.from_numpy(values)
    return result.reshape(entry.shape)


def _dequantise_piece(piece: NDArray[np.uint8], entry: TensorEntry) -> NDArray[np.float32]:
    if entry.encoding == GGMLQuantizationType.F32:
        return piece.view(np.float32).copy()  # the mapping is read-only, which torch does not like
    if entry.encoding == GGMLQuantizationType.F16:
        return piece.view(np.float16).astype(np.float32)
    try:
        values: NDArray[np.float32] = dequantize(piece, entry.encoding)
    except NotImplementedError as error:
        allowed = "an encoding that the gguf package can dequantise"
        raise CheckpointError(f"tensor {entry.name!r}", f"encoding {entry.encoding.name}", allowed) from error
    return np.ascontiguousarray(values)


def _make_tensor(content: NDArray[np.uint8], entry: TensorEntry, dtype: torch.dtype, num_heads: int | None) -> torch.Tensor:
    values = dequantise(content, entry, dtype)
    return values if num_heads is None else _undo_permutation(values, num_heads)


def _undo_permutation(values: torch.Tensor, num_heads: int) -> torch.Tensor:
    """GGUF stores a head's rows as pairs (0, d/2), (1, d/2+1), …; Hugging Face stores the first halves, then the second.

    [heads * head_dim, columns] → the same shape.
    """
    rows, columns = values.shape
    return values.reshape(num_heads, rows // num_heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


def _num_permuted_heads(entry: TensorEntry, permuted: Mapping[str, str], config: Mapping[str, Any]) -> int | None:
    for part, key in permuted.items():
        if re.fullmatch(rf"blk\.\d+\.{part}\.weight", entry.name):
            return int(config[key])
    return None


def _config(header: GgufHeader, architecture: str) -> dict[str, Any]:
    """GGUF's metadata under config.json's names."""
    config: dict[str, Any] = {"model_type": architecture}
    for gguf_key, key in CONFIG_KEYS.items():
        value = header.metadata.get(f"{architecture}.{gguf_key}")
        if value is not None:
            # float32 1e-5 reads back as 9.99999974e-06: the shortest decimal of that float32 is what the author wrote.
            config[key] = float(str(np.float32(value))) if isinstance(value, float) else value
    if "vocab_size" not in config and "token_embd.weight" in header.tensors:
        config["vocab_size"] = header.tensors["token_embd.weight"].shape[0]
    config["tie_word_embeddings"] = "output.weight" not in header.tensors
    for key in ("bos", "eos"):
        token_id = header.metadata.get(f"tokenizer.ggml.{key}_token_id")
        if token_id is not None:
            config[f"{key}_token_id"] = token_id
    return config


def _check_fixed_keys(header: GgufHeader, architecture: str, config: Mapping[str, Any]) -> None:
    """Refuses a key of the architecture that is in neither table: it would change the arithmetic unseen."""
    prefix = f"{architecture}."
    for key, value in header.metadata.items():
        name = key.removeprefix(prefix)
        if not key.startswith(prefix) or name in CONFIG_KEYS:
            continue
        if name not in CHECKED_KEYS or not CHECKED_KEYS[name](value, config):
            allowed = f"none, or one of {', '.join(sorted((*CONFIG_KEYS, *CHECKED_KEYS)))} with a value that the model computes"
            raise CheckpointError(f"{header.path}: {key}", repr(value), allowed)


def _tensor_name(path: Path, name: str) -> str:
    """`blk.3.attn_q.weight` → `model.layers.3.self_attn.q_proj.weight`."""
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.weight", name)
    if match is None or match[2] not in TENSOR_NAMES:
        raise CheckpointError(f"{path}: tensor {name!r}", "a name without meaning here", ", ".join(sorted(TENSOR_NAMES)))
    layer = "" if match[1] is None else f"model.layers.{match[1]}."
    return f"{layer}{TENSOR_NAMES[match[2]]}.weight"
