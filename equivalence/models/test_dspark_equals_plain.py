"""A block drafter changes no token in any family, healthy, corrupted or ignorant, and its cache is state like all other state.

The cache is advisory, but nothing about it is loose: its rows have the bits that one step over everything gives, whatever way
the tokens came, and after rejected guesses, a fork, a copy or a restore the same guesses follow.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from zllm_ref.runtime.draft.dspark import Dspark, DsparkDrafter, seeded_dspark
from zllm_ref.runtime.draft.dspark.drafter import LEAST_CONTEXT
from zllm_ref.runtime.draft.dspark.shape import CACHE
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.models.registry import build_model
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.restore import restore_from_ssd
from zllm_ref.runtime.sampler import SamplingParameters
from zllm_ref.runtime.sequence import Sequence
from zllm_ref.runtime.state import SessionState, StateDeclaration
from zllm_ref.runtime.step import build_step, commit_step
from zllm_ref.runtime.verify import DraftedSequence, Verified, verify_round
from zllm_ref.runtime.weights import seeded_checkpoint

from ..bits import assert_bits_differ, assert_bits_equal
from ..restored_process import tiered_cache
from ..subjects import DTYPES, prompt_ids
from .families import FAMILIES
from .test_speculative_equals_plain import NEW_TOKENS, Oracle, assert_same_end, begin, plain, prompt_of, tell

SAMPLINGS = {"greedy": SamplingParameters(), "sampled": SamplingParameters(temperature=0.8, seed=5, top_p=0.95)}


@cache
def drafted_family(family: str, dtype: str = "float32") -> tuple[Model, Dspark]:
    """A family's tiny model, whose state has the cache of a drafter with random weights."""
    torch.set_num_threads(1)
    model = build_model(seeded_checkpoint(FAMILIES[family], DTYPES[dtype]), Numerics(DTYPES[dtype]))
    factory = seeded_dspark(model)  # type: ignore[arg-type]
    model.state = StateDeclaration([*model.state.tensors, *factory.state_tensors])
    return model, factory


def corrupted(model: Model, weights: str) -> Dspark:
    """Drafters as a disk or a bug may leave them."""
    factory = seeded_dspark(model, seed=7)  # type: ignore[arg-type]
    values = {"noise": 1e4, "zeros": 0.0, "not-a-number": float("nan")}
    for layer in factory.block._layers:
        layer.out.mul_(values[weights])
        layer.down.mul_(values[weights])
    factory.heads._up.mul_(values[weights])
    return factory


def features_of(model: Model, factory: Dspark, state: SessionState, ids: list[int]) -> Tensor:
    """Appends `ids` to the state. → the rows that a drafter follows."""
    step = build_step([(state, ids)], model.numerics, model.device, factory.feature_layers)
    model.forward(step)
    commit_step(step)
    assert step.features is not None
    return step.features.side_by_side()[: len(ids)].clone()


def followed(model: Model, factory: Dspark, ids: list[int], pieces: list[int], capacity: int = 0) -> DsparkDrafter:
    """A drafter that followed all ids but the last, which is the newest one, in pieces of these sizes."""
    state = SessionState(model.state, max(capacity, len(ids)), model.device)
    drafter = factory.begin(state, ids)
    assert sum(pieces) == len(ids) - 1
    done = 0
    for size in pieces:
        rows = features_of(model, factory, state, ids[done : done + size])
        drafter.follow(done, rows, ids[done + 1 : done + size + 1])
        done += size
    return drafter


def cache_rows(state: SessionState) -> Tensor:
    return state.tensors[CACHE][:, : state.length]


def speculate(model: Model, factory: Dspark, sequence: Sequence, drafter: DsparkDrafter) -> list[Verified]:
    results = []
    while sequence.ended is None:
        lane = DraftedSequence(sequence, drafter)
        results += verify_round(model, [lane], 512, tell, feature_layers=factory.feature_layers)
        sequence.check()
        assert len(results) <= NEW_TOKENS
    return results


