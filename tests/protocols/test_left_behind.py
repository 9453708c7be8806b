"""A response that a killed process left behind: whatever was kept of it, its end is a whole and honest one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.checker import StreamCheck
from tests.protocols.test_streams import FEWER, STARTED, USAGE, events_of, letters, stories
from tests.protocols.wires import responses
from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.event import (
    Event,
    Finished,
    FinishReason,
    RefusalDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from zllm_ref.protocols import openai_responses
from zllm_ref.protocols.openai_responses.left_behind import LeftBehind
from zllm_ref.protocols.openai_responses.response import response_text
from zllm_ref.protocols.sse import Frame

LOST = ApiError(ErrorKind.INTERNAL, "The process was killed.")
CUSTOM: list[Event] = [
    STARTED,
    ToolCallStarted(0, "call_0", "exec", custom=True),
    ToolArgumentsDelta(0, "1 +"),
    ToolCallFinished(0, "1 +"),
    TextDelta("Well. "),
    RefusalDelta("No."),
    Finished(FinishReason.REFUSAL, USAGE),
]


def told(events: list[Event], **body: object) -> list[Frame]:
    stream = openai_responses.Stream(responses(input="x", background=True, **body))
    return [*stream.created(), *(frame for event in events for frame in stream.on(event))]


def closed(kept: list[Frame]) -> tuple[list[Frame], str]:
    return LeftBehind(kept).closing(response_text(kept[0]), LOST)


def check(frames: list[Frame]) -> None:
    judge = StreamCheck("responses")
    judge.feed(b"".join(frame.encode() for frame in frames))
    assert judge.finish() == []


@FEWER
@given(story=stories(), place=st.integers(0, 10_000), summary=st.booleans())
def test_cut_anywhere_it_is_closed_by_the_grammar_and_numbered_on(
    story: list[tuple[str, str, str]], place: int, summary: bool
) -> None:
    frames = told(events_of(story, letters), reasoning={"summary": "auto" if summary else "none"})
    kept = frames[: 2 + place % (len(frames) - 2)]

    closing, _ = closed(kept)

    check([*kept, *closing])
    assert closing[-1].event == "response.failed"


@pytest.mark.parametrize("length", range(2, len(told(CUSTOM))))
def test_free_form_calls_and_refusals_are_closed_too(length: int) -> None:
    kept = told(CUSTOM)[:length]

    closing, body = closed(kept)

    check([*kept, *closing])
    assert json.loads(body) == closing[-1].payload["response"]


def test_what_was_said_is_still_there_and_the_error_says_why_it_ends() -> None:
    events = events_of([("text", "", "half a word"), ("call", "f", '{"a":1}')], letters)
    frames = told(events)
    length = next(index for index, frame in enumerate(frames) if frame.event and frame.event.endswith("arguments.delta")) + 1

    response = json.loads(closed(frames[:length])[1])

    assert response["status"] == "failed"
    assert response["error"] == {"code": "server_error", "message": "The process was killed."}
    assert response["output"][0]["content"][0]["text"] == "half a word"
    assert (response["output"][0]["status"], response["output"][1]["status"]) == ("completed", "incomplete")
    assert response["output"][1]["arguments"] == "{"


def test_one_that_had_ended_already_needs_nothing() -> None:
    frames = told(events_of([("text", "", "ab")], letters))

    assert LeftBehind(frames).terminal == frames[-1]
    assert LeftBehind(frames[:-1]).terminal is None
