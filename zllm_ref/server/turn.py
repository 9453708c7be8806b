"""One generation, from its admission to its last frame. Every road out uses it: SSE, unary, WebSocket, background.

    async with Turn(state, wire, call, stream) as turn:      # admits and submits; raises ApiError
        while not turn.is_ended:
            frames = await turn.next()                       # of one wake-up; empty: silence, or the client has gone

Leaving the block before the end cancels the generation.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import TracebackType

from zllm_ref.canonical.error import ApiError
from zllm_ref.canonical.event import Event, Failed, Finished, ReasoningDelta, RefusalDelta, Started, TextDelta, ToolArgumentsDelta
from zllm_ref.canonical.usage import Usage
from zllm_ref.inspector import State
from zllm_ref.protocols.sse import Frame
from zllm_ref.server.answer import Answer
from zllm_ref.server.engine_port import Generation
from zllm_ref.server.event_queue import EventQueue
from zllm_ref.server.guard import Guard
from zllm_ref.server.recording import end_of
from zllm_ref.server.state import ServerState
from zllm_ref.server.wire import OUR_FAULT, AnswerStream, Call, Wire


class Turn:
    """`is_committed`: something has been sent, so that a failure is told in-band and raised no more (T6, T7)."""

    def __init__(self, state: ServerState, wire: Wire, call: Call, stream: AnswerStream) -> None:
        self._state = state
        self._wire = wire
        self._call = call
        self._queue = EventQueue(asyncio.get_running_loop(), state.settings.heartbeat_seconds)
        guard = Guard(wire.grammar, call.request.request_id, call.profile)
        self.record = state.recorder.get(call.request.request_id) if state.recorder is not None else None
        self._answer = Answer(stream, guard, call.request.num_choices, self.record)
        self._generation: Generation | None = None
        self.started: Started | None = None
        self.is_committed = False
        self._num_deltas = 0
        self._stopped: ApiError | None = None

    async def __aenter__(self) -> Turn:
        self._state.admit(self)
        try:
            self._generation = await self._submit()
        except BaseException as error:
            self._show_end(end_of(error), error)
            self._close("error" if isinstance(error, Exception) else "cancelled")
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        is_ok = self._answer.is_ended and self._answer.error is None and not isinstance(error, Exception)
        assert self._generation is not None
        if not is_ok:
            self._generation.cancel()
        # what had begun and did not come to its end has failed, whoever is to blame; unless nobody wanted the rest
        failure = self._answer.error or (error if isinstance(error, Exception) else None)
        self._show_end(State.ENDED if is_ok else State.FAILED if failure is not None else State.CANCELLED, failure)
        self._close("ok" if is_ok else "error" if failure is not None else "cancelled")

    @property
    def is_ended(self) -> bool:
        return self._answer.is_ended

    @property
    def is_abandoned(self) -> bool:
        return self._queue.is_abandoned

    @property
    def error(self) -> ApiError | None:
        """Why the answer failed; None where it did not."""
        return self._answer.error

    def abandon(self) -> None:
        """Nobody wants the rest: wakes `next`, which gives nothing more."""
        self._queue.abandon()

    async def next(self) -> list[Frame]:
        """The frames of all events that have gathered. Raises the ApiError of a failure that nothing was sent before."""
        while True:
            events = await self._queue.next()
            if self._queue.is_abandoned:
                return []
            if self._stopped is not None:
                if not self.is_committed:
                    raise self._stopped
                return self._answer.fail(self._stopped)
            if not events:
                return []
            if isinstance(events[0], Failed) and not self.is_committed:
                raise events[0].error
            for event in events:
                self._see(event)
            frames = self._answer.on(events)
            if frames or self._answer.is_ended:
                return frames

    def say(self, frames: list[Frame]) -> list[Frame]:
        """Frames that are due before any event. Raises GrammarBroken."""
        return self._answer.say(frames)

    def stop(self, error: ApiError) -> None:
        """Ends the answer with this error at its next step."""
        self._stopped = error
        self._queue.wake()

    def fail(self, error: ApiError) -> list[Frame]:
        """Ends the answer from outside, in the protocol's own form."""
        return self._answer.fail(error)

    def end(self, frames: list[Frame]) -> list[Frame]:
        """Takes these frames for the end of the answer: something else than the engine ended it."""
        if self._generation is not None:
            self._generation.cancel()
        return self._answer.end(frames)

    @property
    def usage_so_far(self) -> Usage:
        """The prompt's counts, and a token for every delta that was sent: what is known before the engine has counted."""
        assert self.started is not None
        return replace(self.started.usage, completion_tokens=max(1, self._num_deltas))

    def _see(self, event: Event) -> None:
        if isinstance(event, Started):
            self.started = event
        elif isinstance(event, TextDelta | ReasoningDelta | RefusalDelta | ToolArgumentsDelta):
            self._num_deltas += 1
        elif isinstance(event, Finished) and event.choice == self._call.request.num_choices - 1:
            self._state.metrics.count_usage(event.usage)

    def _show_end(self, end: State, error: BaseException | None) -> None:
        if self.record is not None:
            message = error.message if isinstance(error, ApiError) else OUR_FAULT if isinstance(error, Exception) else None
            self.record.on_end(end, message)

    async def _submit(self) -> Generation:
        """In a thread: rendering and encoding block. One that is cancelled meanwhile still cancels what it started."""
        submitting = self._state.workers.submit(self._state.engine.submit, self._call.request, self._queue.put)
        try:
            return await asyncio.shield(asyncio.wrap_future(submitting))
        except asyncio.CancelledError:
            submitting.add_done_callback(_cancel_result)
            raise

    def _close(self, end: str) -> None:
        self._queue.close()
        self._state.release(self)
        self._state.metrics.answers[(self._wire.grammar, end)] += 1


def _cancel_result(submitting: Future[Generation]) -> None:
    with contextlib.suppress(ApiError):
        submitting.result().cancel()


def last_of(frames: Sequence[Frame], names: Sequence[str]) -> Frame | None:
    """The last frame that has one of these event names."""
    return next((frame for frame in reversed(frames) if frame.event in names), None)
