"""The default model behind the whole engine: an agent's turn with tools says the same with drafts, event for event."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

from zllm_ref.canonical.event import Event, Failed, Finished, TextDelta, ToolArgumentsDelta, ToolCallFinished
from zllm_ref.canonical.json_value import parse_json_object
from zllm_ref.canonical.message import Message, Part, Role, Text, ToolCall, ToolResult
from zllm_ref.canonical.request import FunctionTool, Protocol, Request, Sampling, ToolChoiceNamed
from zllm_ref.config import DraftSettings, EngineSettings, ModelSettings
from zllm_ref.engine import Engine

FILE = """UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def format_duration(seconds: int) -> str:
    parts = []
    for unit, size in UNITS.items():
        number, seconds = divmod(seconds, size)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"
"""
WRITE_FILE = FunctionTool(
    "write_file",
    "Writes the first line of a file.",
    parse_json_object(
        '{"type": "object", "properties": {"path": {"enum": ["src/duration.py", "src/duration_test.py"]}, '
        '"content": {"type": "string", "maxLength": 48}}, '
        '"required": ["path", "content"]}'
    ),
)


class Heard:
    """All events of one request."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.done = threading.Event()

    def __call__(self, events: Sequence[Event]) -> None:
        self.events += events
        if any(isinstance(event, Finished | Failed) for event in events):
            self.done.set()

    def said(self) -> tuple[str, tuple[object, ...], list[str], object]:
        """Text with its log probabilities, arguments, calls, the end; without where deltas were cut."""
        texts = [event for event in self.events if isinstance(event, TextDelta)]
        logprobs = tuple(entry for event in texts for entry in event.logprobs or ())
        arguments = "".join(event.text for event in self.events if isinstance(event, ToolArgumentsDelta))
        calls = [event.arguments for event in self.events if isinstance(event, ToolCallFinished)]
        end = next(event for event in self.events if isinstance(event, Finished))
        return "".join(event.text for event in texts) + "\0" + arguments, logprobs, calls, (end.reason, end.usage)

    def message(self) -> Message:
        call = next(event for event in self.events if isinstance(event, ToolCallFinished))
        return Message(Role.ASSISTANT, (ToolCall("call_1", "write_file", parse_json_object(call.arguments)),))


@pytest.fixture(scope="module")
def engines() -> Iterator[list[Engine]]:
    made = []
    for draft in (DraftSettings(), DraftSettings("prompt_lookup")):
        made.append(Engine(EngineSettings(model=ModelSettings(threads=1), draft=draft)))
        made[-1].load()
    speculation = made[-1].loaded.loop._speculation
    assert speculation is not None
    speculation.planner.clock = lambda: 0.0  # every likely guess is verified, whatever a round costs here today
    yield made
    for engine in made:
        engine.close()
        engine.loaded.cache.check()
        assert engine.loaded.cache.reserved_bytes == 0


def ask(engine: Engine, number: int, messages: Sequence[Message], **others: object) -> Heard:
    options: dict[str, object] = {"sampling": Sampling(temperature=0.0), "tools": (WRITE_FILE,), **others}
    heard = Heard()
    model = engine.models[0].id
    engine.submit(Request(f"r{number}", Protocol.CHAT, model, tuple(messages), **options), heard)  # type: ignore[arg-type]
    assert heard.done.wait(300)
    return heard


def say(role: Role, *parts: Part) -> Message:
    return Message(role, parts)


def test_a_turn_that_writes_a_file_again_through_a_tool_is_the_same_with_drafts(engines: list[Engine]) -> None:
    """A fenced call, its result, a free text with log probabilities; the second turn finds the first in the cache."""
    text = f"This is duration.py:\n\n```python\n{FILE}```\n\nWrite its first line with write_file."
    asked = say(Role.USER, Text(text))
    answers = []
    for engine in engines:
        first = ask(engine, 1, [asked], tool_choice=ToolChoiceNamed("write_file"), max_tokens=120)
        result = say(Role.TOOL, ToolResult("call_1", "written"))
        again = say(Role.USER, Text("Now show me the whole file in a code block."))
        sampling = Sampling(temperature=0.3, seed=11)
        turn = [asked, first.message(), result, again]
        second = ask(engine, 2, turn, max_tokens=60, logprobs=True, top_logprobs=2, sampling=sampling)
        answers.append((first.said(), second.said()))

    assert answers[0] == answers[1]
    plain, drafted = engines
    assert plain.loaded.loop.draft_counts.rounds == 0
    assert drafted.loaded.loop.draft_counts.accepted > 5
