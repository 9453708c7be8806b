"""From a row of logits to a token: every cut, every penalty, and noise that depends on (seed, position) alone."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from zllm_ref.runtime import sampler as sampler_module
from zllm_ref.runtime.ports import TokenMask
from zllm_ref.runtime.sampler import Sampler, SamplingParameters, choice_seed, noise, unpack_mask

VOCAB = 40
DRAWS = 1_000

few_values = st.lists(st.sampled_from([-2.0, 0.0, 0.5, 1.0, 3.0]), min_size=2, max_size=VOCAB).map(torch.tensor)
"""Rows full of ties."""


def mask_of(allowed: set[int], size: int) -> TokenMask:
    bits = np.array([token in allowed for token in range(-(-size // 32) * 32)], dtype=np.bool_)
    return np.packbits(bits, bitorder="little").view(np.int32)


def draw(row: Tensor, position: int = 0, mask: TokenMask | None = None, **parameters: object) -> int:
    return Sampler(SamplingParameters(**parameters), ()).sample(row, position, mask).token_id  # type: ignore[arg-type]


def draws(row: Tensor, num_draws: int = 250, **parameters: object) -> Counter[int]:
    """How often each token comes at positions 0, 1, 2 …"""
    sampler = Sampler(SamplingParameters(**{"temperature": 1.0, **parameters}), ())  # type: ignore[arg-type]
    return Counter(sampler.sample(row, position, None).token_id for position in range(num_draws))


def plainly_kept(row: Tensor, top_k: int, min_p: float, top_p: float) -> list[int]:
    """The plain way: sort everything, then cut three times."""
    probabilities = torch.softmax(row, -1).double().numpy()
    ids = sorted(range(len(probabilities)), key=lambda token: (-float(row[token]), token))
    ids = ids[:top_k] if top_k else ids
    ids = [token for token in ids if probabilities[token] >= min_p * probabilities[ids[0]] * (1 - 1e-6)]
    kept, total = [], 0.0
    whole = sum(probabilities[token] for token in ids)
    for token in ids:
        if kept and total >= top_p:
            break
        kept.append(token)
        total += probabilities[token] / whole
    return kept


# greedy


@given(few_values)
def test_greedy_takes_the_largest_logit_and_of_equal_ones_the_lowest_id(row: Tensor) -> None:
    values = row.tolist()

    assert draw(row) == values.index(max(values))


def test_greedy_needs_no_noise_so_seed_and_position_do_not_matter() -> None:
    row = torch.randn(VOCAB, generator=torch.Generator().manual_seed(1))

    chosen = {draw(row, position=position, seed=seed) for position in range(5) for seed in range(5)}

    assert chosen == {int(row.argmax())}


@pytest.mark.parametrize(
    "changed",
    [
        {"temperature": 1.0},
        {"logit_bias": ((1, 1.0),)},
        {"presence_penalty": 0.1},
        {"frequency_penalty": 0.1},
        {"repetition_penalty": 1.1},
        {"top_logprobs": 0},
    ],
    ids=str,
)
def test_only_an_untouched_row_is_plain_greedy(changed: dict[str, object]) -> None:
    assert SamplingParameters().is_plain_greedy

    assert not SamplingParameters(**changed).is_plain_greedy  # type: ignore[arg-type]


# cuts


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_top_k_keeps_the_best_with_ties_broken_by_id(top_k: int) -> None:
    row = torch.tensor([0.0, 1.0, 1.0, 1.0, -1.0])

    assert set(draws(row, top_k=top_k)) == {1, 2, 3}.intersection(range(1, 1 + top_k))


def test_top_p_keeps_the_fewest_tokens_that_reach_it_with_ties_broken_by_id() -> None:
    row = torch.log(torch.tensor([0.1, 0.3, 0.3, 0.3]))

    assert set(draws(row, top_p=0.25)) == {1}
    assert set(draws(row, top_p=0.5)) == {1, 2}
    assert set(draws(row, top_p=0.95)) == {0, 1, 2, 3}


def test_top_p_of_nothing_still_keeps_the_best_token() -> None:
    assert set(draws(torch.tensor([0.0, 2.0, 1.0]), top_p=1e-9)) == {1}


def test_top_p_counts_what_top_k_left_as_the_whole() -> None:
    row = torch.log(torch.tensor([0.4, 0.4, 0.1, 0.1]))

    assert set(draws(row, top_k=2, top_p=0.49)) == {0}
    assert set(draws(row, top_k=2, top_p=0.51)) == {0, 1}


def test_min_p_drops_what_is_too_unlikely_beside_the_best() -> None:
    row = torch.log(torch.tensor([0.6, 0.3, 0.07, 0.03]))

    assert set(draws(row, min_p=0.4)) == {0, 1}
    assert set(draws(row, min_p=0.1)) == {0, 1, 2}


def test_a_high_temperature_makes_draws_flatter_and_a_low_one_sharper() -> None:
    row = torch.tensor([1.0, 0.0])

    cold, warm, hot = (draws(row, temperature=temperature)[0] / 250 for temperature in (0.25, 1.0, 4.0))

    assert cold > warm > hot > 0.5


@settings(max_examples=50)
@given(few_values, st.integers(0, VOCAB), st.sampled_from([0.0, 0.1, 0.5]), st.sampled_from([0.15, 0.55, 0.85, 1.0]))
def test_what_is_kept_is_what_the_plain_way_keeps(row: Tensor, top_k: int, min_p: float, top_p: float) -> None:
    parameters = SamplingParameters(1.0, top_p=top_p, top_k=top_k, min_p=min_p)

    kept = sampler_module._kept(row, parameters)

    whole = sampler_module._best_first(row, torch.softmax(row, -1), SamplingParameters(), len(row))
    got = whole.tolist() if kept is None else kept.tolist()
    assert got == plainly_kept(row, min(top_k, len(row)), min_p, top_p)


@given(
    seed=st.integers(0, 1000),
    size=st.integers(2, 90),
    head=st.integers(1, 30),
    step=st.sampled_from([0.0, 0.25, 1.0]),
    top_k=st.integers(0, 60),
    min_p=st.sampled_from([0.0, 0.02, 0.5]),
    top_p=st.floats(0.01, 1.0),
)
def test_sorting_the_head_alone_keeps_what_sorting_everything_keeps(
    seed: int, size: int, head: int, step: float, top_k: int, min_p: float, top_p: float
) -> None:
    row = 2 * torch.randn(size, generator=torch.Generator().manual_seed(seed))
    row = (row / step).round() * step if step else row
    parameters = SamplingParameters(1.0, top_p=top_p, top_k=top_k, min_p=min_p)

    with mock.patch.object(sampler_module, "_FIRST_CANDIDATES", head):
        fast = sampler_module._kept(row, parameters)
    with mock.patch.object(sampler_module, "_FIRST_CANDIDATES", size):
        plain = sampler_module._kept(row, parameters)

    assert (fast is None) == (plain is None)
    assert fast is None or fast.tolist() == plain.tolist()


@given(st.integers(0, 1000), st.integers(1, 60))
@settings(max_examples=50)
def test_a_head_whose_mass_just_reaches_top_p_keeps_what_sorting_everything_keeps(seed: int, head: int) -> None:
    row = torch.randn(90, generator=torch.Generator().manual_seed(seed))
    probabilities = torch.softmax(row, -1)
    mass = float(probabilities.topk(head).values.sum())

    for top_p in (math.nextafter(mass, 0.0), mass, math.nextafter(mass, 1.0), mass - 1e-7):
        parameters = SamplingParameters(1.0, top_p=top_p)
        with mock.patch.object(sampler_module, "_FIRST_CANDIDATES", head):
            fast = sampler_module._kept(row, parameters)
        with mock.patch.object(sampler_module, "_FIRST_CANDIDATES", 90):
            plain = sampler_module._kept(row, parameters)
        assert fast is not None
        assert plain is not None
        assert fast.tolist() == plain.tolist()


# penalties and bias


def test_logit_bias_moves_a_token_and_nothing_else() -> None:
    row = torch.tensor([0.0, 1.0, 2.0])

    assert draw(row, logit_bias=((0, 5.0),)) == 0
    assert draw(row, logit_bias=((2, -100.0),)) == 1
    assert draw(row, logit_bias=((0, 1.5),)) == 2
    assert row.tolist() == [0.0, 1.0, 2.0]


def test_presence_counts_once_and_frequency_counts_every_time() -> None:
    row = torch.tensor([0.0, 1.0])
    said_often, said_once = [1, 1, 1], [1]

    def after(produced: list[int], **penalties: float) -> int:
        sampler = Sampler(SamplingParameters(**penalties), ())  # type: ignore[arg-type]
        for token in produced:
            sampler.accept(token)
        return sampler.sample(row, 0, None).token_id

    assert after(said_often, presence_penalty=0.9) == 1
    assert after(said_once, presence_penalty=1.1) == 0
    assert after(said_once, frequency_penalty=0.4) == 1
    assert after(said_often, frequency_penalty=0.4) == 0
    assert after([], presence_penalty=2.0, frequency_penalty=2.0) == 1


def test_the_repetition_penalty_counts_the_prompt_too_and_shrinks_either_sign() -> None:
    positive, negative = torch.tensor([3.0, 2.0]), torch.tensor([-1.0, -1.5])

    def chosen(row: Tensor, prompt: list[int]) -> int:
        return Sampler(SamplingParameters(repetition_penalty=2.0), prompt).sample(row, 0, None).token_id

    assert (chosen(positive, []), chosen(positive, [0, 0])) == (0, 1)
    assert (chosen(negative, []), chosen(negative, [0])) == (0, 1)


def test_a_rollback_forgets_the_newest_tokens() -> None:
    row = torch.tensor([0.0, 1.0])
    sampler = Sampler(SamplingParameters(presence_penalty=2.0), ())
    for token in (0, 1, 1):
        sampler.accept(token)

    sampler.rollback(2)

    assert sampler.sample(row, 0, None).token_id == 1
    sampler.rollback(0)
    sampler.accept(1)
    assert sampler.sample(torch.tensor([0.0, 1.0, 0.5]), 0, None).token_id == 2


def test_sampling_does_not_change_the_sampler() -> None:
    row = torch.randn(VOCAB, generator=torch.Generator().manual_seed(3))
    sampler = Sampler(SamplingParameters(1.0, presence_penalty=1.0, seed=4), ())

    assert len({sampler.sample(row, 7, None) for _ in range(5)}) == 1


# mask


@settings(max_examples=40)
@given(few_values, st.data())
def test_only_allowed_tokens_come_greedy_or_drawn(row: Tensor, data: st.DataObject) -> None:
    size = len(row)
    allowed = data.draw(st.sets(st.integers(0, size - 1), min_size=1))
    mask = mask_of(allowed, size)

    assert draw(row, mask=mask) == max(sorted(allowed), key=lambda token: float(row[token]))
    for parameters in ({}, {"top_k": 1}, {"top_p": 0.3}, {"min_p": 0.9}):
        assert draw(row, data.draw(st.integers(0, 99)), mask, temperature=1.0, **parameters) in allowed


@given(st.integers(1, 200), st.data())
def test_a_mask_is_unpacked_bit_by_bit(size: int, data: st.DataObject) -> None:
    allowed = data.draw(st.sets(st.integers(0, size - 1)))

    assert {index for index, bit in enumerate(unpack_mask(mask_of(allowed, size), size).tolist()) if bit} == allowed


def test_a_bias_does_not_bring_back_what_the_mask_forbids() -> None:
    row = torch.zeros(3)

    assert draw(row, mask=mask_of({2}, 3), logit_bias=((0, 100.0),)) == 2


# randomness


def test_noise_is_a_function_of_seed_and_position_alone() -> None:
    before = noise(5, 9, 100)
    torch.manual_seed(1)
    torch.rand(10)

    assert torch.equal(noise(5, 9, 100), before)
    assert not torch.equal(noise(5, 10, 100), before)
    assert not torch.equal(noise(6, 9, 100), before)


@given(st.integers(-(1 << 63), (1 << 64) - 1), st.integers(0, 1 << 40))
@example(0, 0)
def test_any_seed_and_position_give_noise_that_can_be_divided_by(seed: int, position: int) -> None:
    values = noise(seed, position, 64)

    assert bool((values > 0).all())
    assert bool(torch.isfinite(values).all())


def test_a_draw_does_not_depend_on_what_was_drawn_before_it() -> None:
    rows = torch.randn(50, VOCAB, generator=torch.Generator().manual_seed(8))
    parameters = SamplingParameters(1.0, seed=11)

    one_after_another = Sampler(parameters, ())
    forward = [one_after_another.sample(rows[position], position, None).token_id for position in range(50)]
    backward = [Sampler(parameters, ()).sample(rows[position], position, None).token_id for position in reversed(range(50))]

    assert forward == backward[::-1]
    assert forward != [Sampler(replace(parameters, seed=12), ()).sample(rows[p], p, None).token_id for p in range(50)]


@pytest.mark.parametrize("along", ["positions", "seeds"])
def test_draws_follow_the_distribution(along: str) -> None:
    probabilities = torch.tensor([0.4, 0.25, 0.2, 0.1, 0.05])
    row = torch.log(probabilities)

    if along == "positions":
        counts = draws(row, DRAWS, seed=17)
    else:
        counts = Counter(draw(row, position=3, temperature=1.0, seed=seed) for seed in range(DRAWS))

    expected = (probabilities * DRAWS).tolist()
    chi_square = sum((counts[token] - expected[token]) ** 2 / expected[token] for token in range(5))
    assert chi_square < 18.5  # 4 degrees of freedom: 1 in 1,000


def test_what_a_cut_leaves_keeps_its_proportions() -> None:
    row = torch.log(torch.tensor([0.5, 0.25, 0.15, 0.1]))

    counts = draws(row, DRAWS, top_k=2, seed=3)

    expected = (DRAWS * 2 / 3, DRAWS / 3)
    assert sum((counts[token] - expected[token]) ** 2 / expected[token] for token in range(2)) < 10.9


def test_choices_have_seeds_of_their_own_and_the_first_keeps_the_requests() -> None:
    seeds = {choice_seed(seed, choice) for seed in range(50) for choice in range(20)}

    assert choice_seed(7, 0) == 7
    assert len(seeds) == 50 * 20


# log probabilities


def test_log_probabilities_are_of_the_models_own_distribution_best_first() -> None:
    row = torch.log(torch.tensor([0.1, 0.6, 0.3]))
    sampler = Sampler(SamplingParameters(0.0, logit_bias=((0, 100.0),), top_logprobs=2), ())

    token = sampler.sample(row, 0, None)

    assert token.token_id == 0
    assert token.logprob == pytest.approx(math.log(0.1), abs=1e-6)
    assert [token_id for token_id, _ in token.top] == [1, 2]
    assert [math.exp(logprob) for _, logprob in token.top] == pytest.approx([0.6, 0.3], abs=1e-6)


def test_no_log_probabilities_are_made_unless_asked_for() -> None:
    row = torch.zeros(3)

    assert Sampler(SamplingParameters(), ()).sample(row, 0, None).logprob is None
    of_the_token_alone = Sampler(SamplingParameters(top_logprobs=0), ()).sample(row, 0, None)
    assert of_the_token_alone.logprob == pytest.approx(-math.log(3))
    assert of_the_token_alone.top == ()
