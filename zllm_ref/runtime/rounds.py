"""Decode rounds of the loop: all running sequences gain tokens, their listeners hear them, and it is found out who ends.

    without drafters   one step, then every sequence's tokens are told
    with drafters      one step that verifies guesses too (verify.py); tokens are told position by position

A listener that raises, a fence or a sampler, ends its own job and nobody else's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from zllm_ref.runtime.decode import decode_round
from zllm_ref.runtime.job_handle import JobHandle
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.sampler import SampledToken
from zllm_ref.runtime.sequence import EndReason, RoundReport
from zllm_ref.runtime.sequence import Sequence as Lane
from zllm_ref.runtime.speculation import Speculation

_log = logging.getLogger(__name__)

NOT_PASSED_ON = "the answer could not be passed on"
NOT_CHOSEN = "the next token could not be chosen"


@dataclass(frozen=True)
class _Looked:
    """A lane whose rounds somebody looks at, and how many ids it had before this one."""

    lane: Lane
    tell: Callable[[RoundReport], None]
    position: int


@dataclass(frozen=True)
class Broken:
    """A job that something of its own has broken, and what it is told."""

    handle: JobHandle
    message: str


class Rounds:
    """The rounds of one loop. Belongs to the runtime's thread."""

    def __init__(
        self,
        model: Model,
        num_token_ids: int,
        speculation: Speculation | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._num_token_ids = num_token_ids
        self._speculation = speculation
        self._clock = clock
        self._count = 0

    def run(self, handles: Sequence[JobHandle]) -> list[Broken]:
        """One round of all sequences of these jobs that have not ended. → jobs that cannot go on."""
        self._count += 1
        started = self._clock()
        running = [(handle, lane) for handle in handles for lane in handle.sequences if lane.ended is None]
        looked = [_Looked(lane, h.job.on_round, lane.num_tokens) for h, lane in running if h.job.on_round is not None]
        owner = {id(lane): handle for handle, lane in running}
        broken: list[Broken] = []

        def fail(lane: Lane, error: Exception) -> None:
            _log.error(NOT_CHOSEN, exc_info=error)
            _break(owner[id(lane)], lane, NOT_CHOSEN, broken)

        guesses: dict[int, tuple[tuple[int, ...], int]] = {}
        if self._speculation is None:
            gained = decode_round(self._model, [lane for _, lane in running], self._num_token_ids, fail)
            for (handle, lane), tokens in zip(running, gained, strict=True):
                self._tell_isolated(handle, lane, tokens, broken)
        else:
            lanes = [drafted for handle in handles for drafted in handle.drafted if drafted.sequence.ended is None]
            results = self._speculation.run_round(
                lanes, lambda lane, tokens: self._tell_isolated(owner[id(lane)], lane, tokens, broken), fail
            )
            guesses = {id(d.sequence): (r.guesses, r.right) for d, r in zip(lanes, results, strict=True) if looked}
        if looked:
            self._report(looked, len(running), self._clock() - started, guesses)
        return broken

    def tell(self, lane: Lane, tokens: list[SampledToken]) -> None:
        """Passes tokens to the listener and finds out whether the sequence ends with them."""
        job = lane.job
        stop_token = next((t.token_id for t in tokens if t.token_id in job.stop_ids), None)
        wants_stop = job.listener.on_tokens(lane.choice, tokens)
        if stop_token is not None:
            lane.ended = EndReason.STOP_TOKEN
        elif wants_stop:
            lane.ended = EndReason.STOPPED
        elif len(lane.produced) >= job.max_new_tokens:
            full = lane.num_tokens >= self._model.context_length
            lane.ended = EndReason.CONTEXT_FULL if full else EndReason.MAX_TOKENS
        elif lane.script is not None and not lane.script.next_ids(lane.produced):
            lane.ended = EndReason.STOPPED
        if lane.ended is not None:
            job.listener.on_ended(lane.choice, lane.ended, stop_token)

    def _tell_isolated(self, handle: JobHandle, lane: Lane, tokens: list[SampledToken], broken: list[Broken]) -> None:
        if any(one.handle is handle for one in broken):  # it is over for its other choices too
            lane.ended = EndReason.CANCELLED
            return
        try:
            self.tell(lane, tokens)
        except Exception:  # noqa: BLE001  whatever a listener raises is its own job's end; the log has it
            _log.exception(NOT_PASSED_ON)
            _break(handle, lane, NOT_PASSED_ON, broken)

    def _report(
        self, looked: list[_Looked], num_lanes: int, seconds: float, guesses: dict[int, tuple[tuple[int, ...], int]]
    ) -> None:
        for one in looked:
            verified, right = guesses.get(id(one.lane), ((), 0))
            gained = one.lane.num_tokens - one.position
            report = RoundReport(one.lane.choice, self._count, num_lanes, seconds, one.position, gained, verified, right)
            try:
                one.tell(report)
            except Exception:  # noqa: BLE001  who only looks on must not end an answer; the log has it
                _log.exception("a round could not be reported")


def _break(handle: JobHandle, lane: Lane, message: str, broken: list[Broken]) -> None:
    lane.ended = lane.ended or EndReason.CANCELLED
    if all(one.handle is not handle for one in broken):
        broken.append(Broken(handle, message))
