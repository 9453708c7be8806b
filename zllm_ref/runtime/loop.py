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
from dataclasses import dataclass, field, replace

import torch

from zllm_ref.cache.admission import Admission, AdmissionImpossible
from zllm_ref.cache.resident import PrefixCache
from zllm_ref.cache.restore import Restore, RestoreFailed
from zllm_ref.cache.tiered import TieredCache
from zllm_ref.runtime.decode import decode_round, first_tokens
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.prefill import restore, run_chunk
from zllm_ref.runtime.restore import LayerGate, begin_restore, end_restore
from zllm_ref.runtime.sampler import SampledToken
from zllm_ref.runtime.schedule import (
    Action,
    DecodeRound,
    Idle,
    PrefillChunk,
    PrefillSpeed,
    PromptProgress,
    schedule,
)
from zllm_ref.runtime.sequence import EndReason, GenerationJob, PromptReport, Sequence, Timings
from zllm_ref.runtime.state import SessionState

_log = logging.getLogger(__name__)

RESTORE_TIMEOUT_SECONDS = 60.0
"""So long may a stage of a restore be in coming before the prompt is computed instead."""
SHUTDOWN_WRITE_SECONDS = 10.0
"""So long may the writing of dirty states take at the end."""


@dataclass(eq=False)
class JobHandle:
    """A job inside the loop. `cancel` may be called from any thread, any number of times."""

    job: GenerationJob
    _loop: RuntimeLoop
    submitted: float
    admission: Admission | None = None
    state: SessionState | None = None
    sequences: list[Sequence] = field(default_factory=list)
    timings: Timings = field(default_factory=Timings)
    cancelled: bool = False
    closed: bool = False
    cached_tokens: int = 0
    restore: Restore | None = None
    """The saved state that is on its way from SSD into `state`."""
    units: list[int] = field(default_factory=list)
    """Prompt lengths at which the state is still to be kept, ascending."""
    admitted: float = 0.0
    decode_started: float = 0.0

    def cancel(self) -> None:
        """The answer is no longer wanted: the job ends within one step and gives back what it holds."""
        self.cancelled = True
        self._loop.wake()


