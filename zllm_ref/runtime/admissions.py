"""Jobs from the queue into the loop: the cache is asked, bytes are reserved, a state is made, a saved one put into it.

    waiting ─▶ [room for its lanes? bytes to be had?] ─▶ prompts        first come, first served: nobody overtakes

Nobody who has been admitted ever waits for bytes. A job of which something breaks here fails, and nobody else.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from zllm_ref.cache.admission import Admission
from zllm_ref.cache.resident import PrefixCache
from zllm_ref.runtime.job_handle import JobHandle
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.prefill import restore
from zllm_ref.runtime.sequence import GenerationJob
from zllm_ref.runtime.speculation import Speculation
from zllm_ref.runtime.ssd_restores import SsdRestores
from zllm_ref.runtime.state import SessionState

_log = logging.getLogger(__name__)

Isolated = Callable[[list[JobHandle], str], AbstractContextManager[None]]
"""What goes wrong inside fails these jobs with this message."""


class Admissions:
    """The queue of one loop. Belongs to the runtime's thread, but for `reserve_bytes`."""

    def __init__(
        self,
        model: Model,
        cache: PrefixCache,
        restores: SsdRestores | None,
        speculation: Speculation | None,
        *,
        max_lanes: int,
        clock: Callable[[], float],
        isolated: Isolated,
    ) -> None:
        self.waiting: deque[JobHandle] = deque()
        self._model = model
        self._cache = cache
        self._restores = restores
        self._speculation = speculation
        self._max_lanes = max_lanes
        self._clock = clock
        self._isolated = isolated

    def reserve_bytes(self, job: GenerationJob) -> int:
        """What the job will need at most, over its whole length."""
        capacity = int(job.prompt_ids.shape[0]) + job.max_new_tokens
        drafts = self._speculation.session_bytes(capacity) if self._speculation is not None else 0
        return len(job.choices) * (self._model.state.session_bytes(capacity) + drafts)

    def admit(self, prompts: list[JobHandle], decoding: list[JobHandle]) -> None:
        """Moves jobs from `waiting` to `prompts` as long as there is room beside these and those that decode."""
        while self.waiting:
            handle = self.waiting[0]
            lanes = sum(len(one.job.choices) for one in [*prompts, *decoding])
            if lanes and lanes + len(handle.job.choices) > self._max_lanes:
                return
            admission = self._ask(handle)
            if handle.closed:
                continue
            if admission is None:
                return
            self.waiting.popleft()
            handle.admission = admission
            prompts.append(handle)
            with self._isolated([handle], "memory for the state could not be had"):
                self._begin(handle, admission)

    def _ask(self, handle: JobHandle) -> Admission | None:
        """None: the bytes are not to be had yet, or the job failed."""
        job = handle.job
        with self._isolated([handle], "the cache could not be asked"):
            return self._cache.admit(job.namespace, job.prompt_ids, reserve_bytes=self.reserve_bytes(job), cache_id=job.cache_id)
        return None

    def _begin(self, handle: JobHandle, admission: Admission) -> None:
        job, now = handle.job, self._clock()
        handle.admitted = now
        handle.timings = replace(handle.timings, queue=now - handle.submitted)
        handle.units = list(admission.units)
        handle.state = SessionState(self._model.state, int(job.prompt_ids.shape[0]) + job.max_new_tokens, self._model.device)
        if self._speculation is not None:
            self._speculation.open(handle)
        if admission.restore is not None and self._restores is not None:
            self._restores.begin(handle)
        else:
            handle.cached_tokens = _restored(handle.state, admission)
            handle.timings = replace(handle.timings, restore=self._clock() - now)


def _restored(state: SessionState, admission: Admission) -> int:
    """Tokens that the hit spared. A saved state that cannot be read is a miss: the prompt is computed from its start."""
    if admission.hit is None:
        return 0
    try:
        restore(state, admission.hit)
    except (RuntimeError, ValueError, KeyError, TypeError):
        _log.exception("restoring %s failed: computing the prompt instead", admission.hit.cache_id)
        state.reset()
    return state.length
