"""A record looked at: its prompt, and the answer read again with the tokens of every part and event."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from zllm_ref.canonical.event import (
    Event,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from zllm_ref.canonical.message import Message, Part, Role
from zllm_ref.canonical.request import Request
from zllm_ref.dialect import Segment
from zllm_ref.inspector.axis import Span
from zllm_ref.inspector.prompt_view import PromptView
from zllm_ref.inspector.record import Record
from zllm_ref.tokenizer.vocabulary import Vocabulary


@dataclass(frozen=True)
class Held:
    """The fence before a token: its phase, and what the guard forbade."""

    phase: str
    excluded: tuple[int, ...]


class AnswerReader(Protocol):
    """Reads ids into events: the engine's own reader, begun anew."""

    @property
    def stop_string(self) -> str | None: ...

    def push(self, token_id: int) -> list[Event]: ...

    def finish(self) -> list[Event]: ...

    def message(self) -> Message: ...


@dataclass(frozen=True)
class Spoken:
    """A part of the answer and its tokens."""

    part: Part
    tokens: Span


@dataclass(frozen=True)
class Answer:
    """`event_tokens[n]`: the tokens that event number n of the first choice tells of (the first event tells of none)."""

    message: Message
    parts: tuple[Spoken, ...]
    event_tokens: tuple[Span, ...]


class View(PromptView):
    """Made when somebody looks; of a running request it shows the moment at which it was made."""

    def __init__(
        self, record: Record, request: Request, segments: tuple[Segment, ...], vocabulary: Vocabulary,
        reader: AnswerReader | None, stop_ids: frozenset[int], dialect: str,
    ) -> None:  # fmt: skip
        super().__init__(
            vocabulary,
            request.messages,
            request.tools,
            segments,
            record.prompt_ids,
            record.ids.tolist(),
            dialect=dialect,
            namespace=request.cache.namespace,
        )
        self.record = record
        self.request = request
        self.held: list[Held] | None = None
        """The fence along the answer, once somebody has walked it."""
        self._reader = reader
        self._stop_ids = stop_ids

    @cached_property
    def answer(self) -> Answer:
        """The answer read again, with the tokens of every part and event."""
        first = self.axis.num_prompt
        if self._reader is None:
            return Answer(Message(Role.ASSISTANT, ()), (), ())
        spans: list[Span] = [(first, first)]  # Started
        said: dict[object, Span] = {}
        shown = first
        place = first
        for token_id in self.output_ids:
            if token_id in self._stop_ids:
                break
            place += 1
            shown = self._note(self._reader.push(token_id), shown, place, spans, said)
            if self._reader.stop_string is not None:
                break
        if self.record.state.is_final:
            self._note(self._reader.finish(), shown, place, spans, said)
        end = self.axis.num_tokens
        spans.append((place, end))  # Finished
        message = self._reader.message()
        keys: list[object] = [key for key in ("reasoning", "text") if key in said]
        keys += sorted(key[0] for key in said if isinstance(key, tuple))  # calls that were finished
        parts = [Spoken(part, said[key]) for part, key in zip(message.parts, keys, strict=False)]
        return Answer(message, tuple(parts), tuple(spans))

    @staticmethod
    def _note(events: list[Event], shown: int, place: int, spans: list[Span], said: dict[object, Span]) -> int:
        """The events that a token made certain tell of it and of all tokens since the event before."""
        span = (min(shown, place), place)
        for event in events:
            spans.append(span)
            key: object
            match event:
                case ReasoningDelta():
                    key = "reasoning"
                case TextDelta() | RefusalDelta():
                    key = "text"
                case ToolCallStarted() | ToolArgumentsDelta() | ToolCallFinished():
                    key = event.ordinal
                case _:
                    continue
            said[key] = (said.get(key, span)[0], span[1])
            if isinstance(event, ToolCallFinished):
                said[(key, "finished")] = span
        return place if events else shown