def started(
    model: Model, factory: Dspark, prompt: list[int], sampling: SamplingParameters
) -> tuple[Sequence, DsparkDrafter, Tensor]:
    """A sequence behind its first token, a drafter that knows nothing yet, and the rows that it may follow."""
    sequence, _ = begin(model, prompt, sampling)
    rows = features_of(model, factory, SessionState(model.state, len(prompt), model.device), prompt)
    return sequence, factory.begin(sequence.state, prompt), rows


@pytest.mark.parametrize(
    ("drafter", "sampling"),
    [
        ("healthy", "greedy"),
        ("healthy", "sampled"),
        ("noise", "sampled"),
        ("zeros", "greedy"),
        ("not-a-number", "greedy"),
        ("cache-of-noise", "sampled"),
        ("ignorant", "greedy"),
    ],
)
@pytest.mark.parametrize("family", list(FAMILIES))
@torch.inference_mode()
def test_tokens_and_state_are_those_of_plain_rounds(family: str, drafter: str, sampling: str) -> None:
    model, healthy = drafted_family(family)
    factory = corrupted(model, drafter) if drafter in ("noise", "zeros", "not-a-number") else healthy
    prompt = prompt_of(61, seed=8)
    expected = plain(model, begin(model, prompt, SAMPLINGS[sampling])[0])

    sequence, guesser, rows = started(model, factory, prompt, SAMPLINGS[sampling])
    if drafter != "ignorant":
        guesser.follow(0, rows, [*prompt[1:], sequence.pending[0]])
    if drafter == "cache-of-noise":
        sequence.state.tensors[CACHE].normal_()
    results = speculate(model, factory, sequence, guesser)

    assert_same_end(sequence, expected)
    assert any(result.proposed for result in results)


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("family", list(FAMILIES))
@torch.inference_mode()
def test_a_row_of_the_cache_does_not_know_how_its_token_came(family: str, dtype: str) -> None:
    model, factory = drafted_family(family, dtype)
    ids = prompt_ids(model, 261, seed=9)

    whole = followed(model, factory, ids, [260])

    for pieces in ([1] * 20 + [240], [127, 1, 132], [250, *[5] * 2]):
        other = followed(model, factory, ids, pieces)
        assert_bits_equal(f"{CACHE} {pieces[:3]}", cache_rows(other._state), cache_rows(whole._state))
        assert other.propose(5) == whole.propose(5)
        assert other.chances() == whole.chances()
        assert len(other.chances()) == len(other.propose(5)) == factory.most_length


@pytest.mark.parametrize("family", list(FAMILIES))
@torch.inference_mode()
def test_rejected_guesses_leave_no_trace_in_the_cache(family: str) -> None:
    model, factory = drafted_family(family)
    prompt = prompt_of(61, seed=10)
    sequence, drafter, rows = started(model, factory, prompt, SamplingParameters())
    drafter.follow(0, rows, [*prompt[1:], sequence.pending[0]])
    answer = plain(model, begin(model, prompt, SamplingParameters())[0]).produced

    class Liar(DsparkDrafter):
        """Two right guesses, then wrong ones; follows like the drafter that it is."""

        def propose(self, limit: int) -> list[int]:
            return Oracle(answer, frozenset(range(2, 99, 3)), 5, len(sequence.produced)).propose(limit)

    drafter.__class__ = Liar
    results = speculate(model, factory, sequence, drafter)

    ids = [*prompt, *sequence.produced]
    once = followed(model, factory, ids[: sequence.state.length + 1], [sequence.state.length])
    assert any(result.accepted < result.proposed for result in results)
    assert any(result.accepted for result in results)
    assert_bits_equal(CACHE, cache_rows(sequence.state), cache_rows(once._state))


def copied(state: SessionState) -> SessionState:
    """Block by block, out and into another session."""
    other = SessionState(state.declaration, state.capacity, state.device)
    for start in range(0, state.length, 128):
        end = min(state.length, start + 128)
        other.load_rows(start, end - start, state.copy_rows(start, end))
    fixed = state.copy_fixed()
    if fixed is not None:
        other.load_fixed(fixed)
    other.length = state.length
    return other


