"""Snapshots as tensors: the codec between state tensors and flat parts, and the restore of a session stage by stage.

    part = one layer of one state tensor, its rows in order       stage = a group of layers, as if on a device of its own

    chunk on disk ──read──▶ session buffer (cpu: where the rows belong)                      ──▶ stage event
                  ──read──▶ pinned staging memory ──copy, on its own stream, drained──▶ session buffer (cuda)

On the CPU the disk writes straight into the session's rows; nothing is copied twice. What has not been verified is never
looked at: a layer that comes before its stage waits (`LayerGate`), and a failed restore resets the whole session.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import cast

import torch
from torch import Tensor

from zllm_ref.cache.admission import Admission
from zllm_ref.cache.restore import Restore
from zllm_ref.cache.snapshot import Bytes, PartRange
from zllm_ref.cache.tiered import TieredCache
from zllm_ref.runtime.state import Payload, SessionState, StateDeclaration, StateTensor

_Part = tuple[StateTensor, int]
"""A tensor and the number of one of its layers."""


class TensorCodec:
    """The parts of a declared state; implements the cache's `StateCodec`. No code here knows a model."""

    def __init__(self, declaration: StateDeclaration) -> None:
        self.growing = _parts_by_depth(declaration.growing)
        self.fixed = _parts_by_depth(declaration.fixed)

    def row_part_sizes(self, num_rows: int) -> tuple[int, ...]:
        return tuple(tensor.rows_for(num_rows) * _layer_row_bytes(tensor) for tensor, _ in self.growing)

    def fixed_part_sizes(self) -> tuple[int, ...]:
        return tuple(_layer_row_bytes(tensor) for tensor, _ in self.fixed)

    def row_parts(self, payload: object) -> Sequence[Bytes]:
        return _flat_parts(self.growing, cast(Payload, payload))

    def fixed_parts(self, payload: object) -> Sequence[Bytes]:
        return _flat_parts(self.fixed, cast(Payload, payload))

    def row_stages(self, num_stages: int) -> tuple[PartRange, ...]:
        return _stages(self.growing, num_stages)

    def fixed_stages(self, num_stages: int) -> tuple[PartRange, ...]:
        return _stages(self.fixed, num_stages)


class SessionTarget:
    """A session's own memory as the place of a restore (`RestoreTarget`); on another device by way of staging memory.

    Made by the runtime's thread after `SessionState.begin_restore`; then the reader's thread alone uses it.
    """

    def __init__(self, state: SessionState, codec: TensorCodec, length: int, num_stages: int) -> None:
        self._state = state
        self._codec = codec
        self._length = length
        self._row_stages = codec.row_stages(num_stages)
        self._fixed_stages = codec.fixed_stages(num_stages)
        self._on_device = state.device.type != "cpu"
        self._staging = {tensor.name: self._memory(tensor) for tensor, _ in [*codec.growing, *codec.fixed]}
        self._stream = torch.cuda.Stream(state.device) if state.device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._row_views = [_writable(self._staging[tensor.name][layer]) for tensor, layer in codec.growing]
        self._fixed_views = [_writable(self._staging[tensor.name][layer]) for tensor, layer in codec.fixed]
        self._read_from = length
        """The first row that comes from disk; those before it are resident blocks, copied by the runtime's thread."""

    @property
    def uploads(self) -> bool:
        return self._on_device

    def row_buffers(self, stage: int, start: int, num_rows: int) -> Sequence[memoryview]:
        first, end = self._row_stages[stage]
        self._read_from = min(self._read_from, start)
        buffers = []
        for index in range(first, end):
            tensor, _ = self._codec.growing[index]
            row_bytes = _layer_row_bytes(tensor)
            begin = tensor.rows_for(start) * row_bytes
            buffers.append(self._row_views[index][begin : begin + tensor.rows_for(num_rows) * row_bytes])
        return buffers

    def fixed_buffers(self, stage: int) -> Sequence[memoryview]:
        first, end = self._fixed_stages[stage]
        return self._fixed_views[first:end]

    def stage_landed(self, stage: int) -> None:
        """Copies the stage from staging memory to the device, and returns when these copies have drained."""
        if not self._on_device:
            return
        with torch.inference_mode(), torch.cuda.stream(self._stream):
            for tensor, layer in self._codec.growing[slice(*self._row_stages[stage])]:
                rows = slice(tensor.rows_for(self._read_from), tensor.rows_for(self._length))
                self._state.tensors[tensor.name][layer, rows].copy_(self._staging[tensor.name][layer, rows], non_blocking=True)
            for tensor, layer in self._codec.fixed[slice(*self._fixed_stages[stage])]:
                self._state.tensors[tensor.name][layer].copy_(self._staging[tensor.name][layer], non_blocking=True)
        if self._stream is not None:
            self._stream.synchronize()

    def _memory(self, tensor: StateTensor) -> Tensor:
        own = self._state.tensors[tensor.name]
        if not self._on_device:
            return own
        shape = (own.shape[0], tensor.rows_for(self._length), *own.shape[2:]) if tensor.grows else tuple(own.shape)
        return torch.empty(shape, dtype=own.dtype, pin_memory=self._state.device.type == "cuda")


