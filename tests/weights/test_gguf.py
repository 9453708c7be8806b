"""GGUF files: the same numbers as the gguf package and as transformers, and a clear no to everything else."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from equivalence.bits import assert_bits_equal
from zllm_ref.runtime.weights import CheckpointError, open_checkpoint
from zllm_ref.runtime.weights.gguf import dequantise
from zllm_ref.runtime.weights.gguf_header import read_gguf_header

ENCODINGS = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_value_is_what_the_gguf_package_dequantises(write_tiny_gguf: Any, encoding: str, dtype: torch.dtype) -> None:
    path = write_tiny_gguf(encoding=GGMLQuantizationType[encoding])

    header = read_gguf_header(path)
    content = np.memmap(path, dtype=np.uint8, mode="r")
    got = {name: dequantise(content, entry, dtype) for name, entry in header.tensors.items()}

    reference = {tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type) for tensor in gguf.GGUFReader(path).tensors}
    assert got.keys() == reference.keys()
    for name, tensor in got.items():
        assert_bits_equal(name, tensor, torch.from_numpy(np.array(reference[name])).to(dtype))


def test_a_tensor_longer_than_one_piece_is_dequantised_like_a_short_one(write_tiny_gguf: Any, monkeypatch: Any) -> None:
    path = write_tiny_gguf()
    whole = dict(open_checkpoint(path, torch.float32).tensors.items())

    monkeypatch.setattr("zllm_ref.runtime.weights.gguf.PIECE_ELEMENTS", 200)  # three rows of 64, the last piece shorter
    pieces = dict(open_checkpoint(path, torch.float32).tensors.items())

    for name, tensor in whole.items():
        assert_bits_equal(name, pieces[name], tensor)


@pytest.mark.parametrize("encoding", ["F32", "Q4_1"])
def test_a_whole_file_has_the_tensors_that_transformers_makes_of_it(write_tiny_gguf: Any, encoding: str) -> None:
    from transformers import AutoModelForCausalLM

    path = write_tiny_gguf(encoding=GGMLQuantizationType[encoding], with_head=True)
    reference = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).state_dict()

    checkpoint = open_checkpoint(path, torch.float32)

    assert set(checkpoint.tensors) == set(reference)
    for name, tensor in checkpoint.tensors.items():
        assert_bits_equal(name, tensor, reference[name])


def test_metadata_is_what_the_gguf_package_reads(write_tiny_gguf: Any) -> None:
    path = write_tiny_gguf(metadata=lambda writer: writer.add_array("made.up", [1.5, -2.0]))

    metadata = read_gguf_header(path).metadata

    fields = gguf.GGUFReader(path).fields
    expected = {key: field.contents() for key, field in fields.items() if not key.startswith("GGUF.")}
    assert metadata == expected


def test_config_carries_hugging_face_names(write_tiny_gguf: Any) -> None:
    checkpoint = open_checkpoint(write_tiny_gguf(), torch.float32)

    assert checkpoint.architecture == "llama"
    assert checkpoint.chat_template == "{{ messages }}"
    assert checkpoint.tokenizer_source.gguf_metadata is not None
    assert checkpoint.tokenizer_source.gguf_metadata["tokenizer.ggml.tokens"][95] == "token95"
    assert checkpoint.config == {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "max_position_embeddings": 256,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "rms_norm_eps": 1e-05,
        "rope_theta": 50000.0,
        "rope_scaling": None,
        "vocab_size": 96,
        "tie_word_embeddings": True,
        "eos_token_id": 2,
    }


def test_a_head_of_its_own_unties_the_embedding(write_tiny_gguf: Any) -> None:
    checkpoint = open_checkpoint(write_tiny_gguf(with_head=True), torch.float32)

    assert checkpoint.config["tie_word_embeddings"] is False
    assert checkpoint.tensors["lm_head.weight"].shape == (96, 64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tensors_are_counted_as_they_are_made(write_tiny_gguf: Any, dtype: torch.dtype) -> None:
    seen: list[tuple[int, int]] = []

    checkpoint = open_checkpoint(write_tiny_gguf(), dtype, lambda done, total: seen.append((done, total)))
    assert seen == []
    num_elements = sum(tensor.numel() for tensor in checkpoint.tensors.values())

    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(seen) == len(checkpoint.tensors) == 20
    assert seen[-1] == (num_elements, num_elements)


def test_digest_follows_the_content_and_not_the_dtype_or_the_place(write_tiny_gguf: Any, tmp_path: Path) -> None:
    path = write_tiny_gguf()
    digest = open_checkpoint(path, torch.float32).digest
    copy = tmp_path / "elsewhere.gguf"
    copy.write_bytes(path.read_bytes())
    changed = tmp_path / "changed.gguf"
    changed.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1]))

    assert open_checkpoint(path, torch.bfloat16).digest == digest
    assert open_checkpoint(copy, torch.float32).digest == digest
    assert open_checkpoint(changed, torch.float32).digest != digest


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        ({"architecture": "gpt2"}, r"general.architecture: got architecture 'gpt2', allowed .*llama"),
        ({"change": lambda tensors: tensors.pop("output_norm.weight")}, r"got no tensor 'model.norm.weight'"),
        (
            {"change": lambda tensors: tensors.update({"output_norm.weight": np.ones(32, np.float32)})},
            r"tensor 'model.norm.weight': got shape \[32\], allowed \[64\]",
        ),
        ({"change": lambda tensors: tensors.update({"rope_freqs.weight": np.ones(8, np.float32)})}, "rope_freqs"),
        (
            {"metadata": lambda writer: writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)},
            "llama.rope.scaling.type: got 'yarn'",
        ),
        ({"metadata": lambda writer: writer.add_expert_count(8)}, "llama.expert_count: got 8"),
        ({"metadata": lambda writer: writer.add_rope_dimension_count(8)}, "llama.rope.dimension_count: got 8"),
        ({"metadata": lambda writer: writer.add_uint16("split.count", 3)}, "got one of 3 parts"),
        ({"metadata": lambda writer: writer.add_uint32("general.alignment", 24)}, "general.alignment: got 24"),
    ],
)
def test_a_file_that_would_compute_something_else_is_refused(write_tiny_gguf: Any, plant: dict[str, Any], message: str) -> None:
    path = write_tiny_gguf(**plant)

    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(path, torch.float32)


def test_a_value_that_is_not_finite_is_refused_when_its_tensor_is_made(write_tiny_gguf: Any) -> None:
    path = write_tiny_gguf(change=lambda tensors: tensors["blk.0.attn_norm.weight"].__setitem__(3, np.inf))
    checkpoint = open_checkpoint(path, torch.float32)

    with pytest.raises(CheckpointError, match=r"blk.0.attn_norm.weight.*not finite"):
        checkpoint.tensors["model.layers.0.input_layernorm.weight"]


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"GGML" + bytes(20), r"byte 0: got b'GGML', allowed the magic b'GGUF'"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "got version 1, allowed little-endian versions 2, 3"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "got a big-endian file"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "for the tensor count, allowed at most"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "for the metadata count, allowed at most"),
        (b"GGUF", "got 4 bytes"),
        (b"", "got 0 bytes"),
    ],
)
def test_a_wrong_beginning_is_named(tmp_path: Path, head: bytes, message: str) -> None:
    path = tmp_path / "wrong.gguf"
    path.write_bytes(head)

    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(path, torch.float32)


def test_a_path_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="got nothing there, allowed a GGUF file or a Hugging Face folder"):
        open_checkpoint(tmp_path / "missing", torch.float32)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.floats(0, 1, exclude_max=True))
@example(cut=0.9999999)
def test_a_file_cut_off_anywhere_is_refused(write_tiny_gguf: Any, cut: float) -> None:
    path = write_tiny_gguf()
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * cut)])

    with pytest.raises(CheckpointError):
        open_checkpoint(path, torch.float32)


def test_a_header_cut_off_at_any_byte_is_refused(write_tiny_gguf: Any) -> None:
    path = write_tiny_gguf()
    content = path.read_bytes()
    data_start = min(entry.offset for entry in read_gguf_header(path).tensors.values())

    for cut in range(0, data_start, 7):
        path.write_bytes(content[:cut])
        with pytest.raises(CheckpointError):
            read_gguf_header(path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), value=st.integers(0, 255))
def test_a_damaged_header_is_refused_or_harmless(write_tiny_gguf: Any, place: float, value: int) -> None:
    path = write_tiny_gguf()
    content = bytearray(path.read_bytes())
    data_start = min(entry.offset for entry in read_gguf_header(path).tensors.values())
    content[int(data_start * place)] = value
    path.write_bytes(bytes(content))

    try:
        checkpoint = open_checkpoint(path, torch.float32)
    except CheckpointError:
        return
    for name in checkpoint.tensors:
        with contextlib.suppress(CheckpointError):
            assert torch.isfinite(checkpoint.tensors[name]).all()
