"""The codec and the restore are generic over a state's declaration: any mix of tensors comes back bit for bit, in any stages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from zllm_ref.cache.ssd.chunks import Encoding
from zllm_ref.cache.ssd.store import SnapshotStore
from zllm_ref.cache.tiered import TieredCache
from zllm_ref.runtime.restore import LayerGate, TensorCodec, begin_restore, end_restore, restore_from_ssd
from zllm_ref.runtime.state import SessionState, StateDeclaration, StateTensor

CPU = torch.device("cpu")
LINEAR = StateDeclaration([StateTensor("kv", 5, (2, 3, 4), torch.bfloat16)])
MIXED = StateDeclaration(
    [
        StateTensor("latent", 6, (9,), torch.bfloat16),
        StateTensor("compressed", 3, (8,), torch.bfloat16, tokens_per_row=4),
        StateTensor("compressed_far", 2, (8,), torch.float32, tokens_per_row=128),
        StateTensor("index_keys", 2, (5,), torch.float32),
        StateTensor("ring", 6, (16, 7), torch.bfloat16, grows=False),
        StateTensor("counts", 1, (3,), torch.int64, grows=False),
    ]
)
DECLARATIONS = pytest.mark.parametrize("declaration", [LINEAR, MIXED], ids=["linear", "mixed"])


class AtOnce:
    def submit(self, work: Callable[[], None], /) -> object:
        work()
        return None


def filled(declaration: StateDeclaration, length: int, seed: int = 0) -> SessionState:
    """A session with random bits in all its rows."""
    generator = torch.Generator().manual_seed(seed)
    state = SessionState(declaration, length + 8, CPU)
    state.prepare(length)
    state.length = length
    for tensor in declaration.tensors:
        whole = state.tensors[tensor.name]
        part = whole[:, : tensor.rows_for(length)] if tensor.grows else whole
        part.copy_(torch.randint(-1000, 1000, part.shape, generator=generator).to(part.dtype))
    return state


def cache_on(declaration: StateDeclaration, root: Path, num_stages: int = 1, encoding: Encoding = Encoding.RAW) -> TieredCache:
    return TieredCache(
        declaration.layout(),
        1 << 30,
        identity="model",
        store=SnapshotStore.open(root, 1 << 40, identity="model", encoding=encoding),
        codec=TensorCodec(declaration),
        writer=AtOnce(),
        reader=AtOnce(),
        num_stages=num_stages,
    )


def ids_of(length: int) -> np.ndarray:
    return np.arange(length, dtype=np.int32)


def save(state: SessionState, root: Path, encoding: Encoding = Encoding.RAW) -> None:
    cache = cache_on(state.declaration, root, encoding=encoding)
    admission = cache.admit("", ids_of(state.length), reserve_bytes=state.nbytes)
    assert admission is not None
    assert cache.commit(admission, ids_of(state.length), state) is not None
    cache.release(admission)
    while cache.pump() or cache.is_writing:
        pass
    assert cache.ssd_counts.saves == 1
    cache.store.close()


def used_before(declaration: StateDeclaration, length: int) -> SessionState:
    state = SessionState(declaration, length, CPU)
    for tensor in state.tensors.values():
        tensor.fill_(77)
    state.reset()
    return state


def assert_same_rows(got: SessionState, expected: SessionState, length: int) -> None:
    for tensor in expected.declaration.tensors:
        first, second = got.tensors[tensor.name], expected.tensors[tensor.name]
        if tensor.grows:
            first, second = first[:, : tensor.rows_for(length)], second[:, : tensor.rows_for(length)]
        assert torch.equal(first.contiguous().view(torch.uint8), second.contiguous().view(torch.uint8)), tensor.name


@DECLARATIONS
@pytest.mark.parametrize("length", [1, 5, 127, 128, 129, 300])
@pytest.mark.parametrize("num_stages", [1, 2, 3, 7])
def test_a_restored_session_has_every_bit_of_the_saved_one(
    declaration: StateDeclaration, length: int, num_stages: int, tmp_path: Path
) -> None:
    saved = filled(declaration, length)
    save(saved, tmp_path)
    cache = cache_on(declaration, tmp_path, num_stages)
    admission = cache.admit("", ids_of(length + 1), reserve_bytes=saved.nbytes)
    assert admission is not None
    state = used_before(declaration, length + 1)

    assert restore_from_ssd(state, cache, admission) == length

    assert_same_rows(state, saved, length)
    assert state.length == length
    cache.release(admission)
    cache.check()


@DECLARATIONS
@pytest.mark.parametrize("encoding", list(Encoding))
def test_every_encoding_gives_the_same_bits(declaration: StateDeclaration, encoding: Encoding, tmp_path: Path) -> None:
    saved = filled(declaration, 200)
    save(saved, tmp_path, encoding)
    cache = cache_on(declaration, tmp_path, 3)
    admission = cache.admit("", ids_of(201), reserve_bytes=saved.nbytes)
    assert admission is not None
    state = used_before(declaration, 201)

    restore_from_ssd(state, cache, admission)

    assert_same_rows(state, saved, 200)


def test_parts_go_from_the_first_layer_to_the_last_and_stages_have_no_gap() -> None:
    codec = TensorCodec(MIXED)

    depths = [layer / tensor.layers for tensor, layer in codec.growing]
    assert depths == sorted(depths)
    for num_stages in range(1, 9):
        stages = codec.row_stages(num_stages)
        assert [stages[0][0], *(end for _, end in stages)] == [0, *(first for first, _ in stages[1:]), len(codec.growing)]
        for tensor, layer in codec.growing:
            stage = layer * num_stages // tensor.layers
            assert stages[stage][0] <= codec.growing.index((tensor, layer)) < stages[stage][1]


def test_sizes_are_those_of_the_tensors() -> None:
    codec = TensorCodec(MIXED)
    state = filled(MIXED, 200)

    for start, end in ((0, 128), (128, 200), (0, 1)):
        parts = codec.row_parts(state.copy_rows(start, end))
        assert [memoryview(part).nbytes for part in parts] == list(codec.row_part_sizes(end - start))
    fixed = state.copy_fixed()
    assert [memoryview(part).nbytes for part in codec.fixed_parts(fixed)] == list(codec.fixed_part_sizes())
    assert sum(codec.fixed_part_sizes()) == MIXED.fixed_bytes
    assert sum(codec.row_part_sizes(128)) <= MIXED.bytes_per_token * 128, "accounted: rounded up to whole bytes a token"


@DECLARATIONS
def test_a_failed_restore_leaves_a_session_as_new(declaration: StateDeclaration, tmp_path: Path) -> None:
    saved = filled(declaration, 300)
    save(saved, tmp_path)
    for chunk in (tmp_path / "chunks").iterdir():
        chunk.write_bytes(chunk.read_bytes()[:-1] + b"\x55")
    cache = cache_on(declaration, tmp_path)
    admission = cache.admit("", ids_of(301), reserve_bytes=saved.nbytes)
    assert admission is not None
    state = used_before(declaration, 301)

    restore = begin_restore(state, cache, admission)
    assert end_restore(state, cache, admission, restore) == 0

    assert state.length == 0
    state.prepare(10)
    assert all(not state.tensors[tensor.name][:, : tensor.rows_for(128)].any() for tensor in declaration.growing)
    assert all(not state.tensors[tensor.name].any() for tensor in declaration.fixed)
    cache.release(admission)
    cache.check()


def test_a_gate_asks_for_the_stage_of_each_layer() -> None:
    class Watched:
        num_stages = 3
        failure = None
        asked: list[int] = []  # noqa: RUF012

        def is_stage_done(self, stage: int) -> bool:
            return False

        def wait_stage(self, stage: int, timeout_seconds: float) -> None:
            self.asked.append(stage)

    watched = Watched()
    gate = LayerGate(watched, num_layers=7, timeout_seconds=1.0)  # type: ignore[arg-type]
    for layer in range(7):
        gate(layer)

    assert watched.asked == [0, 0, 0, 1, 1, 2, 2]
