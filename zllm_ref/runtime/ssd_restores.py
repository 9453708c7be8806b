"""Saved states on their way from SSD into the sessions of jobs, while the loop runs other jobs.

begin ─▶ is_ready? ─ no, and nobody waits ─▶ ... ─▶ stage 0 is there: the first chunk may begin, its layers wait for theirs
                   ─ all stages are there ──▶ end
a failure, at whatever stage ─▶ end: the session is as new, the prompt is computed
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from zllm_ref.cache.tiered import TieredCache
from zllm_ref.runtime.job_handle import JobHandle
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.restore import LayerGate, begin_restore, end_restore

RESTORE_TIMEOUT_SECONDS = 60.0
"""So long may a stage of a restore be in coming before the prompt is computed instead."""
SHUTDOWN_WRITE_SECONDS = 10.0
"""So long may the writing of dirty states take at the end."""


class SsdRestores:
    """The restores of one loop. Belongs to the runtime's thread."""

    def __init__(self, cache: TieredCache, model: Model, clock: Callable[[], float]) -> None:
        self.cache = cache
        self._clock = clock
        # Layers may begin before all stages have come only where one tensor holds everything that a layer reads.
        self._waits_by_layer = len(model.state.growing) == 1 and not model.state.fixed
        self._num_layers = model.state.growing[0].layers if model.state.growing else 0

    def begin(self, handle: JobHandle) -> None:
        """Starts to read the hit of an admitted job into its empty session."""
        state, admission = handle.state, handle.admission
        assert state is not None and admission is not None  # noqa: PT018  one condition: it was admitted
        handle.restore = begin_restore(state, self.cache, admission)

    def is_ready(self, handle: JobHandle) -> bool:
        """The next chunk of the prompt can run: nothing is being restored, or the first stage of it is there."""
        restore, state = handle.restore, handle.state
        if restore is None or state is None:
            return state is not None
        if restore.is_drained:
            self.end(handle)
        elif self._waits_by_layer and restore.is_stage_done(0) and state.gate is None and handle.admission is not None:
            hit = handle.admission.hit
            assert hit is not None  # a restore follows a hit
            state.gate = LayerGate(restore, self._num_layers, RESTORE_TIMEOUT_SECONDS)
            state.length = handle.cached_tokens = hit.length
        return state.gate is not None or handle.restore is None

    def end(self, handle: JobHandle) -> None:
        """Nothing writes into the session any more: it holds the saved rows, or is as new."""
        restore, state, admission = handle.restore, handle.state, handle.admission
        assert restore is not None and state is not None and admission is not None  # noqa: PT018  one condition: it was begun
        handle.restore = state.gate = None
        handle.cached_tokens = end_restore(state, self.cache, admission, restore)
        handle.timings = replace(handle.timings, restore=self._clock() - handle.admitted)

    def finish_beside_a_chunk(self, handle: JobHandle) -> None:
        """The first chunk has read every layer, so every stage has come: only the books are left."""
        restore, state, admission = handle.restore, handle.state, handle.admission
        if restore is None or state is None or admission is None:
            return
        restore.wait_drained()
        self.cache.finish_restore(admission, restore)
        handle.restore = state.gate = None
        handle.timings = replace(handle.timings, restore=restore.seconds)

    @staticmethod
    def abandon(handle: JobHandle) -> None:
        """The job is over. Its buffer may go only when nothing writes into it any more."""
        if handle.restore is not None:
            handle.restore.cancel()
            handle.restore.wait_drained()
            handle.restore = None

    def write_dirty_states(self) -> None:
        """What only memory holds, before it goes; bounded, since a person waits."""
        deadline = self._clock() + SHUTDOWN_WRITE_SECONDS
        self.cache.write_all()
        while (self.cache.pump() or self.cache.is_writing) and self._clock() < deadline:
            time.sleep(0.002)
