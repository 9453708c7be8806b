"""Events from the runtime's thread to the event loop: no delay for an event that is ready, no wake-up for who is awake.

runtime's thread   put ─▶ batches ─┐ is somebody asleep? wake him, once
event loop         next ◀──────────┘ everything that has gathered, in one piece
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence

from zllm_ref.canonical.event import Event

MAX_BATCH = 256  # the backlog of a slow reader is worked off in pieces, so that the other streams get their turns


class EventQueue:
    """Belongs to one exchange. `put` may be called from any thread; everything else from the loop. Must be closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, heartbeat_seconds: float) -> None:
        self._loop = loop
        self._heartbeat_seconds = heartbeat_seconds
        self._batches: deque[Sequence[Event]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._must_be_woken = False
        """Said when somebody goes to sleep, taken back by whoever wakes him: the others need not."""
        self._asleep_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.is_abandoned = False

    def put(self, events: Sequence[Event]) -> None:
        self._batches.append(events)
        if not self._must_be_woken:
            return
        self._must_be_woken = False
        # A closed loop means that the server has ended: nobody listens any more, and the runtime must not fall over that.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._arrived)

    def abandon(self) -> None:
        """The client has gone: wakes the exchange, which then sees `is_abandoned`."""
        self.is_abandoned = True
        self.wake()

    def wake(self) -> None:
        """Lets `next` return with what there is."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """Nobody will ask again."""
        if self._timer is not None:
            self._timer.cancel()

    async def next(self) -> list[Event]:
        """The events that have gathered; an empty list when none came for a heartbeat, or the client has gone."""
        if not self._batches and not self.is_abandoned:
            await self._something()
        events: list[Event] = []
        while self._batches and len(events) < MAX_BATCH:
            events += self._batches.popleft()
        return events

    async def _something(self) -> None:
        self._waiter = self._loop.create_future()
        self._asleep_since = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._heartbeat_seconds, self._beat)
        self._arrived()  # what was put before that was known woke nobody
        try:
            await self._waiter
        finally:
            self._must_be_woken = False
            self._waiter = None

    def _arrived(self) -> None:
        """Wakes who sleeps, or says again that he does: a writer that was held up may have taken it back for an earlier sleep."""
        if self._waiter is None:
            return
        self._must_be_woken = True
        if self._batches:  # looked at last: what is put from now on wakes
            self.wake()

    def _beat(self) -> None:
        """One timer for all sleeps, set again when it is due: to set one for each costs more than an event."""
        self._timer = None
        if self._waiter is None:
            return
        left = self._asleep_since + self._heartbeat_seconds - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._beat)
        else:
            self.wake()
