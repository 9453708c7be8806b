"""A prompt that continues a saved state gives the bits of the prompt computed from its start.

The whole way of a state is walked: session, blocks in the prefix graph, another session.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from zllm_ref.cache.admission import Admission
from zllm_ref.cache.resident import PrefixCache
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.prefill import restore
from zllm_ref.runtime.state import SessionState

from .bits import assert_bits_differ, assert_bits_equal
from .subjects import Run, logits, prompt_ids, run_pieces, run_whole

FOLLOWING = 260


def new_cache(model: Model) -> PrefixCache:
    return PrefixCache(model.state.layout(), 1 << 30, identity="equivalence")


def admit(cache: PrefixCache, model: Model, ids: list[int]) -> Admission:
    admission = cache.admit("", np.array(ids, dtype=np.int32), reserve_bytes=model.state.session_bytes(len(ids)), cache_id=None)
    assert admission is not None
    return admission


def save(cache: PrefixCache, model: Model, ids: list[int]) -> None:
    admission = admit(cache, model, ids)
    run = run_whole(model, ids)
    assert cache.commit(admission, np.array(ids, dtype=np.int32), run.state) is not None
    cache.release(admission)
    cache.check()


def continue_from_cache(cache: PrefixCache, model: Model, ids: list[int], expected_cached: int) -> Run:
    admission = admit(cache, model, ids)
    assert admission.hit is not None
    assert admission.hit.length == expected_cached
    state = SessionState(model.state, len(ids), model.device)
    with torch.inference_mode():
        restore(state, admission.hit)
    rest = ids[expected_cached:]
    run = run_pieces(model, rest, [len(rest)], state)
    cache.release(admission)
    cache.check()
    return run


def assert_continues_like_cold(model: Model, got: Run, ids: list[int]) -> None:
    cold = run_whole(model, ids)
    rows = got.hidden.shape[0]
    assert_bits_equal("logits", logits(model, got.hidden), logits(model, cold.hidden[-rows:]))
    for tensor in model.state.tensors:
        assert_bits_equal(tensor.name, got.state_rows(tensor.name), cold.state_rows(tensor.name))


@pytest.mark.parametrize("saved", [300, 512], ids=lambda saved: f"saved-{saved}")
def test_a_continued_state_gives_the_bits_of_a_cold_prompt(model: Model, saved: int) -> None:
    cache = new_cache(model)
    ids = prompt_ids(model, saved + FOLLOWING, seed=30)
    save(cache, model, ids[:saved])

    got = continue_from_cache(cache, model, ids, expected_cached=saved)

    assert_continues_like_cold(model, got, ids)


def test_a_prompt_that_leaves_a_saved_state_in_its_middle_gives_the_bits_of_a_cold_prompt(model: Model) -> None:
    cache = new_cache(model)
    saved = prompt_ids(model, 400, seed=31)
    save(cache, model, saved)
    branch = saved[:177] + prompt_ids(model, FOLLOWING, seed=32)

    got = continue_from_cache(cache, model, branch, expected_cached=177)

    assert_continues_like_cold(model, got, branch)


def test_two_branches_of_one_trunk_do_not_touch_each_other(model: Model) -> None:
    cache = new_cache(model)
    trunk = prompt_ids(model, 256, seed=33)
    save(cache, model, trunk)
    one, other = trunk + prompt_ids(model, 150, seed=34), trunk + prompt_ids(model, 150, seed=35)

    first = continue_from_cache(cache, model, one, expected_cached=256)
    second = continue_from_cache(cache, model, other, expected_cached=256)

    assert_continues_like_cold(model, first, one)
    assert_continues_like_cold(model, second, other)
    assert_bits_differ("logits of two branches", logits(model, first.hidden), logits(model, second.hidden))


def test_with_invariance_off_a_continued_state_differs(loose_model: Model) -> None:
    cache = new_cache(loose_model)
    ids = prompt_ids(loose_model, 300, seed=36)
    save(cache, loose_model, ids[:40])

    state_run = continue_from_cache(cache, loose_model, ids[:41], expected_cached=40)
    decoded = run_pieces(loose_model, ids[41:], [1] * (300 - 41), extend(loose_model, state_run, 300))
    cold = run_whole(loose_model, ids)

    assert_bits_differ("logits", logits(loose_model, decoded.hidden), logits(loose_model, cold.hidden[41:]))


def test_a_state_restored_with_one_wrong_row_differs(model: Model) -> None:
    """The comparison sees a single damaged row of the state."""
    ids = prompt_ids(model, 300, seed=37)
    whole = run_whole(model, ids)
    damaged = run_whole(model, ids[:200]).state.fork(300)
    name = model.state.growing[0].name
    damaged.tensors[name][0, 100] += 1

    got = run_pieces(model, ids[200:], [100], damaged)

    assert_bits_differ("logits", logits(model, got.hidden), logits(model, whole.hidden[200:]))


def extend(model: Model, run: Run, capacity: int) -> SessionState:
    with torch.inference_mode():
        return run.state.fork(capacity)
