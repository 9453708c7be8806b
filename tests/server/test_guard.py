"""The guard walks a frame of a known form once: its verdicts are those of the machine that walks every frame."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from conformance.grammar import Machine
from tests.protocols.wires import chat, messages, responses
from zllm_ref.canonical.event import (
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    RefusalDelta,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from zllm_ref.canonical.usage import Usage
from zllm_ref.protocols import anthropic_messages, openai_chat, openai_responses
from zllm_ref.protocols.context import Profile
from zllm_ref.protocols.sse import Frame
from zllm_ref.server.guard import GrammarBroken, Guard

USER = [{"role": "user", "content": "x"}]
USAGE = Usage(3, 0, 0, 9, 3)
STREAMS: dict[str, Callable[[], Any]] = {
    "chat": lambda: openai_chat.Stream(chat(messages=USER)),
    "responses": lambda: openai_responses.Stream(responses(input="x")),
    "messages": lambda: anthropic_messages.Stream(messages(messages=USER, thinking={"type": "adaptive"})),
}
# words that the grammars list somewhere: as a text they mean nothing
TEXTS = st.sampled_from(["assistant", "stop", "text", "text_delta", "tool_calls", "completed", "[DONE]", '"', "\n", "é"])
PIECES = st.lists(TEXTS, min_size=9, max_size=9)


def story(pieces: Sequence[str]) -> Iterator[Event]:
    """Of each kind of delta several, so that forms come again."""
    yield Started(USAGE, "zc_1")
    yield from (ReasoningDelta(piece) for piece in pieces)
    yield from (TextDelta(piece) for piece in pieces)
    for ordinal, custom in enumerate((False, True)):
        yield ToolCallStarted(ordinal, f"call_{ordinal}", "f", None, custom)
        yield from (ToolArgumentsDelta(ordinal, piece) for piece in pieces)
        yield ToolCallFinished(ordinal, "".join(pieces))
    yield from (RefusalDelta(piece) for piece in pieces)
    yield Finished(FinishReason.END, USAGE)


def frames_of(protocol: str, pieces: Sequence[str]) -> list[Frame]:
    stream = STREAMS[protocol]()
    return [frame for event in story(pieces) for frame in stream.on(event)]


def verdict(protocol: str, frames: Sequence[Frame]) -> tuple[int, str] | None:
    """Number of the first frame that is refused, and how. None: all may leave."""
    guard = Guard(protocol, "r", Profile.OPENAI)
    for number, frame in enumerate(frames):
        try:
            guard.check([frame])
        except (GrammarBroken, ValueError, AttributeError) as error:
            return number, type(error).__name__
    return None


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong at one frame."""

    name: str
    place: int

    def on(self, frames: list[Frame]) -> list[Frame]:
        place = self.place % len(frames)
        before, frame, after = frames[:place], frames[place], frames[place + 1 :]
        match self.name:
            case "lost":
                return before + after
            case "late":
                return before + after[:3] + [frame] + after[3:]
            case "early":
                return before + after[-1:] + [frame] + after[:-1]
            case "again":
                return [*frames, frame]
            case "misnamed":
                return [*before, replace(frame, event="response.completed"), *after]
            case _:
                return [*before, replace(frame, data=frame.data.replace(*CHANGES[self.name])), *after]


CHANGES = {
    "role": ('"delta":{', '"delta":{"role":"assistant",'),
    "index": ('index":0', 'index":5'),
    "shape": ('"delta":"', '"delta":1,"x":"'),
    "cut": ("}", ""),
    "empty": (":", ":\n\n"),
    "kind": ("text", "thinking"),
}
FAULTS = st.builds(Fault, st.sampled_from(["lost", "late", "early", "again", "misnamed", *CHANGES]), st.integers(0, 99))


@pytest.mark.parametrize("protocol", STREAMS)
@given(pieces=PIECES)
def test_whatever_the_text_says_every_frame_may_leave(protocol: str, pieces: list[str]) -> None:
    frames = frames_of(protocol, pieces)

    assert verdict(protocol, frames) is None
    assert verdict(protocol, [replace(frame, form=None) for frame in frames]) is None


@pytest.mark.parametrize("protocol", STREAMS)
@given(pieces=PIECES, faults=st.lists(FAULTS, min_size=1, max_size=3))
@example(pieces=["x"] * 9, faults=[Fault("late", 14)])
@example(pieces=["x"] * 9, faults=[Fault("role", 7)])
@example(pieces=["x"] * 9, faults=[Fault("index", 15)])
def test_the_verdict_is_that_of_walking_every_frame(protocol: str, pieces: list[str], faults: list[Fault]) -> None:
    frames = frames_of(protocol, pieces)
    for fault in faults:
        frames = fault.on(frames)

    assert verdict(protocol, frames) == verdict(protocol, [replace(frame, form=None) for frame in frames])


@pytest.mark.parametrize("protocol", STREAMS)
def test_a_form_is_walked_until_it_has_left_the_stream_where_it_was(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[str | None] = []
    honest, here = Machine.accept, threading.current_thread()

    def accept(self: Machine, name: str | None, payload: Any) -> Any:
        if threading.current_thread() is here:  # a server of an earlier test may still be speaking
            walked.append(name)
        return honest(self, name, payload)

    monkeypatch.setattr(Machine, "accept", accept)
    few, many = frames_of(protocol, ["x"] * 9), frames_of(protocol, ["x"] * 500)
    assert verdict(protocol, few) is None
    num_walked = len(walked)
    walked.clear()
    assert verdict(protocol, many) is None

    assert len(walked) == num_walked < len(few) < len(many)


def test_a_frame_that_is_not_what_its_form_makes_vouches_for_nothing() -> None:
    frames = frames_of("chat", ["x"] * 9)
    legal = next(frame for frame in reversed(frames) if frame.form is not None)
    assert legal.form is not None
    illegal = replace(legal.form, head=legal.form.head.replace('"delta":{', '"delta":{"role":"assistant",'))
    place = frames.index(legal)

    assert verdict("chat", [*frames[:place], replace(legal, form=illegal)]) is None
    assert verdict("chat", [*frames[:place], replace(legal, form=illegal), illegal.fill("x")]) == (place + 1, "GrammarBroken")
