"""A prompt on its way to ids: markers are ids, text is text, and each piece says who wrote it.

Text never becomes a marker by what it spells; a marker never comes out of a search in text that a client wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from zllm_ref.canonical.message import Role
from zllm_ref.tokenizer.vocabulary import Vocabulary


class Author(StrEnum):
    """Who wrote a piece of the prompt."""

    CLIENT = "client"
    TEMPLATE = "template"
    TOOL_SCHEMA = "tool_schema"
    MODEL = "model"
    """Ids that this server generated, entering again as they were."""


@dataclass(frozen=True, slots=True)
class Origin:
    """`role` is that of the message the piece belongs to; None: the frame around all messages."""

    role: Role | None
    author: Author


@dataclass(frozen=True, slots=True)
class MarkerSegment:
    id: int
    text: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class TextSegment:
    text: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class ReplaySegment:
    """Ids of an answer that this server generated; `text` is what they spell."""

    ids: tuple[int, ...]
    text: str
    origin: Origin


Segment: TypeAlias = MarkerSegment | TextSegment | ReplaySegment


def encode(segments: Sequence[Segment], vocabulary: Vocabulary) -> list[int]:
    """The ids of a prompt. Texts that touch are one text to the tokenizer, whoever wrote them; markers are borders."""
    runs: list[str] = []
    plan: list[int | tuple[int, ...] | None] = []  # None: the next run of text
    text: list[str] = []

    def close_run() -> None:
        if text:
            runs.append("".join(text))
            plan.append(None)
            text.clear()

    for segment in segments:
        match segment:
            case TextSegment():
                if segment.text:
                    text.append(segment.text)
            case MarkerSegment():
                close_run()
                plan.append(segment.id)
            case ReplaySegment():
                close_run()
                plan.append(segment.ids)
    close_run()

    encoded = iter(vocabulary.encode_texts(runs)) if runs else iter(())
    ids: list[int] = []
    for step in plan:
        if step is None:
            ids.extend(next(encoded))
        elif isinstance(step, int):
            ids.append(step)
        else:
            ids.extend(step)
    return ids


def text_of(segments: Sequence[Segment]) -> str:
    """The prompt as a person reads it, markers spelled out."""
    return "".join(segment.text for segment in segments)