class LayerGate:
    """Lets a layer begin when its own stage is there; raises RestoreFailed where it never will be."""

    def __init__(self, restore: Restore, num_layers: int, timeout_seconds: float) -> None:
        self._restore = restore
        self._num_layers = num_layers
        self._timeout_seconds = timeout_seconds

    def __call__(self, layer: int) -> None:
        stage = layer * self._restore.num_stages // self._num_layers
        if not self._restore.is_stage_done(stage) or self._restore.failure is not None:
            self._restore.wait_stage(stage, self._timeout_seconds)


def begin_restore(state: SessionState, cache: TieredCache, admission: Admission) -> Restore:
    """Starts to read a hit on SSD into an empty session, and copies its resident part meanwhile."""
    hit, codec = admission.hit, cache.codec
    if hit is None or not isinstance(codec, TensorCodec):
        raise ValueError(f"restore: got hit {hit} and codec {type(codec).__name__}, allowed a hit on SSD and a TensorCodec")
    state.begin_restore(hit.length)
    restore = cache.start_restore(admission, SessionTarget(state, codec, hit.length, cache.num_stages))
    for use in hit.blocks:
        state.load_rows(use.start, use.num_rows, cast(Payload, use.payload))
    return restore


def end_restore(state: SessionState, cache: TieredCache, admission: Admission, restore: Restore) -> int:
    """Waits until nothing writes into the session any more. → tokens that need not be computed.

    After a failure that is what the resident blocks alone give, and the session is otherwise as new.
    """
    restore.wait_drained()
    hit = admission.hit
    if hit is None:
        raise ValueError("restore: got an admission without a hit, allowed one with a hit on SSD")
    if cache.finish_restore(admission, restore):
        state.length = hit.length
        return hit.length
    state.reset()
    if state.declaration.cuttable and hit.blocks:
        for use in hit.blocks:
            state.load_rows(use.start, use.num_rows, cast(Payload, use.payload))
        state.length = hit.blocks[-1].start + hit.blocks[-1].num_rows
    return state.length


def restore_from_ssd(state: SessionState, cache: TieredCache, admission: Admission) -> int:
    """The whole way at once: begins, waits for all stages, ends. → tokens that need not be computed."""
    return end_restore(state, cache, admission, begin_restore(state, cache, admission))


def _parts_by_depth(tensors: Sequence[StateTensor]) -> list[_Part]:
    """All layers of all tensors, from the model's first layer to its last: a stage is then a range of them."""
    parts = [(tensor, layer) for tensor in tensors for layer in range(tensor.layers)]
    return sorted(parts, key=lambda part: Fraction(part[1], part[0].layers))


def _stages(parts: Sequence[_Part], num_stages: int) -> tuple[PartRange, ...]:
    stage_of = [layer * num_stages // tensor.layers for tensor, layer in parts]
    starts = [sum(stage < wanted for stage in stage_of) for wanted in range(num_stages + 1)]
    return tuple((starts[stage], starts[stage + 1]) for stage in range(num_stages))


def _layer_row_bytes(tensor: StateTensor) -> int:
    return tensor.row_bytes // tensor.layers


def _flat_parts(parts: Sequence[_Part], payload: Payload) -> list[Bytes]:
    on_cpu = {name: tensor.detach().to("cpu").contiguous() for name, tensor in payload.items()}
    return [_writable(on_cpu[tensor.name][layer]) for tensor, layer in parts]


def _writable(tensor: Tensor) -> memoryview:
    """A contiguous CPU tensor's own memory, as flat bytes."""
    if not tensor.numel():
        return memoryview(bytearray())
    return memoryview(cast(bytearray, tensor.reshape(-1).view(torch.uint8).numpy()))
