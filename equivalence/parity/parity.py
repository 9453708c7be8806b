"""Comparing a model with the one of `transformers`: the only place where a tolerance is allowed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from zllm_ref.runtime.model import Model
from zllm_ref.runtime.state import SessionState
from zllm_ref.runtime.step import build_step, commit_step

TOLERANCE = 2e-4
"""On float32 logits of spread 1 to 5: some hundred roundings of 6e-8 each."""

Theirs = Any
"""A `transformers` causal language model."""


def shake(name: str, tensor: Tensor, config: Any) -> None:
    """Random values of a size at which every part of the model matters to the logits."""
    if "inv_freq" in name:
        return
    if name.endswith("tid2eid"):
        rows = [torch.randperm(config.n_routed_experts)[: tensor.shape[1]] for _ in range(tensor.shape[0])]
        tensor.copy_(torch.stack(rows))
    elif tensor.dim() == 1:
        is_gain = ("norm" in name and not name.endswith("bias")) or name.endswith("scale")
        tensor.normal_(1.0 if is_gain else 0.0, 0.1)
    elif "position_bias" in name:
        tensor.normal_(0.0, 0.5)
    elif "embed" in name or "lm_head" in name:
        tensor.normal_(0.0, 4.0 / tensor.shape[-1] ** 0.5)
    else:
        tensor.normal_(0.0, 1.2 / tensor.shape[-1] ** 0.5)


def run(model: Model, state: SessionState, ids: list[int]) -> Tensor:
    """Logits of `ids` appended to `state`, [ids, vocab]."""
    step = build_step([(state, ids)], model.numerics, model.device)
    hidden = model.forward(step)
    commit_step(step)
    return model.logits(hidden[: step.num_rows])


def some_ids(vocab_size: int, count: int) -> list[int]:
    return torch.randint(0, vocab_size, (count,), generator=torch.Generator().manual_seed(11)).tolist()


@torch.inference_mode()
def assert_same_model(theirs: Theirs, ours: Model, num_prompt: int, num_decode: int) -> None:
    """Prefill in one piece and token-by-token decode give the logits of `transformers` within `TOLERANCE`, argmax equal."""
    ids = some_ids(ours.vocab_size, num_prompt + num_decode)
    state = SessionState(ours.state, len(ids), ours.device)

    prompt = run(ours, state, ids[:num_prompt])
    decoded = torch.cat([run(ours, state, [token]) for token in ids[num_prompt:]])

    output = theirs(torch.tensor([ids[:num_prompt]]), use_cache=True)
    assert_close(prompt, output.logits[0])
    rows, cache = [], output.cache
    for token in ids[num_prompt:]:
        output = theirs(torch.tensor([[token]]), cache=cache, use_cache=True)
        rows.append(output.logits[0, -1])
        cache = output.cache
    assert_close(decoded, torch.stack(rows))


def assert_close(got: Tensor, expected: Tensor) -> None:
    assert got.shape == expected.shape
    assert expected.std() > 0.5, "logits too flat to compare"
    assert float((got - expected).abs().max()) <= TOLERANCE, f"largest difference {float((got - expected).abs().max())}"
    assert torch.equal(got.argmax(-1), expected.argmax(-1))
