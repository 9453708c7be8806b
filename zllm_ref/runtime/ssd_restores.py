"""Saved states on their way from SSD into the sessions of jobs, while the loop runs other jobs.

begin ─▶ is_ready? ─ no, and nobody waits ─▶ ... ─▶ stage 0 is there: the first chunk may begin, its layers wait for theirs
                   ─ all stages are there ──▶ end
a failure, at whatever stage ─▶ end: the session is as new, the prompt is computed
cancelled, failed elsewhere, too late ─▶ draining: nobody waits; memory and its bytes go when nothing writes there any more

The runtime's thread never waits for a disk while others decode: it looks, and comes again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from zllm_ref.cache.admission import Admission
from zllm_ref.cache.restore import Restore
from zllm_ref.cache.tiered import TieredCache
from zllm_ref.runtime.job_handle import JobHandle
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.restore import LayerGate, begin_restore, end_restore
from zllm_ref.runtime.state import SessionState

_log = logging.getLogger(__name__)

RESTORE_TIMEOUT_SECONDS = 30.0
"""So long may a restore stand still before the prompt is computed instead."""
GATE_TIMEOUT_SECONDS = 2.0
"""So long may a chunk that runs already wait for its next stage."""
SHUTDOWN_WRITE_SECONDS = 10.0
"""So long may the writing of dirty states take at the end."""


@dataclass(frozen=True)
class _Draining:
    """A restore that nobody wants any more, and what it still writes into."""

    restore: Restore
    admission: Admission
    state: SessionState


class SsdRestores:
    """The restores of one loop. Belongs to the runtime's thread."""

    def __init__(self, cache: TieredCache, model: Model, clock: Callable[[], float]) -> None:
        self.cache = cache
        self._clock = clock
        # Layers may begin before all stages have come only where one tensor holds everything that a layer reads.
        self._waits_by_layer = len(model.state.growing) == 1 and not model.state.fixed
        self._num_layers = model.state.growing[0].layers if model.state.growing else 0
        self._draining: list[_Draining] = []
        self._progress: dict[JobHandle, tuple[int, float]] = {}
        """Of each restore: how much had come, and when that was first seen."""

    @property
    def is_draining(self) -> bool:
        """Memory is still to come back from a restore that nobody wants."""
        return bool(self._draining)

    def pump(self) -> bool:
        """What file work has done meanwhile. True: there was something."""
        moved = self.cache.pump()
        for handle in [handle for handle in self._progress if handle.restore is None]:
            del self._progress[handle]
        for drained in [each for each in self._draining if each.restore.is_drained]:
            self._draining.remove(drained)
            self.cache.release(drained.admission)
            drained.state.release()
            moved = True
        return moved

    def begin(self, handle: JobHandle) -> None:
        """Starts to read the hit of an admitted job into its empty session."""
        state, admission = handle.state, handle.admission
        assert state is not None and admission is not None  # noqa: PT018  one condition: it was admitted
        handle.restore = begin_restore(state, self.cache, admission)

    def is_ready(self, handle: JobHandle, *, others_decode: bool = False) -> bool:
        """The next chunk of the prompt can run: nothing is being restored, or the first stage of it is there.

        A chunk that waits for stages keeps everybody waiting; where others decode, all stages must be there first.
        """
        restore, state = handle.restore, handle.state
        if restore is None or state is None:
            return state is not None
        if restore.is_drained:
            self.end(handle)
        elif others_decode or not self._waits_by_layer or not restore.is_stage_done(0):
            return state.gate is not None and not others_decode
        elif state.gate is None and handle.admission is not None:
            hit = handle.admission.hit
            assert hit is not None  # a restore follows a hit
            state.gate = LayerGate(restore, self._num_layers, GATE_TIMEOUT_SECONDS)
            state.length = handle.cached_tokens = hit.length
        return state.gate is not None or handle.restore is None

    def is_too_late(self, handle: JobHandle) -> bool:
        """The disk does not answer: `abandon` the restore and admit the job anew."""
        if handle.restore is None:
            return False
        now, num_read = self._clock(), handle.restore.num_read
        seen, since = self._progress.setdefault(handle, (num_read, now))
        if seen != num_read:
            self._progress[handle] = (num_read, now)
            return False
        return now - since > RESTORE_TIMEOUT_SECONDS

    def end(self, handle: JobHandle) -> bool:
        """After the restore the session holds the saved rows, or is as new. False: something still writes there, `abandon` it."""
        restore, state, admission = handle.restore, handle.state, handle.admission
        assert restore is not None and state is not None and admission is not None  # noqa: PT018  one condition: it was begun
        if not restore.is_drained:
            return False
        handle.restore = state.gate = None
        handle.cached_tokens = end_restore(state, self.cache, admission, restore)
        handle.timings = replace(handle.timings, restore=self._clock() - handle.admitted)
        return True

    def finish_beside_a_chunk(self, handle: JobHandle) -> None:
        """The first chunk has read every layer, so every stage has come: only the books are left."""
        restore, state, admission = handle.restore, handle.state, handle.admission
        if restore is None or state is None or admission is None:
            return
        restore.wait_drained()
        self.cache.finish_restore(admission, restore)
        handle.restore = state.gate = None
        handle.timings = replace(handle.timings, restore=restore.seconds)

    def abandon(self, handle: JobHandle, *, is_slow: bool = False) -> None:
        """The job wants its restore no longer: what that still writes into, and its bytes, are taken over until it has drained.

        `is_slow`: the disk does not answer, so nobody reads anything from it before this has drained.
        """
        restore, state, admission = handle.restore, handle.state, handle.admission
        if restore is None or state is None or admission is None:
            return
        if is_slow:
            _log.warning("snapshot of %s: not read in time, the prompt is computed instead", admission.cache_id)
            self.cache.give_up_reading(admission)
        restore.cancel()
        self._draining.append(_Draining(restore, admission, state))
        handle.restore = handle.state = handle.admission = None
        handle.cached_tokens = 0

    def write_dirty_states(self) -> None:
        """What only memory holds, before it goes; bounded, since a person waits."""
        deadline = self._clock() + SHUTDOWN_WRITE_SECONDS
        self.cache.write_all()
        while (self.pump() or self.cache.is_writing or self._draining) and self._clock() < deadline:
            time.sleep(0.002)