def marked_and_returned(state: SessionState) -> SessionState:
    """Eight tokens further and back again."""
    family = next(name for name in FAMILIES if drafted_family(name)[0].state is state.declaration)
    model, factory = drafted_family(family)
    mark = state.mark()
    drafter = factory.begin(state, [])
    rows = features_of(model, factory, state, list(range(8)))
    drafter.follow(mark.length, rows, list(range(1, 9)))
    state.return_to(mark)
    return state


@pytest.mark.parametrize("way", [SessionState.fork, copied, marked_and_returned], ids=["fork", "out-and-in", "rollback"])
@pytest.mark.parametrize("family", list(FAMILIES))
@torch.inference_mode()
def test_a_copy_of_the_cache_guesses_the_same(family: str, way: Callable[[SessionState], SessionState]) -> None:
    model, factory = drafted_family(family)
    ids = prompt_ids(model, 142, seed=11)
    original = followed(model, factory, ids[:141], [140], capacity=160)
    rows = cache_rows(original._state).clone()

    twin = way(original._state)
    assert_bits_equal(CACHE, cache_rows(twin), rows)
    guesses = [
        going_on(model, factory, state, ids) for state in (twin, followed(model, factory, ids[:141], [140], capacity=160)._state)
    ]

    assert guesses[0] == guesses[1]
    assert len(guesses[0][0]) == factory.most_length


def going_on(model: Model, factory: Dspark, state: SessionState, ids: list[int]) -> tuple[list[int], list[float]]:
    """What a new drafter guesses on a state that holds all ids but the newest two, after one more token."""
    start = state.length
    drafter = factory.begin(state, ids)
    drafter.follow(start, features_of(model, factory, state, ids[start : start + 1]), ids[start + 1 : start + 2])
    return drafter.propose(5), drafter.chances()


@pytest.mark.parametrize("lost", [False, True], ids=["saved", "left-out"])
@pytest.mark.parametrize("family", list(FAMILIES))
@torch.inference_mode()
def test_after_a_restore_it_guesses_the_same_or_waits_until_it_has_rows(family: str, lost: bool, tmp_path: Path) -> None:
    model, factory = drafted_family(family)
    ids = prompt_ids(model, 142 + LEAST_CONTEXT, seed=12)
    before = followed(model, factory, ids[:141], [140], capacity=len(ids))._state
    expected = going_on(model, factory, before.fork(), ids)
    tiers = tiered_cache(model, tmp_path)
    saved = np.array(ids[:140], dtype=np.int32)
    admission = tiers.admit("", saved, reserve_bytes=model.state.session_bytes(len(ids)))
    assert admission is not None
    if lost:
        before.tensors[CACHE].zero_()
    assert tiers.commit(admission, saved, before) is not None
    tiers.release(admission)
    while tiers.pump() or tiers.is_writing:
        pass
    tiers.store.close()

    other = tiered_cache(model, tmp_path)
    hit = other.admit("", np.array(ids, dtype=np.int32), reserve_bytes=model.state.session_bytes(len(ids)))
    assert hit is not None
    state = SessionState(model.state, len(ids), model.device)
    assert restore_from_ssd(state, other, hit) == 140
    other.release(hit)

    if not lost:
        assert_bits_equal(CACHE, cache_rows(state), cache_rows(before))
        assert going_on(model, factory, state, ids) == expected
        return
    counts = []
    drafter = factory.begin(state, ids)
    for place in range(140, 140 + LEAST_CONTEXT + 1):
        drafter.follow(place, features_of(model, factory, state, ids[place : place + 1]), ids[place + 1 : place + 2])
        counts.append(len(drafter.propose(5)))
    assert counts == [*[0] * (LEAST_CONTEXT - 1), 5, 5]


@torch.inference_mode()
def test_what_the_drafter_reads_matters_to_its_guesses() -> None:
    """The control: without these rows the tests above would compare nothing."""
    model, factory = drafted_family("llama")
    ids = prompt_ids(model, 141, seed=13)
    healthy, blind = (followed(model, factory, ids, [140]) for _ in range(2))
    blind._state.tensors[CACHE][:, 40:90].normal_()

    assert_bits_differ(CACHE, cache_rows(blind._state), cache_rows(healthy._state))
    healthy.propose(5)
    blind.propose(5)
    assert blind.chances() != healthy.chances()
