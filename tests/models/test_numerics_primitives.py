"""The primitives of the numerics contract against the plain way of saying the same: values, order, ties, odd sizes."""

from __future__ import annotations

from types import SimpleNamespace
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from equivalence.bits import assert_bits_differ, assert_bits_equal
from equivalence.row_bound import one_row_otherwise
from zllm_ref.runtime import numerics
from zllm_ref.runtime.numerics import (
    Numerics,
    RunningAttention,
    fold_softmax,
    fold_sum,
    top_k_indices,
    top_k_mask,
    whole_vectors,
)

FLOAT32 = Numerics(torch.float32)
LOOSE = Numerics(torch.float32, invariant=False)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.integers(1, 12))
def test_the_k_largest_of_equal_scores_are_the_first_ones(scores: list[int], k: int) -> None:
    plain = sorted(range(len(scores)), key=lambda index: (-scores[index], index))[:k]

    mask = top_k_mask(torch.tensor([scores], dtype=torch.float32), k)

    assert mask[0].nonzero()[:, 0].tolist() == sorted(plain)
    if k <= len(scores):
        assert top_k_indices(torch.tensor([scores], dtype=torch.float32), k)[0].tolist() == sorted(plain)


def test_what_is_masked_is_chosen_last() -> None:
    scores = torch.tensor([[float("-inf"), 1.0, float("-inf"), 2.0]])

    assert top_k_mask(scores, 2)[0].tolist() == [False, True, False, True]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 31, 128])
def test_a_folded_sum_is_the_sum(size: int) -> None:
    values = random(7, size, 3)

    assert torch.allclose(fold_sum(values, 1), values.double().sum(1).float(), atol=1e-5)
    assert torch.allclose(fold_softmax(values, 1), values.softmax(1), atol=1e-6)


def test_a_folded_sum_does_not_feel_its_neighbours() -> None:
    values = random(64, 33, 5)

    assert_bits_equal("sum", fold_sum(values[3:4], 1), fold_sum(values, 1)[3:4])


@pytest.mark.parametrize("function", [torch.sigmoid, torch.exp, F.softplus], ids=lambda f: f.__name__)
def test_an_element_has_the_same_bits_in_a_tensor_of_any_size(function: object) -> None:
    values = random(4099)
    assert callable(function)
    whole = whole_vectors(function, values)

    for size in (1, 3, 31, 33, 63, 65, 1000):
        assert_bits_equal("element", whole_vectors(function, values[:size]), whole[:size])


def sigmoid_with_a_tail(values: Tensor) -> Tensor:
    """As a vector kernel may have it, but surely: what does not fill a register takes another routine, one bit off."""
    result = torch.sigmoid(values)
    whole = values.numel() // 16 * 16
    return torch.cat((result[:whole], torch.nextafter(result[whole:], torch.tensor(2.0))))


def test_without_whole_vectors_the_last_elements_differ_and_with_them_they_do_not() -> None:
    values = random(64 * 31)

    bare = torch.cat([sigmoid_with_a_tail(part) for part in values.split(31)])
    whole = torch.cat([whole_vectors(sigmoid_with_a_tail, part) for part in values.split(31)])

    assert_bits_differ("sigmoid", bare, torch.sigmoid(values))
    assert_bits_equal("sigmoid", whole, torch.sigmoid(values))


@pytest.mark.parametrize("num_rows", [1, 2, 3, 5, 16, 17])
def test_a_float32_product_of_few_rows_is_that_of_many(num_rows: int) -> None:
    rows, weight = random(200, 256).bfloat16(), random(24, 256, seed=1)

    assert_bits_equal("rows", FLOAT32.float32_linear(rows[:num_rows], weight), FLOAT32.float32_linear(rows, weight)[:num_rows])


def test_a_float32_product_of_a_kernel_that_looks_at_the_number_of_rows_differs_without_padding_and_not_with_it() -> None:
    rows, weight = random(200, 256), random(24, 256, seed=1)

    with mock.patch.object(numerics, "F", SimpleNamespace(linear=one_row_otherwise, pad=F.pad)):
        assert_bits_differ("rows", LOOSE.float32_linear(rows[:1], weight), LOOSE.float32_linear(rows, weight)[:1])
        assert_bits_equal("rows", FLOAT32.float32_linear(rows[:1], weight), FLOAT32.float32_linear(rows, weight)[:1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_grouped_product_is_one_product_a_group(dtype: torch.dtype) -> None:
    chosen = Numerics(dtype)
    rows, weight = random(24, 3, 64).to(dtype), random(3, 40, 64, seed=1).to(dtype)

    together = chosen.grouped_linear(rows, weight)

    plain = torch.stack([rows[:, group].double() @ weight[group].double().T for group in range(3)], 1)
    assert torch.allclose(together.double(), plain, atol=0.2 if dtype == torch.bfloat16 else 1e-4)
    assert_bits_equal("rows", chosen.grouped_linear(rows[8:16].contiguous(), weight), together[8:16])


def test_a_grouped_product_of_rows_that_are_not_padded_is_refused() -> None:
    with pytest.raises(ValueError, match="grouped_linear: got 3 rows, allowed 8"):
        FLOAT32.grouped_linear(random(3, 2, 64), random(2, 64, 64))


def test_running_attention_is_softmax_attention_with_a_sink() -> None:
    queries, keys, sinks = random(16, 64), random(96, 64, seed=1), random(16, 1, seed=2)
    visible = random(16, 96, seed=3) > 0.5
    mask = torch.zeros(16, 96).masked_fill_(~visible, float("-inf"))

    running = RunningAttention(queries, 64, 0.125, sinks)
    for start in (0, 32, 64):
        tile = keys[start : start + 32]
        running.add(tile, tile, mask[:, start : start + 32])

    scores = torch.cat([queries @ keys.T * 0.125 + mask, sinks], -1).softmax(-1)[:, :-1]
    assert torch.allclose(running.result(), scores @ keys, atol=1e-5)


@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_masked_tile_adds_nothing_wherever_it_stands(before: int) -> None:
    queries, keys = random(8, 64), random(32, 64, seed=1)
    other, nothing, everything = random(32, 64, seed=2), torch.full((8, 32), float("-inf")), torch.zeros(8, 32)

    plain = RunningAttention(queries, 64, 0.125)
    plain.add(keys, keys, everything)
    padded = RunningAttention(queries, 64, 0.125)
    for _ in range(before):
        padded.add(other, other, nothing)
    padded.add(keys, keys, everything)
    padded.add(other, other, nothing)

    assert_bits_equal("attention", padded.result(), plain.result())


def test_a_row_that_sees_nothing_gives_zeros() -> None:
    running = RunningAttention(random(8, 64), 64, 0.125)
    running.add(random(32, 64), random(32, 64), torch.full((8, 32), float("-inf")))

    assert not running.result().any()
