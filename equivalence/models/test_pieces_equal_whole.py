"""A prompt cut anywhere, appended to or decoded token by token, in company or alone: the bits of the prompt in one piece."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from zllm_ref.runtime.model import Model
from zllm_ref.runtime.state import SessionState
from zllm_ref.runtime.step import build_step, commit_step

from ..bits import assert_bits_differ
from ..conftest import EXAMPLES
from ..subjects import Run, logits, prompt_ids, run_pieces, run_whole
from .families import BORDERS, FAMILIES, assert_same_run, family_model

LENGTH = 540  # past the first key tile, not a multiple of anything


def pieces_of(borders: list[int], length: int) -> list[int]:
    points = [0, *sorted({border for border in borders if border < length}), length]
    return [end - start for start, end in pairwise(points)]


def test_pieces_that_end_at_every_border_give_the_bits_of_the_whole(family: Model) -> None:
    ids = prompt_ids(family, LENGTH)
    whole = run_whole(family, ids)

    assert_same_run(family, run_pieces(family, ids, pieces_of(list(BORDERS), LENGTH)), whole)
    assert_same_run(family, run_pieces(family, ids, [257, LENGTH - 257]), whole)


def test_decoding_across_every_border_gives_the_bits_of_one_prefill(family: Model) -> None:
    """Token by token over the first borders of compressors, window and chosen keys, and over the end of a key tile."""
    ids = prompt_ids(family, LENGTH, seed=2)

    whole = run_whole(family, ids)
    decoded = run_pieces(family, ids, [1] * 70 + [LENGTH - 100] + [1] * 30)

    assert_same_run(family, decoded, whole)


@pytest.mark.parametrize("name", list(FAMILIES))
def test_any_split_gives_the_bits_of_the_whole(name: str, device: str) -> None:
    model = family_model(name, "float32", device=device)
    length = 300
    ids = prompt_ids(model, length, seed=3)
    whole = run_whole(model, ids)

    @EXAMPLES
    @given(st.lists(st.sampled_from(BORDERS) | st.integers(1, length - 1), max_size=8))
    def check(borders: list[int]) -> None:
        assert_same_run(model, run_pieces(model, ids, pieces_of(borders, length)), whole)

    check()


def test_a_batch_gives_each_sequence_the_bits_that_it_has_alone(family: Model) -> None:
    """Four sequences of other lengths share steps: chunks beside chunks, then single tokens beside a chunk."""
    lengths = [97, 31, 128, 64]
    prompts = [prompt_ids(family, length + 24, seed=10 + length) for length in lengths]
    states = [SessionState(family.state, 200, family.device) for _ in lengths]
    rows: list[list[torch.Tensor]] = [[] for _ in lengths]

    def step(pieces: list[int]) -> None:
        lanes = [
            (state, prompt[state.length : state.length + count])
            for state, prompt, count in zip(states, prompts, pieces, strict=True)
            if count
        ]
        taken = [index for index, count in enumerate(pieces) if count]
        built = build_step(lanes, family.numerics, family.device)
        hidden = family.forward(built)
        commit_step(built)
        for index, lane in zip(taken, built.lanes, strict=True):
            rows[index].append(hidden[lane.row : lane.row + lane.num_rows].clone())

    with torch.inference_mode():
        step(lengths)
        for _ in range(8):
            step([1, 1, 1, 1])
        step([1, 0, 7, 1])
        step([15, 16, 9, 15])

    for state, prompt, parts in zip(states, prompts, rows, strict=True):
        assert_same_run(family, Run(torch.cat(parts), state), run_whole(family, prompt))


def test_with_invariance_off_decoding_differs(loose_family: Model) -> None:
    ids = prompt_ids(loose_family, 260, seed=4)

    whole = run_whole(loose_family, ids)
    decoded = run_pieces(loose_family, ids, [100] + [1] * 160)

    assert_bits_differ("logits", logits(loose_family, decoded.hidden), logits(loose_family, whole.hidden))


def test_another_prompt_gives_other_bits(family: Model) -> None:
    one = run_whole(family, prompt_ids(family, 100, seed=5))
    other = run_whole(family, prompt_ids(family, 100, seed=6))

    assert_bits_differ("logits", logits(family, one.hidden), logits(family, other.hidden))


def test_what_memory_held_before_is_never_seen(family: Model) -> None:
    ids = prompt_ids(family, 300, seed=7)
    whole = run_whole(family, ids)

    state = SessionState(family.state, 300, family.device)
    for tensor in family.state.growing:
        state.tensors[tensor.name].fill_(float("nan"))

    assert_same_run(family, run_pieces(family, ids, [40, 1, 259], state), whole)
