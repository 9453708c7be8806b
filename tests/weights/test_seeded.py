"""Seeded models: the same everywhere, lively, and wide enough where width matters."""

from __future__ import annotations

import hashlib

import pytest
import torch

from zllm_ref.runtime.weights import SEEDED_MODELS, Checkpoint, CheckpointError, seeded_checkpoint

CONTENT = {
    "tiny-llama": "b852e3f3eb8ace75acc47bb71b258bafed9597b5c6864667f2f10d9a0e5e9d5f",
    "tiny-llama-wide": "dce39a2c73bcd74231f908090dfbe42ca9eec89d48086a5821aaa0ad0e51bac6",
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
    assert all(torch.equal(narrow.tensors[key], tensor.to(torch.bfloat16)) for key, tensor in wide.tensors.items())


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
    from transformers import LlamaConfig, LlamaForCausalLM

    checkpoint = seeded_checkpoint(name, torch.float32)
    config = LlamaConfig(**{key: value for key, value in checkpoint.config.items() if key != "model_type"})
    model = LlamaForCausalLM(config).eval()
    model.load_state_dict(dict(checkpoint.tensors.items()), strict=False)
    model.tie_weights()
    ids = torch.randint(0, 512, (1, 200), generator=torch.Generator().manual_seed(1))

    with torch.no_grad():
        logits = model(ids).logits[0]  # [tokens, vocab]

    assert 2.0 < logits.std(-1).mean() < 8.0
    assert (logits.argmax(-1) == ids[0]).float().mean() < 0.1
    assert len(logits.argmax(-1).unique()) > 100


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CheckpointError, match="seeded model: got 'tiny-gpt', allowed tiny-llama, tiny-llama-wide"):
        seeded_checkpoint("tiny-gpt", torch.float32)
