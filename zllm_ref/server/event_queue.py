"""Events from the runtime's thread to the event loop: one hand-over a step, one wake-up however many have gathered."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence

from zllm_ref.canonical.event import Event

MAX_BATCH = 256  # the backlog of a slow reader is worked off in pieces, so that the other streams get their turns


class EventQueue:
    """Belongs to one exchange. `put` may be called from any thread; everything else from the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, heartbeat_seconds: float) -> None:
        self._loop = loop
        self._heartbeat_seconds = heartbeat_seconds
        self._events: deque[Event] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self.is_abandoned = False

    def put(self, events: Sequence[Event]) -> None:
        # A closed loop means that the server has ended: nobody listens any more, and the runtime must not fall over that.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._append, events)

    def abandon(self) -> None:
        """The client has gone: wakes the exchange, which then sees `is_abandoned`."""
        self.is_abandoned = True
        self.wake()

    async def next(self) -> list[Event]:
        """The events that have gathered; an empty list when none came for a heartbeat, or the client has gone."""
        if not self._events and not self.is_abandoned:
            self._waiter = self._loop.create_future()
            timer = self._loop.call_later(self._heartbeat_seconds, self.wake)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        return [self._events.popleft() for _ in range(min(len(self._events), MAX_BATCH))]

    def _append(self, events: Sequence[Event]) -> None:
        self._events.extend(events)
        self.wake()

    def wake(self) -> None:
        """Lets `next` return with what there is."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
