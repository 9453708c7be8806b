"""Who looks at a request that still runs neither disturbs it nor stumbles over what it does meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from tests.inspector.stage import new_stage
from zllm_ref.inspector import Arrival, Recorder
from zllm_ref.inspector.nearest import state_ids
from zllm_ref.inspector.record import Step
from zllm_ref.runtime.sampler import SampledToken


def test_tokens_are_told_while_somebody_copies_those_before_them() -> None:
    """An array that lends its memory out cannot grow: a look must not be in the way of the next token."""
    record = Recorder().arrive("r", "", Arrival("chat", "sse", "POST", "/v1/chat/completions"))
    record.on_tokens(0, [SampledToken(65)] * 30_000)
    faults: list[Exception] = []

    def speak() -> None:
        try:
            for _ in range(10_000):
                record.on_tokens(0, [SampledToken(66)])
        except BufferError as fault:
            faults.append(fault)

    speaker = threading.Thread(target=speak)
    speaker.start()
    while speaker.is_alive():
        assert len(state_ids(record)) >= 29_999
    speaker.join()

    assert faults == []
    assert state_ids(record).tolist() == [65] * 30_000 + [66] * 9_999  # the last one has no row yet


class Restless(list[Step]):
    """Steps of a request that guesses: at every look a round has just taken the newest one's place."""

    def __iter__(self) -> Iterator[Step]:
        seen = [self[index] for index in range(len(self))]
        self[-1] = self[-1]._replace(at=self[-1].at + 1.0)
        return iter(seen)


async def test_rounds_that_change_while_they_are_told_are_those_of_one_moment() -> None:
    stage = new_stage()
    try:
        name, _ = await stage.chat([{"role": "user", "content": "hi"}], max_tokens=5)
        record: Any = stage.recorder.get(name)
        record.steps = Restless(record.steps)
        told = await stage.get(f"requests/{name}/decode")
    finally:
        stage.engine.close()

    assert [one["round"] for one in told["rounds"]] == list(range(len(record.steps)))
