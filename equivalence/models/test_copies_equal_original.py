"""A state forked, copied out and in, or returned to goes on with the bits of the state that was never touched.

Every tensor of the declaration is also left out once: then what follows must differ, or nobody would miss the tensor.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from zllm_ref.cache.resident import PrefixCache
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.prefill import restore
from zllm_ref.runtime.state import SessionState

from ..bits import assert_bits_differ
from ..subjects import logits, prompt_ids, run_pieces, run_whole
from .families import FAMILIES, assert_same_run, assert_same_state, family_model

SAVED = [127, 128, 129, 258]
"""Lengths to copy at: around a border of everything, and one with an open window of each kind."""
FOLLOWING = 260


def copied(state: SessionState, capacity: int, without: str = "") -> SessionState:
    """The state's rows block by block and its fixed tensors, out and into another session; `without` leaves a tensor out."""
    other = SessionState(state.declaration, capacity, state.device)
    for start in range(0, state.length, 128):
        count = min(128, state.length - start)
        payload = dict(state.copy_rows(start, start + count))
        if without in payload:
            payload[without] = torch.zeros_like(payload[without])
        other.load_rows(start, count, payload)
    fixed = state.copy_fixed()
    if fixed is not None:
        other.load_fixed({name: tensor.zero_() if name == without else tensor for name, tensor in fixed.items()})
    other.length = state.length
    return other


@pytest.mark.parametrize("saved", SAVED)
@pytest.mark.parametrize("copy", [copied, SessionState.fork], ids=["out-and-in", "fork"])
def test_a_copy_goes_on_like_the_original(family: Model, copy: Callable[..., SessionState], saved: int) -> None:
    following = FOLLOWING if saved == SAVED[-1] else 40
    ids = prompt_ids(family, saved + following, seed=20)
    original = run_whole(family, ids[:saved]).state

    twin = copy(original, len(ids))
    assert_same_state(twin, original)
    went_on = run_pieces(family, ids[saved:], [1, following - 1], twin)

    assert_same_run(family, went_on, run_whole(family, ids))
    assert_same_state(original, run_whole(family, ids[:saved]).state)  # the original did not feel it


@pytest.mark.parametrize(
    ("name", "tensor"),
    [(name, tensor.name) for name in FAMILIES for tensor in family_model(name, "float32").state.tensors],
)
def test_a_copy_without_one_tensor_differs(name: str, tensor: str, device: str) -> None:
    model = family_model(name, "float32", device=device)
    ids = prompt_ids(model, 258 + 40, seed=20)
    original = run_whole(model, ids[:258]).state

    went_on = run_pieces(model, ids[258:], [40], copied(original, len(ids), without=tensor))

    whole = run_whole(model, ids)
    assert_bits_differ("logits", logits(model, went_on.hidden), logits(model, whole.hidden[258:]))


def test_a_resident_hit_goes_on_like_a_cold_prompt(family: Model) -> None:
    cache = PrefixCache(family.state.layout(), 1 << 30, identity="equivalence")
    ids = np.array(prompt_ids(family, 301 + FOLLOWING, seed=21), dtype=np.int32)
    reserve = family.state.session_bytes(len(ids))
    first = cache.admit("", ids[:301], reserve_bytes=reserve, cache_id=None)
    assert first is not None
    assert cache.commit(first, ids[:301], run_whole(family, ids[:301].tolist()).state) is not None
    cache.release(first)

    second = cache.admit("", ids, reserve_bytes=reserve, cache_id=None)

    assert second is not None
    assert second.hit is not None
    assert second.hit.length == 301
    state = SessionState(family.state, len(ids), family.device)
    restore(state, second.hit)
    went_on = run_pieces(family, ids[301:].tolist(), [FOLLOWING], state)
    assert_same_run(family, went_on, run_whole(family, ids.tolist()))
    cache.release(second)
    cache.check()


def test_two_forks_of_a_shared_prefix_do_not_touch_each_other(family: Model) -> None:
    trunk = prompt_ids(family, 130, seed=22)
    branches = [prompt_ids(family, 130, seed=23), prompt_ids(family, 130, seed=24)]
    state = run_whole(family, trunk).state
    states = [state.fork(300), state.fork(300)]

    runs = []
    for position in range(0, 130, 26):  # in turn, so that one could tread on the other
        pieces = [branch[position : position + 26] for branch in branches]
        runs.append([run_pieces(family, piece, [26], own) for piece, own in zip(pieces, states, strict=True)])

    for index, branch in enumerate(branches):
        whole = run_whole(family, trunk + branch)
        last = runs[-1][index]
        assert_same_run(family, last, whole)


@pytest.mark.parametrize("accepted", [0, 1, 3, 6])
def test_a_return_to_a_mark_leaves_no_trace(family: Model, accepted: int) -> None:
    """Six right and three wrong tokens are fed at every border; all are taken back, the accepted ones fed again."""
    ids = prompt_ids(family, 175, seed=25)
    wrong = prompt_ids(family, 9, seed=26)
    whole = run_whole(family, ids)
    state = SessionState(family.state, 200, family.device)
    run_pieces(family, ids[:120], [120], state)

    while state.length + 9 < len(ids):
        mark = state.mark()
        start = state.length
        run_pieces(family, ids[start : start + accepted] + wrong[accepted:], [9], state)
        state.return_to(mark)
        count = max(1, accepted)
        run_pieces(family, ids[start : start + count], [count], state)
        if accepted == 0 and state.length > 140:
            break

    rest = ids[state.length :]
    went_on = run_pieces(family, rest, [len(rest)], state)
    assert_same_run(family, went_on, whole)


@pytest.mark.parametrize("name", ["deepseek_v4"])
def test_a_return_without_the_fixed_tensors_differs(name: str, device: str) -> None:
    model = family_model(name, "float32", device=device)
    ids = prompt_ids(model, 160, seed=25)
    whole = run_whole(model, ids)
    state = SessionState(model.state, 200, model.device)
    run_pieces(model, ids[:120], [120], state)

    run_pieces(model, prompt_ids(model, 9, seed=26), [9], state)
    state.length = 120
    went_on = run_pieces(model, ids[120:], [40], state)

    assert_bits_differ("logits", logits(model, went_on.hidden), logits(model, whole.hidden[120:]))
