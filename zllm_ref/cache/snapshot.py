"""How a state becomes bytes and comes back: the codec that the runtime implements, and the target that it restores into.

    payload of a block ──codec.row_parts──▶ [part 0][part 1]...[part n-1] ──▶ one chunk on disk
                                             └─ stage 0 ─┘ └── stage 1 ──┘     a stage is a group of layers

A *part* is one layer of one state tensor, its rows in order, as flat bytes; so the first rows of a part are its first bytes,
and a block can be cut without knowing what is in it. Parts are ordered by layer: a stage is a range of parts. Bytes are
numbers here; what they mean is the runtime's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

Bytes = bytes | bytearray | memoryview
PartRange = tuple[int, int]
"""Half-open range of part numbers."""


class StateCodec(Protocol):
    """Turns payloads into parts, for one model; pure, and called from the writer's thread too (payloads never change)."""

    def row_part_sizes(self, num_rows: int) -> tuple[int, ...]:
        """Bytes of each part of a block with that many rows."""

    def fixed_part_sizes(self) -> tuple[int, ...]:
        """Bytes of each part of the fixed tensors; empty: the model has none."""

    def row_parts(self, payload: object) -> Sequence[Bytes]:
        """The parts of a block's payload, in order, without copying where the device allows it."""

    def fixed_parts(self, payload: object) -> Sequence[Bytes]:
        """The parts of the fixed tensors' payload, in order."""

    def row_stages(self, num_stages: int) -> tuple[PartRange, ...]:
        """Which row parts belong to which stage: gapless, in order."""

    def fixed_stages(self, num_stages: int) -> tuple[PartRange, ...]:
        """Which fixed parts belong to which stage."""


class RestoreTarget(Protocol):
    """A session buffer (or its staging memory) that a restore writes into; called from the reader's thread."""

    @property
    def uploads(self) -> bool:
        """`stage_landed` has something to wait for: it is called from a thread of its own, beside the reading of later stages."""

    def row_buffers(self, stage: int, start: int, num_rows: int) -> Sequence[memoryview]:
        """Writable memory for the rows [start, start + num_rows), one flat buffer for each part of the stage."""

    def fixed_buffers(self, stage: int) -> Sequence[memoryview]:
        """Writable memory for the fixed parts of the stage."""

    def stage_landed(self, stage: int) -> None:
        """All bytes of the stage are verified and in their buffers: upload them, and return when the device has them."""


class Worker(Protocol):
    """Runs file work somewhere else, in order; `concurrent.futures.ThreadPoolExecutor` with one thread is one."""

    def submit(self, work: Callable[[], None], /) -> object:
        """Begins `work` soon."""