class RuntimeLoop:
    """Runs jobs on one model. `max_lanes` sequences decode at once; further jobs wait, first come, first served.

    `num_token_ids`: ids that the vocabulary has; the model's output may be wider.
    """

    def __init__(
        self,
        model: Model,
        cache: PrefixCache,
        *,
        num_token_ids: int | None = None,
        max_lanes: int = 64,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.model = model
        self.cache = cache
        self._num_token_ids = model.vocab_size if num_token_ids is None else num_token_ids
        self._max_lanes = max_lanes
        self._clock = clock
        self._incoming: deque[JobHandle] = deque()
        self._waiting: deque[JobHandle] = deque()
        self._prompts: list[JobHandle] = []
        self._decoding: list[JobHandle] = []
        self._speed = PrefillSpeed()
        # Layers may begin before all stages have come only where one tensor holds everything that a layer reads.
        self._waits_by_layer = len(model.state.growing) == 1 and not model.state.fixed
        if isinstance(cache, TieredCache):
            cache.wake = self.wake
        self._last: Action = Idle()
        self._wakeup = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread."""
        self._thread = threading.Thread(target=self._run, name="zllm-runtime", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after the present step; unfinished jobs are told that they failed, dirty states are written."""
        with self._wakeup:
            self._stopping = True
            self._wakeup.notify()
        if self._thread is not None:
            self._thread.join()

    def submit(self, job: GenerationJob) -> JobHandle:
        """Queues a job. Its listener hears everything else. Raises AdmissionImpossible if it can never fit the budget."""
        needed = self._reserve_bytes(job)
        if needed > self.cache.capacity_bytes:
            raise AdmissionImpossible(f"state: got {needed} bytes needed, allowed {self.cache.capacity_bytes} (resident bytes)")
        handle = JobHandle(job, self, self._clock())
        with self._wakeup:
            self._incoming.append(handle)
            self._wakeup.notify()
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
                if not self.step():
                    with self._wakeup:
                        if not (self._incoming or self._stopping or self._has_cancelled()):
                            self._wakeup.wait(timeout=1.0)
        for handle in [*self._incoming, *self._waiting, *self._prompts, *self._decoding]:
            self._fail(handle, "the server is shutting down")
        if isinstance(self.cache, TieredCache):
            self._write_dirty_states()

    def _write_dirty_states(self) -> None:
        """What only memory holds, before it goes; bounded, since a person waits."""
        assert isinstance(self.cache, TieredCache)
        deadline = self._clock() + SHUTDOWN_WRITE_SECONDS
        self.cache.write_all()
        while (self.cache.pump() or self.cache.is_writing) and self._clock() < deadline:
            time.sleep(0.002)

    def step(self) -> bool:
        """One action. False: there was nothing to do."""
        with self._wakeup:
            while self._incoming:
                self._waiting.append(self._incoming.popleft())
        self._drop_cancelled()
        if isinstance(self.cache, TieredCache):
            self.cache.pump()
        self._admit()
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

    # states on their way from SSD

    def _is_ready(self, handle: JobHandle) -> bool:
        """The next chunk of the prompt can run: nothing is being restored, or the first stage of it is there."""
        restore, state = handle.restore, handle.state
        if restore is None or state is None:
            return state is not None
        if restore.is_drained:
            self._end_restore(handle)
        elif self._waits_by_layer and restore.is_stage_done(0) and state.gate is None and handle.admission is not None:
            hit = handle.admission.hit
            assert hit is not None  # a restore follows a hit
            state.gate = LayerGate(restore, self.model.state.growing[0].layers, RESTORE_TIMEOUT_SECONDS)
            state.length = handle.cached_tokens = hit.length
        return state.gate is not None or handle.restore is None

    def _end_restore(self, handle: JobHandle) -> None:
        """Nothing writes into the session any more: it holds the saved rows, or is as new."""
        restore, state, admission = handle.restore, handle.state, handle.admission
        assert restore is not None and state is not None and admission is not None  # noqa: PT018  one condition: it was begun
        assert isinstance(self.cache, TieredCache)
        handle.restore = state.gate = None
        handle.cached_tokens = end_restore(state, self.cache, admission, restore)
        handle.timings = replace(handle.timings, restore=self._clock() - handle.admitted)

    def _finish_restore_under_way(self, handle: JobHandle) -> None:
        """The first chunk has read every layer, so every stage has come: only the books are left."""
        restore, state, admission = handle.restore, handle.state, handle.admission
        if restore is None or state is None or admission is None:
            return
        restore.wait_drained()
        assert isinstance(self.cache, TieredCache)
        self.cache.finish_restore(admission, restore)
        handle.restore = state.gate = None
        handle.timings = replace(handle.timings, restore=restore.seconds)

    def _wait_for_files(self) -> bool:
        """Nothing to compute. True while a restore or a save that somebody waits for is under way: after a short wait."""
        if not isinstance(self.cache, TieredCache):
            return False
        moved = self.cache.pump()
        is_busy = any(handle.restore is not None for handle in self._prompts) or (bool(self._waiting) and self.cache.is_writing)
        if is_busy and not moved:
            with self._wakeup:
                self._wakeup.wait(timeout=0.005)
        return is_busy or moved

    # admission

    def _reserve_bytes(self, job: GenerationJob) -> int:
        capacity = int(job.prompt_ids.shape[0]) + job.max_new_tokens
        return len(job.choices) * self.model.state.session_bytes(capacity)

    def _admit(self) -> None:
        while self._waiting:
            handle = self._waiting[0]
            job = handle.job
            lanes = sum(len(h.job.choices) for h in [*self._prompts, *self._decoding])
            if lanes and lanes + len(job.choices) > self._max_lanes:
                return
            admission = self.cache.admit(
                job.namespace, job.prompt_ids, reserve_bytes=self._reserve_bytes(job), cache_id=job.cache_id
            )
            if admission is None:
                return
            self._waiting.popleft()
            handle.admission = admission
            now = self._clock()
            handle.timings = replace(handle.timings, queue=now - handle.submitted)
            self._prompts.append(handle)
            with self._isolated([handle], "memory for the state could not be had"):
                handle.admitted = now
                handle.units = list(admission.units)
                handle.state = self._new_state(job)
                if admission.restore is not None and isinstance(self.cache, TieredCache):
                    handle.restore = begin_restore(handle.state, self.cache, admission)
                else:
                    handle.cached_tokens = self._restore(handle.state, admission)
                    handle.timings = replace(handle.timings, restore=self._clock() - now)

    def _new_state(self, job: GenerationJob) -> SessionState:
        return SessionState(self.model.state, int(job.prompt_ids.shape[0]) + job.max_new_tokens, self.model.device)

    def _restore(self, state: SessionState, admission: Admission) -> int:
        """Tokens that the hit spared. A saved state that cannot be read is a miss: the prompt is computed from its start."""
        if admission.hit is None:
            return 0
        try:
            restore(state, admission.hit)
        except (RuntimeError, ValueError, KeyError, TypeError):
            _log.exception("restoring %s failed: computing the prompt instead", admission.hit.cache_id)
            state.reset()
        return state.length

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
                hidden = run_chunk(self.model, state, job.prompt_ids[done : done + num_rows])
            except RestoreFailed as failure:
                _log.warning("%s: computing the prompt instead", failure)
                self._end_restore(handle)
                return
            self._finish_restore_under_way(handle)
            self._keep_unit(handle)
            handle.sequences = (
                [] if self._rows_left(handle) else first_tokens(self.model, job, state, hidden, self._num_token_ids)
            )
            seconds = self._clock() - started
            self._speed.observe(done, num_rows, seconds)
            if isinstance(self.cache, TieredCache):
                self.cache.rates.observe_prefill(num_rows, seconds)
            handle.timings = replace(handle.timings, prefill=handle.timings.prefill + seconds)
            if not handle.sequences:
                return
            self._prompts.remove(handle)
            self._decoding.append(handle)
            handle.decode_started = self._clock()
            job.listener.on_started(self._report(handle))
            for sequence in handle.sequences:
                self._tell(sequence, sequence.first)
            self._close_if_ended(handle)

    def _decode(self) -> None:
        handles = list(self._decoding)
        with self._isolated(handles, "the next token could not be computed"):
            sequences = [sequence for handle in handles for sequence in handle.sequences if sequence.ended is None]
            produced = dict(zip(map(id, sequences), decode_round(self.model, sequences, self._num_token_ids), strict=True))
        for handle in handles:
            if handle.closed:
                continue
            with self._isolated([handle], "the answer could not be passed on"):
                for sequence in handle.sequences:
                    if sequence.ended is None:
                        self._tell(sequence, produced[id(sequence)])
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

    def _tell(self, sequence: Sequence, tokens: list[SampledToken]) -> None:
        """Passes tokens to the listener and finds out whether the sequence ends with them."""
        job = sequence.job
        stop_token = next((t.token_id for t in tokens if t.token_id in job.stop_ids), None)
        wants_stop = job.listener.on_tokens(sequence.choice, tokens)
        if stop_token is not None:
            sequence.ended = EndReason.STOP_TOKEN
        elif wants_stop:
            sequence.ended = EndReason.STOPPED
        elif len(sequence.produced) >= job.max_new_tokens:
            full = sequence.num_tokens >= self.model.context_length
            sequence.ended = EndReason.CONTEXT_FULL if full else EndReason.MAX_TOKENS
        elif sequence.script is not None and not sequence.script.next_ids(sequence.produced):
            sequence.ended = EndReason.STOPPED
        if sequence.ended is not None:
            job.listener.on_ended(sequence.choice, sequence.ended, stop_token)

    def _close_if_ended(self, handle: JobHandle) -> None:
        if any(sequence.ended is None for sequence in handle.sequences):
            return
        handle.timings = replace(handle.timings, decode=self._clock() - handle.decode_started)
        kept = self._keep(handle)
        self._forget(handle)
        handle.closed = True
        handle.job.listener.on_closed(kept, handle.timings)

    def _keep(self, handle: JobHandle) -> str | None:
        """Saves the first choice's end state. A failure here costs the next request time and this one nothing."""
        first, admission = handle.sequences[0], handle.admission
        if admission is None or not handle.job.keep:
            return None
        try:
            terminal = self.cache.commit(admission, first.ids_in_state(), first.state)
        except (RuntimeError, ValueError, MemoryError):
            _log.exception("keeping the end state failed")
            return None
        return terminal.cache_id if terminal is not None else None

    def _keep_unit(self, handle: JobHandle) -> None:
        """Saves the state on its way through the prompt, where it cannot be cut later."""
        state, admission = handle.state, handle.admission
        if state is None or admission is None:
            return
        while handle.units and handle.units[0] <= state.length:
            length = handle.units.pop(0)
            if length == state.length:
                self.cache.commit_unit(admission, handle.job.prompt_ids[:length], state)

    def _report(self, handle: JobHandle) -> PromptReport:
        admission = handle.admission
        assert admission is not None
        hit = admission.hit
        return PromptReport(
            prompt_tokens=int(handle.job.prompt_ids.shape[0]),
            cached_tokens=handle.cached_tokens,
            cache_tier=hit.tier if hit is not None and handle.cached_tokens else None,
            cache_id=admission.cache_id if admission.will_keep and handle.job.keep else None,
        )

    def _fail(self, handle: JobHandle, message: str) -> None:
        self._forget(handle)
        if not handle.closed:
            handle.closed = True
            handle.job.listener.on_failed(message)

    def _has_cancelled(self) -> bool:
        return any(h.cancelled for h in [*self._waiting, *self._prompts, *self._decoding])

    def _drop_cancelled(self) -> None:
        for handle in [h for h in [*self._waiting, *self._prompts, *self._decoding] if h.cancelled]:
            for sequence in handle.sequences:
                sequence.ended = sequence.ended or EndReason.CANCELLED
            self._forget(handle)

    def _forget(self, handle: JobHandle) -> None:
        if handle in self._waiting:
            self._waiting.remove(handle)
        if handle in self._prompts:
            self._prompts.remove(handle)
        if handle in self._decoding:
            self._decoding.remove(handle)
        self._release(handle)

    def _release(self, handle: JobHandle) -> None:
        if handle.restore is not None:
            handle.restore.cancel()
            handle.restore.wait_drained()  # its buffer may go only when nothing writes into it any more
            handle.restore = None
        if handle.admission is not None:
            self.cache.release(handle.admission)
        handle.state = None
        for sequence in handle.sequences:
            sequence.state.tensors.clear()
            sequence.state.views.clear()
