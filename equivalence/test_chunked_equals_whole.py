"""A prompt cut anywhere gives the bits of the prompt in one piece; appending is the same as having had it all."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from zllm_ref.runtime.model import Model
from zllm_ref.runtime.state import SessionState

from .bits import assert_bits_differ, assert_bits_equal
from .conftest import EXAMPLES, SUBJECTS
from .subjects import SMOLLM2, Run, logits, prompt_ids, run_pieces, run_whole, subject

LENGTH = 640  # past the first key tile, not a multiple of anything
ROWS = 320


def assert_same_run(model: Model, got: Run, expected: Run) -> None:
    first = expected.hidden.shape[0] - ROWS
    for tensor in model.state.tensors:
        assert_bits_equal(tensor.name, got.state_rows(tensor.name), expected.state_rows(tensor.name))
    assert_bits_equal("logits", logits(model, got.hidden[first:]), logits(model, expected.hidden[first:]))


@pytest.mark.parametrize(
    "pieces",
    [
        [LENGTH - 1, 1],
        [100, LENGTH - 100],
        [1] * 5 + [LENGTH - 5],
        [512, LENGTH - 512],
        [511, 1, 1, LENGTH - 513],
        [3, 61, 128, 31, 33, 64, LENGTH - 320],
    ],
    ids=lambda pieces: "+".join(map(str, pieces)) if len(pieces) < 5 else f"{len(pieces)}-pieces",
)
def test_a_prompt_in_pieces_gives_the_bits_of_the_whole(model: Model, pieces: list[int]) -> None:
    ids = prompt_ids(model, LENGTH)

    whole = run_whole(model, ids)
    cut = run_pieces(model, ids, pieces)

    assert_same_run(model, cut, whole)


def test_decoding_token_by_token_gives_the_bits_of_one_prefill(model: Model) -> None:
    ids = prompt_ids(model, LENGTH, seed=2)

    whole = run_whole(model, ids)
    decoded = run_pieces(model, ids, [LENGTH - ROWS] + [1] * ROWS)

    assert_same_run(model, decoded, whole)


@pytest.mark.parametrize(("name", "dtype"), [("tiny-llama", "float32"), ("tiny-llama-wide", "bfloat16")])
def test_any_split_gives_the_bits_of_the_whole(name: str, dtype: str, device: str) -> None:
    model = subject(name, dtype, device=device)
    ids = prompt_ids(model, LENGTH, seed=3)
    whole = run_whole(model, ids)

    @EXAMPLES
    @given(st.lists(st.integers(1, LENGTH - 1), max_size=12, unique=True))
    def check(borders: list[int]) -> None:
        points = [0, *sorted(borders), LENGTH]
        pieces = [end - start for start, end in pairwise(points)]
        assert_same_run(model, run_pieces(model, ids, pieces), whole)

    check()


def test_with_invariance_off_the_same_comparison_differs(loose_model: Model) -> None:
    ids = prompt_ids(loose_model, LENGTH, seed=2)

    whole = run_whole(loose_model, ids)
    decoded = run_pieces(loose_model, ids, [LENGTH - ROWS] + [1] * ROWS)

    first = LENGTH - ROWS
    assert_bits_differ("logits", logits(loose_model, decoded.hidden[first:]), logits(loose_model, whole.hidden[first:]))


def test_another_prompt_gives_other_bits(model: Model) -> None:
    one = run_whole(model, prompt_ids(model, 300, seed=4))
    other = run_whole(model, prompt_ids(model, 300, seed=5))

    assert_bits_differ("logits", logits(model, one.hidden), logits(model, other.hidden))


def test_a_longer_neighbour_in_the_buffer_changes_nothing(model: Model) -> None:
    """What memory held before (here: huge numbers) is never seen through the mask."""
    ids = prompt_ids(model, 300, seed=6)
    whole = run_whole(model, ids)

    state = SessionState(model.state, 300, model.device)
    for tensor in state.tensors.values():
        tensor.fill_(float("nan"))
    dirty = run_pieces(model, ids, [40, 1, 259], state)

    assert_bits_equal("logits", logits(model, dirty.hidden), logits(model, whole.hidden))
    assert not torch.isnan(dirty.hidden).any()


def test_the_default_model_is_among_the_subjects() -> None:
    assert sum(SMOLLM2 in str(subject.id) for subject in SUBJECTS) == 2
