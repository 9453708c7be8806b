"""A prompt looked at: its axis, whose segment is whose, and where each part of the conversation lies on the axis."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from zllm_ref.canonical.message import CustomToolCall, Message, Part, ToolCall
from zllm_ref.canonical.request import Tool
from zllm_ref.dialect import ReplaySegment, Segment
from zllm_ref.dialect.segment import Author
from zllm_ref.inspector.attribution import owners, part_text
from zllm_ref.inspector.axis import Axis, Span
from zllm_ref.tokenizer.vocabulary import Vocabulary


class PromptView:
    """A conversation, what a dialect made of it, and its ids; perhaps an answer behind them. Immutable."""

    def __init__(
        self, vocabulary: Vocabulary, messages: tuple[Message, ...], tools: tuple[Tool, ...], segments: tuple[Segment, ...],
        prompt_ids: Sequence[int] | NDArray[np.int32], output_ids: Sequence[int] = (), *, dialect: str = "", namespace: str = "",
    ) -> None:  # fmt: skip
        self.messages = messages
        self.tools = tools
        self.segments = segments
        self.output_ids = list(output_ids)
        self.axis = Axis(vocabulary, segments, prompt_ids, self.output_ids)
        self.dialect = dialect
        self.namespace = namespace

    @cached_property
    def owners(self) -> list[int | None]:
        """Message of each segment."""
        return owners(self.segments, self.messages)

    @cached_property
    def message_tokens(self) -> list[Span | None]:
        """Tokens of each message, frames included."""
        return [None if span is None else self.axis.tokens_of(span) for span in self.message_bytes]

    @cached_property
    def message_bytes(self) -> list[Span | None]:
        found: list[Span | None] = [None] * len(self.messages)
        for placed, owner in zip(self.axis.placed, self.owners, strict=True):
            if owner is not None:
                old = found[owner]
                found[owner] = placed.bytes if old is None else (min(old[0], placed.bytes[0]), max(old[1], placed.bytes[1]))
        return found

    @cached_property
    def replayed(self) -> frozenset[int]:
        """Messages that entered as the ids that had been generated."""
        pairs = zip(self.segments, self.owners, strict=True)
        return frozenset(owner for segment, owner in pairs if owner is not None and isinstance(segment, ReplaySegment))

    def part_bytes(self, message: int) -> list[Span | None]:
        """Where each part of a message stands, in bytes: its text is looked for inside the message, in order.

        A call begins with its name; it ends with its arguments where these are JSON, else where the next call begins.
        """
        whole = self.message_bytes[message]
        parts = self.messages[message].parts
        if whole is None:
            return [None] * len(parts)
        spans: list[Span | None] = []
        cursor = whole[0]
        for index, part in enumerate(parts):
            found = self._find_call(parts, index, cursor, whole[1]) if _is_call(part) else None
            found = found or self._find(part_text(part), cursor, whole[1])
            spans.append(found)
            if found is not None:
                cursor = found[1]
        return spans

    def _find(self, text: str, start: int, end: int) -> Span | None:
        for wanted in (text, text.strip()):
            data = wanted.encode("utf-8", "replace")
            place = self.axis.data.find(data, start, end) if data else -1
            if place >= 0:
                return (place, place + len(data))
        return None

    def _find_call(self, parts: tuple[Part, ...], index: int, start: int, end: int) -> Span | None:
        name = self._find(getattr(parts[index], "name", ""), start, end)
        if name is None:
            return None
        following = next((part for part in parts[index + 1 :] if _is_call(part)), None)
        after = None if following is None else self._find(getattr(following, "name", ""), name[1], end)
        limit = end if after is None else after[0]
        arguments = self._find(part_text(parts[index]), name[1], limit)
        return (name[0], limit if arguments is None else arguments[1])

    @cached_property
    def tool_tokens(self) -> list[Span | None]:
        """Tokens of each tool's schema, in the order of the request; None: not shown in the prompt."""
        schemas = iter([one.tokens for one in self.axis.placed if one.segment.origin.author is Author.TOOL_SCHEMA])
        return [None if getattr(tool, "deferred", False) else next(schemas, None) for tool in self.tools]


def _is_call(part: Part) -> bool:
    return isinstance(part, ToolCall | CustomToolCall)
