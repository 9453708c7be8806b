"""Background responses: they run whether or not somebody listens, and may be listened to from any event on.

Every event is kept before anybody hears it: what was heard before a crash has the same number after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.protocols import openai_responses
from zllm_ref.protocols.context import Profile
from zllm_ref.protocols.openai_responses.left_behind import LeftBehind
from zllm_ref.protocols.openai_responses.request import ResponsesRequest
from zllm_ref.protocols.openai_responses.response import TERMINAL, render_response, response_text
from zllm_ref.protocols.sse import DONE, Frame
from zllm_ref.server.auth import Caller
from zllm_ref.server.history import stored_response
from zllm_ref.server.response_store import StoredFrame
from zllm_ref.server.state import ServerState
from zllm_ref.server.turn import Turn, last_of
from zllm_ref.server.wire import RESPONSES

_logger = logging.getLogger(__name__)


class BackgroundRun:
    """One response on its way. Frame number n carries sequence number n."""

    def __init__(self, state: ServerState, call: ResponsesRequest, caller: Caller, stream: openai_responses.Stream) -> None:
        self.call = call
        self.owner = caller.owner
        self._state = state
        self._caller = caller
        self._stream = stream
        self._turn = Turn(state, RESPONSES, call, self._stream)
        self._frames: list[Frame] = []
        self._num_heard = 0
        self._is_ended = False
        self._is_cancelled = False
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Submits, keeps a row, and goes on by itself. Gives the response object as it is now. Raises ApiError."""
        stack = contextlib.AsyncExitStack()
        self._turn.is_committed = True  # who asked has had an answer: failures are told in the response
        await stack.enter_async_context(self._turn)
        async with stack:
            frames = self._turn.say(self._stream.created())
            body = response_text(frames[0])
            await self._keep("queued", body)
            await self._hear(frames)
            self._task = asyncio.create_task(self._run(stack.pop_all()))
        return body

    def cancel(self) -> None:
        self._is_cancelled = True
        self._turn.abandon()

    async def ended(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])

    async def follow(self, first: int) -> AsyncIterator[list[Frame]]:
        """Frames from number `first` on, as they come; an empty list for every silent heartbeat."""
        while True:
            batch = self._frames[first : self._num_heard]
            first += len(batch)
            if batch:
                yield batch
            if self._is_ended:
                return
            news = self._news
            try:
                async with asyncio.timeout(self._state.settings.heartbeat_seconds):
                    await news.wait()
            except TimeoutError:
                yield []

    async def _run(self, stack: contextlib.AsyncExitStack) -> None:
        try:
            async with stack:
                await self._speak()
        except Exception:
            _logger.exception("background response %s failed", self.call.id)
            error = ApiError(ErrorKind.INTERNAL, "The server failed on this response. The fault is ours.")
            await self._hear([] if last_of(self._frames, tuple(TERMINAL)) else self._turn.fail(error))
        finally:
            self._is_ended = True
            self._tell()
            self._state.background.pop(self.call.id, None)

    async def _speak(self) -> None:
        while not self._turn.is_ended:
            frames = await self._turn.next()
            if self._turn.is_abandoned:
                frames = self._turn.fail(ApiError(ErrorKind.CONFLICT, "The response was cancelled.", code="response_cancelled"))
            if frames:
                await self._hear(frames)

    async def _hear(self, frames: list[Frame]) -> None:
        """Keeps the events, then what they say of the response, then lets the listeners have them.

        Those that an earlier call could not keep, and nobody heard, are kept before them.
        """
        self._frames += frames
        first, unheard = self._num_heard, self._frames[self._num_heard :]
        rows = [StoredFrame(first + index, frame.event, frame.data) for index, frame in enumerate(unheard)]
        await self._state.in_thread(lambda: self._state.store.add_frames(self.call.id, rows))
        running, terminal = last_of(unheard, ("response.in_progress",)), last_of(unheard, tuple(TERMINAL))
        if terminal is not None:
            status, body = TERMINAL[cast(str, terminal.event)], response_text(terminal)
            if self._is_cancelled:
                status, body = "cancelled", render_response(self.call, "cancelled", self._stream.output)
            await self._keep(status, body)
        elif running is not None:
            await self._keep("in_progress", response_text(running))
        self._num_heard = len(self._frames)
        self._tell()

    async def _keep(self, status: str, body: str) -> None:
        cache_id = self._turn.started.cache_id if self._turn.started is not None else None
        row = stored_response(self.call, self._caller, status, body, cache_id)
        await self._state.in_thread(lambda: self._state.store.put(row))

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


def fail_left_behind(state: ServerState) -> None:
    """Responses that were running when an earlier process ended will never go on: they say so, with what was kept of them."""
    error = ApiError(ErrorKind.INTERNAL, "The server was restarted while it made this response.")
    for row in state.store.unfinished():
        kept = [Frame(frame.data, frame.name) for frame in state.store.frames(row.id)]
        left = LeftBehind(kept)
        if left.terminal is not None:  # killed between its last event and the row
            status, body = TERMINAL[cast(str, left.terminal.event)], response_text(left.terminal)
        else:
            frames, body = left.closing(row.body, error)
            if Profile(state.settings.profile) is Profile.OPENRESPONSES:
                frames.append(DONE)
            rows = [StoredFrame(len(kept) + index, frame.event, frame.data) for index, frame in enumerate(frames)]
            state.store.add_frames(row.id, rows)
            status = "failed"
        state.store.put(replace(row, status=status, body=body))
