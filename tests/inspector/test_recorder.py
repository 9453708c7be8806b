"""The record is bounded: in requests, in bytes, in what one request may hold."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from tests.inspector.prompts import request, user, writing
from tests.inspector.stage import new_stage
from zllm_ref.canonical.event import FinishReason
from zllm_ref.dialect import encode
from zllm_ref.inspector import Arrival, Record, Recorder, State
from zllm_ref.inspector.record import MOST_BODY_BYTES, MOST_FRAMES, MOST_TOKENS
from zllm_ref.protocols.openai_responses import History
from zllm_ref.runtime.sampler import SampledToken
from zllm_ref.runtime.sequence import PromptReport, RoundReport, Timings

KIB, MIB = 1 << 10, 1 << 20


def arrival(raw: bytes = b"{}") -> Arrival:
    return Arrival("chat", "unary", "POST", "/v1/chat/completions", (("user-agent", "test/1.0"),), raw)


def tell(recorder: Recorder, name: str, owner: str = "", *, text: str = "hi", num_tokens: int = 20) -> Record:
    """A whole request, as server and engine tell it."""
    record = recorder.arrive(name, owner, arrival(text.encode()))
    record.transport = "sse"
    asked = request(user(text))
    made = writing()
    segments = made.segments(asked)
    record.on_prompt(asked, segments, np.array(encode(segments, made.vocabulary), np.int32), False, 0.001)
    record.on_started(PromptReport(len(record.prompt_ids), 0, None, None))
    for place in range(num_tokens):
        record.on_tokens(0, [SampledToken(65 + place % 26)])
        record.on_frame(None, f'{{"delta":"{chr(65 + place % 26)}","padding":"{"x" * 200}"}}', record.next_event_number(0))
    record.on_ended(0, FinishReason.LENGTH)
    record.on_closed("cache_1", Timings())
    record.on_end(State.ENDED)
    return record


def test_a_thousand_requests_leave_the_last_two_hundred() -> None:
    recorder = Recorder()

    for index in range(1000):
        tell(recorder, f"r{index}", num_tokens=2)

    assert [record.request_id for record in recorder.records("")] == [f"r{index}" for index in range(800, 1000)]
    assert recorder.get("r799") is None
    assert recorder.num_bytes == sum(record.num_bytes for record in recorder.records(""))


@pytest.mark.parametrize("text", ["word " * 4_000, "字🌧" * 2_000], ids=["latin", "wide"])
def test_large_requests_stay_within_the_bytes_in_truth(text: str) -> None:
    """Python's own count of what is held stays within what the recorder says, and that within the bound."""
    recorder = Recorder(most_bytes=2 * MIB)
    tell(recorder, "warm", text=text)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]

    for index in range(30):
        tell(recorder, f"r{index}", text=text, num_tokens=10)
        assert recorder.num_bytes <= recorder.most_bytes
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert held <= 1.25 * recorder.most_bytes
    assert len(recorder.records("")) < 30


def test_what_is_gone_is_said_once_and_to_its_owner_only() -> None:
    recorder = Recorder(most_requests=2)
    for index, owner in enumerate(("a", "b", "a", "a")):
        tell(recorder, f"r{index}", owner)
    seen = recorder.latest

    assert recorder.gone_after("a", 1) == ["r0"]
    assert recorder.gone_after("b", 1) == ["r1"]
    assert recorder.gone_after("a", seen) == []


def test_a_request_that_is_dropped_while_it_runs_holds_nothing_more() -> None:
    recorder = Recorder(most_requests=1)
    record = recorder.arrive("old", "", arrival(b"x" * KIB))
    recorder.arrive("new", "", arrival())
    before = recorder.num_bytes

    record.on_tokens(0, [SampledToken(65)] * 100)
    record.on_frame(None, "x" * 10_000, 0)

    assert record.is_dropped
    assert not record.frames
    assert not record.ids
    assert recorder.num_bytes == before


