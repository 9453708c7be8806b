"""A state that came back from SSD gives the bits of the prompt computed from its start.

The whole way is walked: session, blocks, chunks on disk, and back into a session: in this process and in a new one.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from zllm_ref.cache.ssd.chunks import Encoding
from zllm_ref.cache.tiered import TieredCache
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.restore import LayerGate, begin_restore, end_restore, restore_from_ssd
from zllm_ref.runtime.state import SessionState

from .bits import assert_bits_differ, assert_bits_equal
from .conftest import SUBJECTS
from .restored_process import digest, tiered_cache, whole_prompt
from .subjects import SMOLLM2, Run, logits, prompt_ids, run_pieces, run_whole, subject

FOLLOWING = 260


class Later:
    """A worker that begins when it is told to."""

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []

    def submit(self, work: Callable[[], None], /) -> object:
        self.work.append(work)
        return None


@pytest.fixture(params=[param for param in SUBJECTS if not str(param.id).startswith(SMOLLM2)])
def small_model(request: pytest.FixtureRequest, device: str) -> Model:
    """The seeded models: for what does not depend on the weights."""
    return subject(*request.param, invariant=True, device=device)


def save(model: Model, root: Path, ids: list[int], encoding: Encoding = Encoding.RAW) -> None:
    """Computes, commits, writes, and forgets everything but the directory."""
    cache = tiered_cache(model, root, encoding)
    admission = cache.admit("", np.array(ids, dtype=np.int32), reserve_bytes=model.state.session_bytes(len(ids)))
    assert admission is not None
    assert cache.commit(admission, np.array(ids, dtype=np.int32), run_whole(model, ids).state) is not None
    cache.release(admission)
    while cache.pump() or cache.is_writing:
        pass
    assert cache.ssd_counts.saves == 1
    cache.check()
    cache.store.close()


def continue_from_disk(model: Model, cache: TieredCache, ids: list[int], expected_cached: int) -> Run:
    admission = cache.admit("", np.array(ids, dtype=np.int32), reserve_bytes=model.state.session_bytes(len(ids)))
    assert admission is not None
    assert admission.hit is not None
    assert (admission.hit.tier, admission.hit.length) == ("ssd", expected_cached)
    state = dirty_session(model, len(ids))
    with torch.inference_mode():
        assert restore_from_ssd(state, cache, admission) == expected_cached
    rest = ids[expected_cached:]
    run = run_pieces(model, rest, [len(rest)], state)
    cache.release(admission)
    cache.check()
    return run


def dirty_session(model: Model, capacity: int) -> SessionState:
    """Memory that another request used before: whatever is not restored must not be read."""
    with torch.inference_mode():
        state = SessionState(model.state, capacity, model.device)
        for tensor in state.tensors.values():
            tensor.fill_(float("nan"))
        state.reset()
    return state


def assert_continues_like_cold(model: Model, got: Run, ids: list[int]) -> None:
    cold = run_whole(model, ids)
    rows = got.hidden.shape[0]
    assert_bits_equal("logits", logits(model, got.hidden), logits(model, cold.hidden[-rows:]))
    for tensor in model.state.tensors:
        assert_bits_equal(tensor.name, got.state_rows(tensor.name), cold.state_rows(tensor.name))


@pytest.mark.parametrize("saved", [300, 512], ids=lambda saved: f"saved-{saved}")
def test_a_restored_state_gives_the_bits_of_a_cold_prompt(model: Model, tmp_path: Path, saved: int) -> None:
    ids = prompt_ids(model, saved + FOLLOWING, seed=40)
    save(model, tmp_path, ids[:saved])

    got = continue_from_disk(model, tiered_cache(model, tmp_path), ids, expected_cached=saved)

    assert_continues_like_cold(model, got, ids)


@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize("num_stages", [1, 3])
def test_every_encoding_and_number_of_stages_gives_the_same_bits(
    small_model: Model, tmp_path: Path, encoding: Encoding, num_stages: int
) -> None:
    ids = prompt_ids(small_model, 200 + FOLLOWING, seed=41)
    save(small_model, tmp_path, ids[:200], encoding)

    got = continue_from_disk(small_model, tiered_cache(small_model, tmp_path, num_stages=num_stages), ids, expected_cached=200)

    assert_continues_like_cold(small_model, got, ids)


def test_a_prompt_that_leaves_a_snapshot_in_its_middle_gives_the_bits_of_a_cold_prompt(model: Model, tmp_path: Path) -> None:
    saved = prompt_ids(model, 400, seed=42)
    save(model, tmp_path, saved)
    branch = saved[:177] + prompt_ids(model, FOLLOWING, seed=43)

    got = continue_from_disk(model, tiered_cache(model, tmp_path), branch, expected_cached=177)

    assert_continues_like_cold(model, got, branch)


def test_layers_that_begin_before_later_stages_are_there_give_the_same_bits(small_model: Model, tmp_path: Path) -> None:
    """The forward pass itself drives the restore: each stage is read when its first layer asks for it."""
    ids = prompt_ids(small_model, 300 + FOLLOWING, seed=44)
    save(small_model, tmp_path, ids[:300])
    cache = tiered_cache(small_model, tmp_path, num_stages=3)
    reader = Later()
    cache._reader = reader
    admission = cache.admit("", np.array(ids, dtype=np.int32), reserve_bytes=small_model.state.session_bytes(len(ids)))
    assert admission is not None
    state = dirty_session(small_model, len(ids))
    with torch.inference_mode():
        restore = begin_restore(state, cache, admission)
    gate = LayerGate(restore, small_model.state.growing[0].layers, timeout_seconds=60)
    asked: list[int] = []

    def first_layer_starts_the_reader(layer: int) -> None:
        asked.append(layer)
        if reader.work:
            threading.Thread(target=reader.work.pop()).start()
        gate(layer)

    state.gate = first_layer_starts_the_reader
    state.length = 300
    got = run_pieces(small_model, ids[300:], [FOLLOWING], state)
    state.gate = None
    restore.wait_drained()
    assert cache.finish_restore(admission, restore)
    cache.release(admission)

    assert asked == list(range(small_model.state.growing[0].layers))
    assert_continues_like_cold(small_model, got, ids)


def test_a_damaged_snapshot_costs_time_and_no_bit(small_model: Model, tmp_path: Path) -> None:
    ids = prompt_ids(small_model, 200 + FOLLOWING, seed=45)
    save(small_model, tmp_path, ids[:200])
    chunk = sorted((tmp_path / "chunks").iterdir())[-1]
    data = bytearray(chunk.read_bytes())
    data[-100] ^= 0x10
    chunk.write_bytes(data)
    cache = tiered_cache(small_model, tmp_path)
    admission = cache.admit("", np.array(ids, dtype=np.int32), reserve_bytes=small_model.state.session_bytes(len(ids)))
    assert admission is not None
    state = dirty_session(small_model, len(ids))

    with torch.inference_mode():
        restore = begin_restore(state, cache, admission)
        cached = end_restore(state, cache, admission, restore)
    got = run_pieces(small_model, ids, [len(ids)], state)
    cache.release(admission)
    cache.check()

    assert (cached, list(cache.store.entries)) == (0, [])
    assert_continues_like_cold(small_model, got, ids)


def test_the_comparison_sees_one_tensor_left_out_of_the_snapshot(small_model: Model, tmp_path: Path) -> None:
    """One layer that is not restored: the same test must fail."""
    ids = prompt_ids(small_model, 200 + FOLLOWING, seed=46)
    save(small_model, tmp_path, ids[:200])
    cache = tiered_cache(small_model, tmp_path)
    admission = cache.admit("", np.array(ids, dtype=np.int32), reserve_bytes=small_model.state.session_bytes(len(ids)))
    assert admission is not None
    state = SessionState(small_model.state, len(ids), small_model.device)
    with torch.inference_mode():
        restore_from_ssd(state, cache, admission)
        state.tensors[small_model.state.growing[0].name][0, :200].zero_()

    got = run_pieces(small_model, ids[200:], [FOLLOWING], state)
    cache.release(admission)

    assert_bits_differ("logits", logits(small_model, got.hidden), logits(small_model, run_whole(small_model, ids).hidden[200:]))


def test_a_new_process_restores_the_bits_of_the_old_one(
    named: tuple[str, str], model: Model, device: str, tmp_path: Path
) -> None:
    ids = whole_prompt(model)
    save(model, tmp_path, ids[:200])

    command = [sys.executable, "-m", "equivalence.restored_process", *named, device, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["200", digest(model, run_whole(model, ids), 200)]
