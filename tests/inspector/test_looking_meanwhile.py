"""Who looks at a request that still runs neither disturbs it nor stumbles over what it does meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.inspector.prompts import request, user, writing
from tests.inspector.stage import new_stage
from zllm_ref.dialect import encode
from zllm_ref.inspector import Arrival, Recorder
from zllm_ref.inspector.nearest import state_ids
from zllm_ref.inspector.record import Record, Step
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


class Vanishing(Record):
    """Dropped in the midst of a look: between its request and its segments."""

    @property  # type: ignore[override]
    def segments(self) -> tuple[()]:
        self.forget()
        return ()

    @segments.setter
    def segments(self, value: object) -> None:
        pass


async def test_a_request_that_is_dropped_while_it_is_looked_at_is_not_found() -> None:
    stage = new_stage()
    try:
        name, _ = await stage.chat([{"role": "user", "content": "hi"}], max_tokens=5)
        record = stage.recorder.get(name)
        assert record is not None
        record.__class__ = Vanishing
        refused = await stage.get(f"requests/{name}/segments", status=404)
    finally:
        stage.engine.close()

    assert refused["error"]["code"] == "not_found"


class Watched(Record):
    """Writes down what there is of the prompt whenever its request is there."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if self.__dict__.get("request") is not None:
            self.seen.add((len(self.segments) > 0, len(self.prompt_ids) > 0))


def test_whoever_finds_a_request_finds_all_of_its_prompt() -> None:
    record: Any = Recorder().arrive("r", "", Arrival("chat", "sse", "POST", "/v1/chat/completions"))
    record.seen = set()
    record.__class__ = Watched
    asked, made = request(user("hi")), writing()
    segments = made.segments(asked)

    record.on_prompt(asked, segments, np.array(encode(segments, made.vocabulary), np.int32), False, 0.001)
    record.forget()

    assert record.seen == {(True, True)}