def test_a_body_and_an_answer_are_kept_by_their_beginnings() -> None:
    recorder = Recorder()
    record = recorder.arrive("r", "", arrival(b"x" * (MOST_BODY_BYTES + 5)))

    for _ in range(30):
        record.on_frame(None, "y" * (100 * KIB), None)

    assert (len(record.raw), record.body_cut) == (MOST_BODY_BYTES, 5)
    assert sum(len(frame.data) for frame in record.frames) <= MOST_BODY_BYTES
    assert record.num_frames == 30
    assert record.frames_cut == 30 * 100 * KIB - sum(len(frame.data) for frame in record.frames)


def test_frames_and_tokens_of_one_request_are_bounded_in_number() -> None:
    recorder = Recorder()
    record = recorder.arrive("r", "", arrival())

    for _ in range(MOST_FRAMES + 10):
        record.on_frame(None, "", None)
    for _ in range(MOST_TOKENS // 1000 + 2):
        record.on_tokens(0, [SampledToken(65)] * 1000)

    assert len(record.frames) == MOST_FRAMES
    assert len(record.ids) == MOST_TOKENS


def test_changes_are_numbered_upwards() -> None:
    recorder = Recorder()
    first, second = tell(recorder, "a"), tell(recorder, "b")

    seen = recorder.latest
    first.note("cause", None)

    assert first.version == recorder.latest > seen >= second.version


def test_a_round_with_guesses_takes_the_steps_that_were_its() -> None:
    recorder = Recorder()
    record = recorder.arrive("r", "", arrival())
    asked = request(user("hi"))
    made = writing()
    ids = np.array(encode(made.segments(asked), made.vocabulary), np.int32)
    record.on_prompt(asked, made.segments(asked), ids, False, 0.0)
    record.on_tokens(0, [SampledToken(1)])

    record.on_tokens(0, [SampledToken(2, drafted=True)])
    record.on_tokens(0, [SampledToken(3, drafted=True)])
    record.on_tokens(0, [SampledToken(4)])
    record.on_round(RoundReport(0, 1, 1, 0.1, len(ids) + 1, 3, (2, 3, 9), 2))

    assert [(step.start, step.end, step.proposed, step.num_accepted) for step in record.steps] == [
        (0, 1, (), 0),
        (1, 4, (2, 3, 9), 2),
    ]
    assert list(record.how) == [0, 2, 2, 0]
    assert (record.num_proposed, record.num_accepted) == (3, 2)


def test_the_first_end_counts() -> None:
    recorder = Recorder()
    record = tell(recorder, "r")

    record.on_end(State.CANCELLED)

    assert record.state is State.ENDED
    assert record.end_reason == "length"


def test_only_the_first_choice_is_kept() -> None:
    record = Recorder().arrive("r", "", arrival())

    record.on_tokens(1, [SampledToken(65)])
    record.on_tokens(0, [SampledToken(66)])

    assert list(record.ids) == [66]
    assert [record.next_event_number(choice) for choice in (0, 1, 0)] == [0, None, 1]


def test_nobody_who_looks_means_no_alternatives() -> None:
    recorder: Any = Recorder()

    assert recorder.num_alternatives == 0
    recorder.num_watchers += 1
    assert recorder.num_alternatives == 5


def test_a_request_that_the_server_fails_on_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: object) -> History:
        raise RuntimeError("disk I/O error")

    monkeypatch.setattr("zllm_ref.server.websocket.load_history", fails)
    stage = new_stage()
    try:
        with TestClient(stage.app) as client, client.websocket_connect("/v1/responses") as socket:
            socket.send_json({"type": "response.create", "model": "scripted", "input": "hi"})
            told = socket.receive_json()
    finally:
        stage.engine.close()

    (record,) = stage.recorder.records("")
    assert told["type"] == "error"
    assert (record.state, record.end_reason) == (State.FAILED, "error")
    assert "disk" not in str(record.error)
