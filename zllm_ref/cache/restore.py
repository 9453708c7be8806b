"""A restore: from a plan of chunks to a session buffer, stage by stage, each stage with its own completion event.

    disk              [read ahead ...........................]
    reader's thread   [stage 0: read, verify, decode][stage 1 ........][stage 2 ........]
    uploading thread                                 [stage 0]─●       [stage 1]─●      [stage 2]─●  drained
    runtime's thread   ......... wait_stage(0) ─────▶ layers of stage 0, wait_stage(1) ──▶ ...

The first reader of a stage waits for that stage only. A failure in any stage fails that stage and all later ones, and then
the whole buffer is worthless: what was computed from it is thrown away. `drained` comes last of all: before it, commands may
still be writing, and the buffer belongs to nobody else.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from zllm_ref.cache.snapshot import RestoreTarget, StateCodec
from zllm_ref.cache.ssd.chunks import ChunkError
from zllm_ref.cache.ssd.reading import ChunkRead, read_header, read_parts
from zllm_ref.cache.uploads import Uploads

if TYPE_CHECKING:
    from zllm_ref.cache.ssd.files import Files

_log = logging.getLogger(__name__)


class RestoreFailed(RuntimeError):
    """The snapshot could not be read, or the restore was cancelled: a miss. The session buffer must be reset."""


@dataclass(frozen=True)
class RestorePlan:
    """What to read for a hit on SSD: the chunks that no resident block covers, and the length that is reached with them."""

    cache_id: str
    identity: bytes
    length: int
    chunks: tuple[ChunkRead, ...]

    @property
    def num_bytes(self) -> int:
        """Bytes on disk that the plan touches."""
        return sum(chunk.record.file_bytes for chunk in self.chunks)


class Restore:
    """One restore in flight. `run` belongs to the reader's thread; everything else may be called from any."""

    def __init__(self, plan: RestorePlan, codec: StateCodec, target: RestoreTarget, files: Files, num_stages: int = 1) -> None:
        self.plan = plan
        self.num_stages = num_stages
        self.seconds = 0.0
        self.num_read = 0
        """Pieces that have come so far: while it grows, the disk answers."""
        self.damaged: bytes | None = None
        """The key of the chunk that was refused."""
        self._codec = codec
        self._target = target
        self._files = files
        self._events = [threading.Event() for _ in range(num_stages)]
        self._drained = threading.Event()
        self._is_cancelled = threading.Event()
        self._failure: str | None = None
        self._first_failed = 0
        self._reading: ChunkRead | None = None

    def run(self) -> None:
        """Reads all stages in order. Raises nothing: failures are told to those who wait."""
        started = time.perf_counter()
        uploads = Uploads(is_inline=not self._target.uploads)
        try:
            headers = [read_header(self._files, self._at(chunk), self.plan.identity) for chunk in self.plan.chunks]
            row_stages = self._codec.row_stages(self.num_stages)
            fixed_stages = self._codec.fixed_stages(self.num_stages)
            for stage in range(self.num_stages):
                uploads.raise_failure()
                for chunk, header in zip(self.plan.chunks, headers, strict=True):
                    if self._is_cancelled.is_set():
                        raise ChunkError("cancelled")
                    self._at(chunk)
                    first, end = fixed_stages[stage] if chunk.is_fixed else row_stages[stage]
                    if first == end:
                        continue
                    if chunk.is_fixed:
                        buffers = self._target.fixed_buffers(stage)
                    else:
                        buffers = self._target.row_buffers(stage, chunk.start, chunk.wanted_rows)
                    read_parts(self._files, chunk, header, first, buffers)
                    self.num_read += 1
                uploads.add(partial(self._land, stage))
            uploads.finish()
            uploads.raise_failure()
        except (ChunkError, OSError, ValueError, RuntimeError) as error:
            uploads.finish()  # whatever was queued has drained before anybody hears of the failure
            self._fail(str(error) or type(error).__name__, is_damaged=isinstance(error, ChunkError | OSError))
        finally:
            uploads.finish()
            self.seconds = time.perf_counter() - started
            if not self._events[-1].is_set() and self._failure is None:
                self._fail("interrupted", is_damaged=False)
            self._drained.set()

    def _land(self, stage: int) -> None:
        self._target.stage_landed(stage)
        self._events[stage].set()

    def cancel(self) -> None:
        """Stops after the read that is under way. The buffer is free only when `wait_drained` returns."""
        self._is_cancelled.set()

    def is_stage_done(self, stage: int) -> bool:
        """The stage is there, or known to fail: `wait_stage` would not wait."""
        return self._events[stage].is_set()

    def wait_stage(self, stage: int, timeout_seconds: float | None = None) -> None:
        """Returns when the stage's bytes are verified and in place; raises RestoreFailed when they never will be, or too late."""
        if not self._events[stage].wait(timeout_seconds):
            self.cancel()
            raise RestoreFailed(f"restore of {self.plan.cache_id}: stage {stage} did not come within {timeout_seconds} s")
        if self._failure is not None and stage >= self._first_failed:
            raise RestoreFailed(f"restore of {self.plan.cache_id}: {self._failure}")

    def wait_drained(self, timeout_seconds: float | None = None) -> bool:
        """Waits until no command touches the buffer any more; False: not within the time."""
        return self._drained.wait(timeout_seconds)

    @property
    def is_drained(self) -> bool:
        return self._drained.is_set()

    @property
    def failure(self) -> str | None:
        """Why it failed; None: it did not, so far."""
        return self._failure

    def _at(self, chunk: ChunkRead) -> ChunkRead:
        """Remembers which chunk is being read, for the case that it is refused."""
        self._reading = chunk
        return chunk

    def _fail(self, reason: str, *, is_damaged: bool) -> None:
        self._first_failed = sum(event.is_set() for event in self._events)
        self._failure = reason
        if not self._is_cancelled.is_set():
            self.damaged = self._reading.key if self._reading is not None and is_damaged else None
            _log.warning("snapshot %s refused, the prompt is computed instead: %s", self.plan.cache_id, reason)
        for event in self._events:
            event.set()
