"""Events between two threads: none is lost or late, and who is awake is not woken."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.server.fake_engine import PATIENCE
from zllm_ref.canonical.event import TextDelta
from zllm_ref.server.event_queue import MAX_BATCH, EventQueue

FOREVER = 3600.0


class Loop:
    """The running loop, which counts the wake-ups that come from other threads. `is_late`: they wait until `deliver`."""

    def __init__(self, *, is_late: bool = False) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_late = is_late
        self._late: list[Callable[[], None]] = []
        self.num_wakes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def call_soon_threadsafe(self, call: Callable[[], None]) -> None:
        self.num_wakes += 1
        if self._is_late:
            self._late.append(call)
        else:
            self._loop.call_soon_threadsafe(call)

    def deliver(self) -> None:
        while self._late:
            self._late.pop(0)()


def queue_on(loop: Loop, heartbeat_seconds: float = FOREVER) -> EventQueue:
    return EventQueue(loop, heartbeat_seconds)  # type: ignore[arg-type]


@contextmanager
def threads_that_switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


async def test_every_event_arrives_once_and_in_order() -> None:
    queue = queue_on(Loop())
    sent = [TextDelta(str(number)) for number in range(20_000)]
    writer = threading.Thread(target=lambda: [queue.put([event]) for event in sent])
    heard: list[object] = []

    with threads_that_switch_often():
        writer.start()
        async with asyncio.timeout(PATIENCE):
            while len(heard) < len(sent):
                heard += await queue.next()
    writer.join()
    queue.close()

    assert heard == sent


async def test_who_is_awake_is_not_woken() -> None:
    loop = Loop()
    queue = queue_on(loop)

    for number in range(100):
        queue.put([TextDelta(str(number))])

    assert len(await queue.next()) == 100
    assert loop.num_wakes == 0


async def test_who_sleeps_is_woken_once_and_hears_all_that_came_since() -> None:
    loop = Loop()
    queue = queue_on(loop)
    sleeper = asyncio.create_task(queue.next())
    await asyncio.sleep(0)

    for number in range(100):
        queue.put([TextDelta(str(number))])

    async with asyncio.timeout(PATIENCE):
        assert len(await sleeper) == 100
    assert loop.num_wakes == 1
    queue.close()


async def test_an_event_that_comes_while_somebody_falls_asleep_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop()
    queue = queue_on(loop)
    event = TextDelta("a")

    def time() -> float:  # between the look at what is there and the word that somebody sleeps
        queue.put([event])
        return 0.0

    monkeypatch.setattr(loop, "time", time, raising=False)
    async with asyncio.timeout(PATIENCE):
        assert await queue.next() == [event]
    assert loop.num_wakes == 0
    queue.close()


async def test_a_wake_up_that_comes_late_is_no_heartbeat() -> None:
    loop = Loop(is_late=True)
    queue = queue_on(loop)
    first = asyncio.create_task(queue.next())
    await asyncio.sleep(0)
    queue.put([TextDelta("a")])
    queue.wake()
    assert await first == [TextDelta("a")]
    second = asyncio.create_task(queue.next())
    await asyncio.sleep(0)

    loop.deliver()
    await asyncio.sleep(0)
    assert not second.done()
    queue.put([TextDelta("b")])
    loop.deliver()

    async with asyncio.timeout(PATIENCE):
        assert await second == [TextDelta("b")]
    queue.close()


async def test_a_writer_that_was_held_up_between_two_looks_hides_no_event() -> None:
    """He has seen somebody asleep, and says so much later, when another sleep has begun: the next event must end that one."""
    seen, may_go_on = threading.Event(), threading.Event()

    class Held(EventQueue):
        """Holds the first writer up after he has looked."""

        _is_said = False

        @property
        def _must_be_woken(self) -> bool:
            is_said = self._is_said
            if is_said and threading.current_thread() is writer and not seen.is_set():
                seen.set()
                assert may_go_on.wait(PATIENCE)
            return is_said

        @_must_be_woken.setter
        def _must_be_woken(self, is_said: bool) -> None:
            self._is_said = is_said

    queue = Held(asyncio.get_running_loop(), FOREVER)
    writer = threading.Thread(target=lambda: queue.put([TextDelta("a")]))
    first = asyncio.create_task(queue.next())
    await asyncio.sleep(0)
    writer.start()
    assert await asyncio.to_thread(seen.wait, PATIENCE)
    queue.wake()
    assert await first == [TextDelta("a")]
    second = asyncio.create_task(queue.next())
    await asyncio.sleep(0)

    may_go_on.set()
    await asyncio.to_thread(writer.join)
    queue.put([TextDelta("b")])

    async with asyncio.timeout(PATIENCE):
        assert await second == [TextDelta("b")]
    queue.close()


async def test_a_backlog_comes_in_pieces() -> None:
    queue = queue_on(Loop())
    for number in range(2 * MAX_BATCH):
        queue.put([TextDelta(str(number))])

    assert [len(await queue.next()) for _ in range(2)] == [MAX_BATCH, MAX_BATCH]


async def test_silence_is_told_at_every_heartbeat() -> None:
    queue = queue_on(Loop(), heartbeat_seconds=0.001)

    async with asyncio.timeout(PATIENCE):
        assert [await queue.next() for _ in range(5)] == [[]] * 5
    queue.close()


async def test_an_event_puts_the_heartbeat_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of its own: the timer is due while the silence since the last event is shorter than a heartbeat."""
    loop, now, timers = Loop(), [0.0], list[tuple[float, Callable[[], None]]]()

    class Timer:
        def cancel(self) -> None:
            timers.clear()

    def call_later(seconds: float, call: Callable[[], None]) -> Timer:
        timers.append((now[0] + seconds, call))
        return Timer()

    monkeypatch.setattr(loop, "time", lambda: now[0], raising=False)
    monkeypatch.setattr(loop, "call_later", call_later, raising=False)
    queue = queue_on(loop, heartbeat_seconds=10.0)
    first = asyncio.create_task(queue.next())
    await asyncio.sleep(0)
    now[0] = 6.0
    queue.put([TextDelta("a")])
    assert await first == [TextDelta("a")]
    second = asyncio.create_task(queue.next())
    await asyncio.sleep(0)

    due, beat = timers.pop()
    now[0] = due
    beat()
    await asyncio.sleep(0)
    assert (due, second.done()) == (10.0, False)
    due, beat = timers.pop()
    now[0] = due
    beat()

    assert (due, await second) == (16.0, [])
    third = asyncio.create_task(queue.next())
    await asyncio.sleep(0)
    assert timers
    queue.close()
    assert not timers
    third.cancel()


async def test_a_client_that_goes_wakes_the_exchange() -> None:
    queue = queue_on(Loop())
    sleeper = asyncio.create_task(queue.next())
    await asyncio.sleep(0)

    queue.abandon()

    async with asyncio.timeout(PATIENCE):
        assert await sleeper == []
    assert await queue.next() == []
    queue.close()


async def test_nobody_minds_an_event_after_the_loop_has_closed() -> None:
    dead = asyncio.new_event_loop()
    queue = EventQueue(dead, FOREVER)
    queue._must_be_woken = True
    dead.close()

    queue.put([TextDelta("a")])

    assert await queue.next() == [TextDelta("a")]
