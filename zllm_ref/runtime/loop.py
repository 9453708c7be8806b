"""The runtime's one thread: admits jobs, runs prefill chunks and decode rounds in turn, keeps end states.

    submit ─▶ waiting ─▶ [admit: look up, pin, reserve, restore] ─▶ prompts ─▶ [chunks] ─▶ sequences ─▶ [rounds] ─▶ ended
                                                                                                     commit, release

Everything that mutates (states, cache, samplers) is touched by this thread only; `submit` and `cancel` hand over through a
queue. A step that raises fails the jobs that were in it, releases what they held, and the loop goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from zllm_ref.cache.admission import AdmissionImpossible
from zllm_ref.cache.resident import PrefixCache
from zllm_ref.cache.restore import RestoreFailed
from zllm_ref.cache.tiered import TieredCache
from zllm_ref.runtime.admissions import Admissions
from zllm_ref.runtime.decode import first_tokens
from zllm_ref.runtime.draft.drafter import DrafterFactory
from zllm_ref.runtime.job_handle import JobHandle
from zllm_ref.runtime.keeping import Keeper
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.prefill import run_chunk
from zllm_ref.runtime.rounds import NOT_CHOSEN, NOT_PASSED_ON, Broken, Rounds
from zllm_ref.runtime.schedule import (
    Action,
    DecodeRound,
    Idle,
    PrefillChunk,
    PrefillSpeed,
    PromptProgress,
    schedule,
)
from zllm_ref.runtime.sequence import EndReason, GenerationJob, PromptReport
from zllm_ref.runtime.speculation import DraftCounts, Speculation
from zllm_ref.runtime.ssd_restores import SsdRestores

_log = logging.getLogger(__name__)

SHUTTING_DOWN = "the server is shutting down"


class RuntimeLoop:
    """Runs jobs on one model. `max_lanes` sequences decode at once; further jobs wait, first come, first served.

    `num_token_ids`: ids that the vocabulary has; the model's output may be wider. `drafters`: who guesses (None: nobody).
    """

    def __init__(
        self,
        model: Model,
        cache: PrefixCache,
        *,
        num_token_ids: int | None = None,
        max_lanes: int = 64,
        drafters: DrafterFactory | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.model = model
        self.cache = cache
        self._num_token_ids = model.vocab_size if num_token_ids is None else num_token_ids
        self._clock = clock
        self._incoming: deque[JobHandle] = deque()
        self._prompts: list[JobHandle] = []
        self._decoding: list[JobHandle] = []
        self._speed = PrefillSpeed()
        self._keeper = Keeper(cache)
        self._restores = SsdRestores(cache, model, clock) if isinstance(cache, TieredCache) else None
        if isinstance(cache, TieredCache):
            cache.wake = self.wake
        self._speculation = Speculation(model, drafters, self._num_token_ids, clock) if drafters is not None else None
        self._admissions = Admissions(
            model, cache, self._restores, self._speculation, max_lanes=max_lanes, clock=clock, isolated=self._isolated
        )
        self._rounds = Rounds(model, self._num_token_ids, self._speculation, clock)
        self._last: Action = Idle()
        self._wakeup = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread."""
        self._thread = threading.Thread(target=self._run, name="zllm-runtime", daemon=True)
        self._thread.start()

    @property
    def draft_counts(self) -> DraftCounts:
        """Guesses verified and right so far."""
        return self._speculation.counts if self._speculation is not None else DraftCounts()

    def stop(self) -> None:
        """Ends the thread after the present step; unfinished jobs are told that they failed, dirty states are written."""
        with self._wakeup:
            self._stopping = True
            self._wakeup.notify()
        if self._thread is not None:
            self._thread.join()

    def submit(self, job: GenerationJob) -> JobHandle:
        """Queues a job. Its listener hears everything else. Raises AdmissionImpossible if it can never fit the budget."""
        needed = self._admissions.reserve_bytes(job)
        if needed > self.cache.capacity_bytes:
            raise AdmissionImpossible(f"state: got {needed} bytes needed, allowed {self.cache.capacity_bytes} (resident bytes)")
        handle = JobHandle(job, self.wake, self._clock())
        with self._wakeup:
            is_stopping = self._stopping
            if not is_stopping:
                self._incoming.append(handle)
                self._wakeup.notify()
        if is_stopping:
            self._fail(handle, SHUTTING_DOWN)
        return handle

    def wake(self) -> None:
        with self._wakeup:
            self._wakeup.notify()

    def run_until_idle(self) -> None:
        """For tests and benchmarks without a thread: steps until nothing is left to do."""
        with torch.inference_mode():
            while self.step():
                pass

    def _run(self) -> None:
        with torch.inference_mode():
            while True:
                with self._wakeup:
                    if self._stopping:
                        break
                    present = [*self._incoming, *self._all()]
                has_worked = False
                with self._isolated(present, "the runtime's step failed"):
                    has_worked = self.step()
                if not has_worked:
                    with self._wakeup:
                        if not (self._incoming or self._stopping or self._has_cancelled()):
                            self._wakeup.wait(timeout=1.0)
        for handle in [*self._incoming, *self._all()]:
            self._fail(handle, SHUTTING_DOWN)
        self._write_dirty_states()

    def _write_dirty_states(self) -> None:
        """What only memory holds, before it goes."""
        if self._restores is not None:
            self._restores.write_dirty_states()

    def step(self) -> bool:
        """One action. False: there was nothing to do."""
        with self._wakeup:
            while self._incoming:
                self._admissions.waiting.append(self._incoming.popleft())
        self._drop_cancelled()
        if self._restores is not None:
            self._restores.pump()
            for handle in [handle for handle in self._prompts if self._restores.is_too_late(handle)]:
                self._compute_instead(handle)
        self._admissions.admit(self._prompts, self._decoding)
        ready = [handle for handle in self._prompts if self._is_ready(handle)]
        progress = [PromptProgress(handle.state.length, self._rows_left(handle)) for handle in ready if handle.state is not None]
        action = schedule(progress, sum(len(h.sequences) for h in self._decoding), self._last, self._speed)
        self._last = action
        match action:
            case PrefillChunk():
                self._prefill(ready[action.index], action.num_rows)
            case DecodeRound():
                self._decode()
            case Idle():
                return self._wait_for_files()
        return True

    def _wait_for_files(self) -> bool:
        """Nothing to compute. True while a restore or a save that somebody waits for is under way: after a short wait."""
        if self._restores is None:
            return False
        moved = self._restores.pump()
        is_restoring = self._restores.is_draining or any(handle.restore is not None for handle in self._prompts)
        is_busy = is_restoring or (bool(self._admissions.waiting) and self._restores.cache.is_writing)
        if is_busy and not moved:
            with self._wakeup:
                self._wakeup.wait(timeout=0.005)
        return is_busy or moved

    # prompts

    def _is_ready(self, handle: JobHandle) -> bool:
        """The next chunk of the prompt can run."""
        if self._restores is None:
            return handle.state is not None
        return self._restores.is_ready(handle, others_decode=bool(self._decoding))

    def _compute_instead(self, handle: JobHandle) -> None:
        """A saved state that does not come in time: the job begins anew, in memory of its own and first in the queue."""
        assert self._restores is not None
        self._restores.abandon(handle, is_slow=True)
        self._prompts.remove(handle)
        self._admissions.waiting.appendleft(handle)

    @staticmethod
    def _rows_left(handle: JobHandle) -> int:
        assert handle.state is not None
        return int(handle.job.prompt_ids.shape[0]) - handle.state.length

    # steps

    def _prefill(self, handle: JobHandle, num_rows: int) -> None:
        state, job = handle.state, handle.job
        assert state is not None
        started = self._clock()
        done = state.length
        if handle.units and done < handle.units[0]:
            num_rows = min(num_rows, handle.units[0] - done)
        with self._isolated([handle], "the prompt could not be computed"):
            try:
                layers = self._speculation.feature_layers if self._speculation is not None else ()
                rows = run_chunk(self.model, state, job.prompt_ids[done : done + num_rows], layers)
            except RestoreFailed as failure:
                assert self._restores is not None
                _log.warning("%s: computing the prompt instead", failure)
                if not self._restores.end(handle):
                    self._compute_instead(handle)
                return
            if self._restores is not None:
                self._restores.finish_beside_a_chunk(handle)
            if self._speculation is not None:
                self._speculation.follow_prompt(handle, done, rows)
            self._keeper.keep_unit(handle)
            if self._rows_left(handle):
                self._keeper.copy_ahead(handle)
            else:
                with self._isolated([handle], NOT_CHOSEN):
                    handle.sequences = first_tokens(self.model, job, state, rows.last, self._num_token_ids)
                if handle.closed:
                    return
                if self._speculation is not None:
                    self._speculation.begin(handle, rows)
            seconds = self._clock() - started
            self._speed.observe(done, num_rows, seconds)
            if self._restores is not None:
                self._restores.cache.rates.observe_prefill(num_rows, seconds)
            handle.timings = replace(handle.timings, prefill=handle.timings.prefill + seconds)
            if not handle.sequences:
                return
            self._prompts.remove(handle)
            self._decoding.append(handle)
            handle.decode_started = self._clock()
            handle.timings = replace(handle.timings, first_token=handle.decode_started - handle.submitted)
            job.listener.on_started(self._report(handle))
            for sequence in handle.sequences:
                self._rounds.tell(sequence, sequence.first)
            self._close_if_ended(handle)

    def _decode(self) -> None:
        handles, broken = list(self._decoding), list[Broken]()
        with self._isolated(handles, "the next token could not be computed"):
            if any(sequence.ended is None for handle in handles for sequence in handle.sequences):
                broken = self._rounds.run(handles)
        for one in broken:
            self._fail(one.handle, one.message)
        for handle in handles:
            if not handle.closed:
                with self._isolated([handle], NOT_PASSED_ON):
                    self._close_if_ended(handle)

    @contextmanager
    def _isolated(self, handles: list[JobHandle], message: str) -> Iterator[None]:
        """Whatever goes wrong inside fails these jobs, with a log line, and nobody else."""
        try:
            yield
        except Exception:  # noqa: BLE001  the loop outlives every job; the log and the listener have the error
            _log.exception(message)
            for handle in handles:
                self._fail(handle, message)

    # ends

    def _close_if_ended(self, handle: JobHandle) -> None:
        if any(sequence.ended is None for sequence in handle.sequences):
            return
        others_decode = any(sequence.ended is None for other in self._decoding for sequence in other.sequences)
        if others_decode and not self._keeper.copy_ahead(handle):
            return  # after the next round, and so on: nobody waits for a long copy
        handle.timings = replace(handle.timings, decode=self._clock() - handle.decode_started)
        kept = self._keeper.keep(handle)
        self._forget(handle)
        handle.closed = True
        handle.job.listener.on_closed(kept, handle.timings)

    def _report(self, handle: JobHandle) -> PromptReport:
        admission = handle.admission
        assert admission is not None
        hit = admission.hit
        return PromptReport(
            prompt_tokens=int(handle.job.prompt_ids.shape[0]),
            cached_tokens=handle.cached_tokens,
            cache_tier=hit.tier if hit is not None and handle.cached_tokens else None,
            cache_id=admission.cache_id if admission.will_keep and handle.job.keep else None,
            hit_cache_id=hit.cache_id if hit is not None and handle.cached_tokens else None,
            timings=handle.timings,
        )

    def _fail(self, handle: JobHandle, message: str) -> None:
        self._forget(handle)
        if handle.closed:
            return
        handle.closed = True
        try:
            handle.job.listener.on_failed(message)
        except Exception:  # noqa: BLE001  as in `_isolated`; there is nobody left to tell
            _log.exception("a listener could not be told that its job failed")

    def _all(self) -> list[JobHandle]:
        return [*self._admissions.waiting, *self._prompts, *self._decoding]

    def _has_cancelled(self) -> bool:
        return any(handle.cancelled for handle in self._all())

    def _drop_cancelled(self) -> None:
        for handle in [handle for handle in self._all() if handle.cancelled]:
            for sequence in handle.sequences:
                sequence.ended = sequence.ended or EndReason.CANCELLED
            self._forget(handle)

    def _forget(self, handle: JobHandle) -> None:
        if handle in self._admissions.waiting:
            self._admissions.waiting.remove(handle)
        if handle in self._prompts:
            self._prompts.remove(handle)
        if handle in self._decoding:
            self._decoding.remove(handle)
        self._release(handle)

    def _release(self, handle: JobHandle) -> None:
        if self._restores is not None:
            self._restores.abandon(handle)
        if handle.admission is not None:
            self.cache.release(handle.admission)
        handle.state = handle.drafter = None
        handle.drafted.clear()
        for sequence in handle.sequences:
            sequence.state.release()
