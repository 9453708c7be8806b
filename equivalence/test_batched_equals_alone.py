"""A sequence decoded beside others gives the bits that it gives alone."""

from __future__ import annotations

import torch
from torch import Tensor

from zllm_ref.runtime.model import Model
from zllm_ref.runtime.state import SessionState
from zllm_ref.runtime.step import build_step, commit_step

from .bits import assert_bits_differ, assert_bits_equal
from .subjects import logits, prompt_ids, run_pieces

LENGTHS = (5, 130, 511)
STEPS = 86  # 3 lanes × 86 steps: 258 rows; one lane crosses a key tile


def decode_together(
    model: Model, prompts: list[list[int]], following: list[list[int]]
) -> tuple[list[Tensor], list[SessionState]]:
    """Hidden rows of each lane while all lanes decode in the same rounds, as `decode` builds them."""
    states = []
    for prompt in prompts:
        state = SessionState(model.state, len(prompt) + STEPS, model.device)
        run_pieces(model, prompt, [len(prompt)], state)
        states.append(state)
    rows: list[list[Tensor]] = [[] for _ in prompts]
    with torch.inference_mode():
        for index in range(STEPS):
            step = build_step(
                [(state, [ids[index]]) for state, ids in zip(states, following, strict=True)], model.numerics, model.device
            )
            hidden = model.forward(step)
            commit_step(step)
            for lane in range(len(prompts)):
                rows[lane].append(hidden[lane].clone())
    return [torch.stack(lane) for lane in rows], states


def decode_alone(model: Model, prompt: list[int], following: list[int]) -> tuple[Tensor, SessionState]:
    rows, states = decode_together(model, [prompt], [following])
    return rows[0], states[0]


def sequences(model: Model) -> tuple[list[list[int]], list[list[int]]]:
    prompts = [prompt_ids(model, length, seed=10 + length) for length in LENGTHS]
    following = [prompt_ids(model, STEPS, seed=20 + length) for length in LENGTHS]
    return prompts, following


def test_three_lanes_give_the_bits_of_each_lane_alone(model: Model) -> None:
    prompts, following = sequences(model)

    together, states = decode_together(model, prompts, following)

    for lane, (prompt, ids) in enumerate(zip(prompts, following, strict=True)):
        alone, state = decode_alone(model, prompt, ids)
        assert_bits_equal(f"logits of lane {lane}", logits(model, together[lane]), logits(model, alone))
        for tensor in model.state.tensors:
            length = states[lane].length
            assert_bits_equal(
                f"{tensor.name} of lane {lane}",
                states[lane].tensors[tensor.name][:, :length],
                state.tensors[tensor.name][:, :length],
            )


def test_with_invariance_off_the_same_comparison_differs(loose_model: Model) -> None:
    prompts, following = sequences(loose_model)

    together, _ = decode_together(loose_model, prompts, following)
    alone = [decode_alone(loose_model, prompt, ids)[0] for prompt, ids in zip(prompts, following, strict=True)]

    assert_bits_differ("hidden rows", torch.cat(together), torch.cat(alone))


def test_neighbouring_lanes_give_different_rows(model: Model) -> None:
    prompts, following = sequences(model)

    together, _ = decode_together(model, prompts[:2], following[:2])

    assert_bits_differ("hidden rows of two lanes", together[0], together[1])
