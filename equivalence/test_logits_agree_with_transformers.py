"""Against an outsider: the same dequantised float32 weights in `transformers` give the same logits up to rounding.

The only place of this folder with a tolerance: another implementation sums in another order. Every argmax must agree; the
inputs are such that rounding cannot tip one.
"""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from zllm_ref.runtime.models.llama import LlamaConfig as OwnConfig
from zllm_ref.runtime.weights import Checkpoint, open_checkpoint
from zllm_ref.tokenizer.gguf_vocabulary import vocabulary_from_gguf_metadata

from .parity.parity import assert_same_choice
from .subjects import SMOLLM2, default_model_path, logits, prompt_ids, run_whole, subject

POSITIONS = 512
TOLERANCE = 2e-3  # of logits whose standard deviation is about 4
TEXT = (
    "A server that answers agents has to keep three things aligned: the conversation that the client sees, the tokens that "
    "the model reads, and the state that the device holds. When a client comes back with the same beginning, the state of "
    "that beginning need not be computed again. What was saved must be the same, to the last bit, as what would be computed "
)


def outsider(checkpoint: Checkpoint) -> LlamaForCausalLM:
    settings = {key: value for key, value in checkpoint.config.items() if key != "model_type"}
    model = LlamaForCausalLM(LlamaConfig(**settings, attn_implementation="eager")).float().eval()
    missing, unexpected = model.load_state_dict(dict(checkpoint.tensors.items()), strict=False)
    assert set(missing) <= {"lm_head.weight"}
    assert not unexpected
    model.tie_weights()
    return model


@pytest.fixture(scope="module")
def pair() -> tuple[LlamaForCausalLM, list[int]]:
    checkpoint = open_checkpoint(default_model_path(), torch.float32)
    metadata = checkpoint.tokenizer_source.gguf_metadata
    assert metadata is not None
    vocabulary = vocabulary_from_gguf_metadata(dict(metadata))
    ids = vocabulary.encode_text("Here is why. " + TEXT * 8)[:POSITIONS]
    assert len(ids) == POSITIONS
    return outsider(checkpoint), ids


def test_logits_of_the_default_model_agree_and_every_argmax_is_the_same(pair: tuple[LlamaForCausalLM, list[int]]) -> None:
    model, ids = pair

    own_model = subject(SMOLLM2, "float32")
    own = logits(own_model, run_whole(own_model, ids).hidden)
    with torch.inference_mode():
        theirs = model(torch.tensor([ids])).logits[0]

    assert own.shape == theirs.shape == (POSITIONS, own_model.vocab_size)
    assert float((own - theirs).abs().max()) < TOLERANCE
    assert_same_choice(own, theirs, TOLERANCE / 2)


def test_the_comparison_sees_another_rotation_base(pair: tuple[LlamaForCausalLM, list[int]]) -> None:
    model, ids = pair

    own_model = subject(SMOLLM2, "float32")
    checkpoint = open_checkpoint(default_model_path(), torch.float32)
    changed = OwnConfig.from_dict({**checkpoint.config, "rope_theta": 10_000.0})
    wrong = type(own_model)(changed, checkpoint.tensors, own_model.numerics)  # type: ignore[call-arg]
    other = logits(wrong, run_whole(wrong, ids[:128]).hidden)
    with torch.inference_mode():
        theirs = model(torch.tensor([ids[:128]])).logits[0]

    assert float((other - theirs).abs().max()) > TOLERANCE


@pytest.mark.parametrize("factor", [2.0, 4.0])
def test_a_context_stretched_by_yarn_agrees(factor: float) -> None:
    """Beyond the model's own length, with the same scaling in both."""
    from zllm_ref.runtime.numerics import Numerics
    from zllm_ref.runtime.weights import seeded_checkpoint

    checkpoint = seeded_checkpoint("tiny-llama", torch.float32, overrides={"max_position_embeddings": 128})
    length = int(128 * factor)
    own_model = type(subject("tiny-llama", "float32"))(
        OwnConfig.from_dict(checkpoint.config, length),  # type: ignore[call-arg]
        checkpoint.tensors,
        Numerics(torch.float32),
    )
    scaling = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": 128}
    parameters = {**scaling, "rope_theta": checkpoint.config["rope_theta"]}
    settings = {**checkpoint.config, "max_position_embeddings": length, "rope_parameters": parameters}
    stretched = Checkpoint("llama", settings, checkpoint.tensors, "")
    model = outsider(stretched)
    ids = prompt_ids(own_model, length, seed=6)

    own = logits(own_model, run_whole(own_model, ids).hidden)
    with torch.inference_mode():
        theirs = model(torch.tensor([ids])).logits[0]

    assert float((own - theirs).abs().max()) < TOLERANCE
    assert_same_choice(own, theirs, TOLERANCE / 2)
