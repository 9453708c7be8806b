"""Tiny GGUF files for the tests of the weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType

TINY = {"hidden": 64, "intermediate": 96, "layers": 2, "heads": 4, "key_value_heads": 2, "vocab": 96}

WriteTinyGguf = Callable[..., Path]


@pytest.fixture
def write_tiny_gguf(tmp_path: Path) -> WriteTinyGguf:
    """Writes a whole little llama file with the gguf package's own writer; arguments plant one fault or one variation."""

    def write(
        name: str = "tiny.gguf",
        *,
        encoding: GGMLQuantizationType = GGMLQuantizationType.Q8_0,
        architecture: str = "llama",
        change: Callable[[dict[str, np.ndarray[Any, Any]]], None] = lambda tensors: None,
        metadata: Callable[[gguf.GGUFWriter], None] = lambda writer: None,
        with_head: bool = False,
    ) -> Path:
        path = tmp_path / name
        writer = gguf.GGUFWriter(path, architecture)
        writer.add_block_count(TINY["layers"])
        writer.add_context_length(256)
        writer.add_embedding_length(TINY["hidden"])
        writer.add_feed_forward_length(TINY["intermediate"])
        writer.add_head_count(TINY["heads"])
        writer.add_head_count_kv(TINY["key_value_heads"])
        writer.add_rope_freq_base(50000.0)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_vocab_size(TINY["vocab"])
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list([f"token{number}" for number in range(TINY["vocab"])])
        writer.add_eos_token_id(2)
        writer.add_chat_template("{{ messages }}")
        metadata(writer)
        tensors = tiny_tensors(with_head)
        change(tensors)
        for tensor_name, values in tensors.items():
            kind = GGMLQuantizationType.F32 if values.ndim == 1 else encoding
            writer.add_tensor(tensor_name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


def tiny_tensors(with_head: bool = False) -> dict[str, np.ndarray[Any, Any]]:
    """Random values under GGUF's names."""
    draw = np.random.default_rng(7)
    hidden, intermediate, vocab = TINY["hidden"], TINY["intermediate"], TINY["vocab"]
    key_value = hidden // TINY["heads"] * TINY["key_value_heads"]
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocab, hidden)}
    for layer in range(TINY["layers"]):
        shapes |= {
            f"blk.{layer}.attn_norm.weight": (hidden,),
            f"blk.{layer}.attn_q.weight": (hidden, hidden),
            f"blk.{layer}.attn_k.weight": (key_value, hidden),
            f"blk.{layer}.attn_v.weight": (key_value, hidden),
            f"blk.{layer}.attn_output.weight": (hidden, hidden),
            f"blk.{layer}.ffn_norm.weight": (hidden,),
            f"blk.{layer}.ffn_gate.weight": (intermediate, hidden),
            f"blk.{layer}.ffn_up.weight": (intermediate, hidden),
            f"blk.{layer}.ffn_down.weight": (hidden, intermediate),
        }
    shapes["output_norm.weight"] = (hidden,)
    if with_head:
        shapes["output.weight"] = (vocab, hidden)
    return {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
