"""Events from the runtime's thread to the event loop: one hand-over a step, one wake-up however many have gathered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from zllm_ref.canonical.event import Event


class EventQueue:
    """Belongs to one exchange. `put` may be called from any thread; everything else from the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, heartbeat_seconds: float) -> None:
        self._loop = loop
        self._heartbeat_seconds = heartbeat_seconds
        self._events: list[Event] = []
        self._waiter: asyncio.Future[None] | None = None
        self.is_abandoned = False

    def put(self, events: Sequence[Event]) -> None:
        # A closed loop means that the server has ended: nobody listens any more, and the runtime must not fall over that.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._append, events)

    def abandon(self) -> None:
        """The client has gone: wakes the exchange, which then sees `is_abandoned`."""
        self.is_abandoned = True
        self._wake()

    async def next(self) -> list[Event]:
        """All events that have gathered; an empty list when none came for a heartbeat, or the client has gone."""
        if not self._events and not self.is_abandoned:
            self._waiter = self._loop.create_future()
            timer = self._loop.call_later(self._heartbeat_seconds, self._wake)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        events, self._events = self._events, []
        return events

    def _append(self, events: Sequence[Event]) -> None:
        self._events.extend(events)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
