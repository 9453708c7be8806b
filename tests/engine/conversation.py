"""Requests, engines and what they say, for the tests of the bridge."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zllm_ref.canonical.event import (
    Event,
    Failed,
    Finished,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from zllm_ref.canonical.json_value import JsonObject, from_python, parse_json_object
from zllm_ref.canonical.message import Message, Part, Reasoning, Role, Text, ToolCall
from zllm_ref.canonical.request import FunctionTool, Protocol, Request, Sampling
from zllm_ref.config import EngineSettings, ModelSettings
from zllm_ref.engine import Engine

_NUMBERS = itertools.count()


def json_object(value: dict[str, Any]) -> JsonObject:
    found = from_python(value)
    assert isinstance(found, JsonObject)
    return found


WEATHER = FunctionTool(
    "get_weather",
    "The weather in a city.",
    json_object(
        {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
    ),
)


def user(text: str) -> Message:
    return Message(Role.USER, (Text(text),))


def request(*messages: Message | str, model: str = "scripted", **others: object) -> Request:
    said = tuple(user(message) if isinstance(message, str) else message for message in messages)
    options: dict[str, object] = {"sampling": Sampling(temperature=0.0), **others}
    return Request(f"r{next(_NUMBERS)}", Protocol.CHAT, model, said, **options)  # type: ignore[arg-type]


def new_engine(model: str = "scripted", *, script: object = None, directory: Path | None = None, **others: object) -> Engine:
    """A loaded engine; `script` as its JSON file says it."""
    path = None
    if script is not None:
        assert directory is not None
        path = directory / f"script{next(_NUMBERS)}.json"
        path.write_text(json.dumps(script), "utf-8")
    model_settings = ModelSettings(
        model=model,
        dtype="float32",
        threads=1,
        dialect=others.pop("dialect", None),  # type: ignore[arg-type]
        context_length=others.pop("context_length", None),  # type: ignore[arg-type]
    )
    engine = Engine(EngineSettings(model=model_settings, script=path, **others))  # type: ignore[arg-type]
    engine.load()
    return engine


@dataclass
class Answer:
    """All events of one request."""

    events: list[Event] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)
    num_choices: int = 1
    num_deliveries: int = 0

    def __call__(self, events: Sequence[Event]) -> None:
        self.num_deliveries += 1
        self.events.extend(events)
        finished = sum(isinstance(event, Finished) for event in self.events)
        if finished == self.num_choices or any(isinstance(event, Failed) for event in self.events):
            self.done.set()

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def started(self) -> Started:
        return self.of(Started)[0]  # type: ignore[no-any-return]

    @property
    def finished(self) -> Finished:
        """The last one: it has the usage of the whole request."""
        return self.of(Finished)[-1]  # type: ignore[no-any-return]

    def text(self, choice: int = 0) -> str:
        return "".join(event.text for event in self.of(TextDelta) if event.choice == choice)

    @property
    def reasoning(self) -> str:
        return "".join(event.text for event in self.of(ReasoningDelta))

    def message(self) -> Message:
        """As a client would send it back: deltas joined, arguments parsed anew."""
        parts: list[Part] = []
        if self.reasoning:
            parts.append(Reasoning(self.reasoning))
        if self.text():
            parts.append(Text(self.text()))
        for started in self.of(ToolCallStarted):
            joined = "".join(event.text for event in self.of(ToolArgumentsDelta) if event.ordinal == started.ordinal)
            parts.append(ToolCall(started.call_id, started.name, parse_json_object(joined)))
        return Message(Role.ASSISTANT, tuple(parts))

    def joined(self) -> list[tuple[object, ...]]:
        """The answer without its cuts: runs of deltas of one kind become one."""
        runs: list[tuple[object, ...]] = []
        for event in self.events:
            match event:
                case TextDelta() | ReasoningDelta() | ToolArgumentsDelta():
                    kind = (type(event).__name__, event.choice, getattr(event, "ordinal", None))
                    if runs and runs[-1][:3] == kind:
                        runs[-1] = (*kind, str(runs[-1][3]) + event.text)
                    else:
                        runs.append((*kind, event.text))
                case ToolCallStarted():
                    runs.append(("ToolCallStarted", event.choice, event.ordinal, event.name))
                case ToolCallFinished():
                    runs.append(("ToolCallFinished", event.choice, event.ordinal, event.arguments))
                case Finished():
                    runs.append(("Finished", event.choice, event.reason, event.stop_string))
                case Failed():
                    runs.append(("Failed",))
        return runs


def ask(engine: Engine, asked: Request, seconds: float = 120.0) -> Answer:
    """One request from beginning to end; its usage adds up, and the cache's books are right."""
    answer = Answer(num_choices=asked.num_choices)
    engine.submit(asked, answer)
    assert answer.done.wait(seconds), f"no end within {seconds} s: {answer.events[-3:]}"
    for event in (*answer.of(Started), *answer.of(Finished)):
        event.usage.check()
    return answer
