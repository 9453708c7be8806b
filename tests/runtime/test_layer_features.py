"""The rows that leave chosen layers, for those who ask."""

from __future__ import annotations

import pytest
import torch

from zllm_ref.runtime.model import Model
from zllm_ref.runtime.models.registry import build_model
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.state import SessionState
from zllm_ref.runtime.step import build_step
from zllm_ref.runtime.weights import seeded_checkpoint

NAMES = ("tiny-llama", "tiny-qwen3", "tiny-glm4-moe", "tiny-deepseek-v32", "tiny-deepseek-v4")


def model_of(name: str) -> Model:
    return build_model(seeded_checkpoint(name, torch.float32), Numerics(torch.float32))


@pytest.mark.parametrize("name", NAMES)
@torch.inference_mode()
def test_chosen_layers_hand_out_their_rows_and_the_pass_is_the_same(name: str) -> None:
    model, ids = model_of(name), list(range(10))

    asked = build_step([(SessionState(model.state, 10, model.device), ids)], model.numerics, model.device, (0, 1))
    hidden = model.forward(asked)
    plain = build_step([(SessionState(model.state, 10, model.device), ids)], model.numerics, model.device)

    assert torch.equal(hidden, model.forward(plain))
    assert plain.features is None
    assert asked.features is not None
    rows = asked.features.side_by_side()
    first, second = rows.chunk(2, -1)
    assert rows.shape[0] == asked.ids.shape[0]
    assert first.shape == second.shape
    assert not torch.equal(first, second)


@torch.inference_mode()
def test_the_last_layers_row_is_the_final_row_before_its_norm() -> None:
    model = model_of("tiny-llama")
    last = model.state.growing[0].layers - 1

    step = build_step([(SessionState(model.state, 10, model.device), [5, 6, 7])], model.numerics, model.device, (last,))
    hidden = model.forward(step)

    assert step.features is not None
    norm = model._norm  # type: ignore[attr-defined]
    epsilon = model.config.rms_norm_eps  # type: ignore[attr-defined]
    assert torch.equal(model.numerics.rms_norm(step.features.side_by_side(), norm, epsilon), hidden)
