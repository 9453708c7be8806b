"""Seeded models: the same everywhere, lively, and wide enough where width matters."""

from __future__ import annotations

import hashlib

import pytest
import torch

from zllm_ref.runtime.models.registry import build_model
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.state import SessionState
from zllm_ref.runtime.step import build_step
from zllm_ref.runtime.weights import SEEDED_MODELS, Checkpoint, CheckpointError, seeded_checkpoint
from zllm_ref.runtime.weights.architecture import find_architecture

CONTENT = {
    "tiny-llama": "b852e3f3eb8ace75acc47bb71b258bafed9597b5c6864667f2f10d9a0e5e9d5f",
    "tiny-llama-wide": "dce39a2c73bcd74231f908090dfbe42ca9eec89d48086a5821aaa0ad0e51bac6",
    "tiny-qwen3": "739bc8cd9c34fd8d4ccf4015af62113f273f3efae4823dd5036488fc3d65ee2e",
    "tiny-glm4-moe": "f89a1c27160f63eb458d4c29bcef8799f4500bd873dd3a1581584accb010ca9d",
    "tiny-deepseek-v32": "c880fda36f1e27415b937ed00af7cb074db12e25e42dd5065653dac6b181f8d3",
    "tiny-deepseek-v4": "7339b56ba26c377f89ea454a7ef305efe8cad539bffa69d7b35f901f749a8d13",
}
"""SHA-256 of all float32 bits. When this changes, change the recipe's name too: it stands for the bits in the digest."""


def content_digest(checkpoint: Checkpoint) -> str:
    digest = hashlib.sha256()
    for name, tensor in checkpoint.tensors.items():
        digest.update(name.encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("name", sorted(SEEDED_MODELS))
def test_a_seed_gives_these_bits(name: str) -> None:
    assert content_digest(seeded_checkpoint(name, torch.float32)) == CONTENT[name]


def test_another_seed_gives_another_model_and_digest() -> None:
    one, other = (seeded_checkpoint("tiny-llama", torch.float32, seed=seed) for seed in (0, 1))

    assert content_digest(one) != content_digest(other)
    assert one.digest != other.digest


@pytest.mark.parametrize("name", sorted(SEEDED_MODELS))
def test_bfloat16_is_float32_rounded(name: str) -> None:
    wide, narrow = (seeded_checkpoint(name, dtype) for dtype in (torch.float32, torch.bfloat16))

    assert wide.digest == narrow.digest
    is_exact = find_architecture("here", wide.architecture).is_exact
    for key, tensor in wide.tensors.items():
        assert torch.equal(narrow.tensors[key], tensor if is_exact(key) else tensor.to(torch.bfloat16)), key


def test_one_seeded_model_sums_over_more_than_4096() -> None:
    checkpoint = seeded_checkpoint("tiny-llama-wide", torch.bfloat16)

    assert max(tensor.shape[-1] for tensor in checkpoint.tensors.values()) >= 4096


def test_vocabulary_and_shapes_can_be_chosen() -> None:
    checkpoint = seeded_checkpoint("tiny-llama", torch.float32, vocab_size=320, overrides={"num_hidden_layers": 1})

    assert checkpoint.config["vocab_size"] == 320
    assert checkpoint.tensors["model.embed_tokens.weight"].shape == (320, 128)
    assert "model.layers.1.input_layernorm.weight" not in checkpoint.tensors


def test_a_change_of_one_shape_leaves_the_other_tensors_as_they_were() -> None:
    one, other = (seeded_checkpoint("tiny-llama", torch.float32, vocab_size=size) for size in (320, 512))

    name = "model.layers.0.self_attn.q_proj.weight"
    assert torch.equal(one.tensors[name], other.tensors[name])


@pytest.mark.parametrize("name", sorted(SEEDED_MODELS))
def test_logits_are_lively_and_do_not_just_repeat_the_input(name: str) -> None:
    model = build_model(seeded_checkpoint(name, torch.float32), Numerics(torch.float32))
    ids = torch.randint(0, 512, (200,), generator=torch.Generator().manual_seed(1))
    state = SessionState(model.state, 200, model.device)

    with torch.inference_mode():
        step = build_step([(state, ids.tolist())], model.numerics, model.device)
        logits = model.logits(model.forward(step)[:200])  # [tokens, vocab]

    assert 2.0 < logits.std(-1).mean() < 8.0
    assert (logits.argmax(-1) == ids).float().mean() < 0.1
    assert len(logits.argmax(-1).unique()) > 80


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CheckpointError, match=f"seeded model: got 'tiny-gpt', allowed {', '.join(sorted(SEEDED_MODELS))}"):
        seeded_checkpoint("tiny-gpt", torch.float32)
