"""What the parser says while an answer is read: deltas of reasoning, text and calls, and remarks on what was wrong.

    ( ReasoningDelta | TextDelta | Diagnostic
      | CallStarted ArgumentsDelta* CallFinished
      | CallStarted ArgumentsDelta* Diagnostic(ordinal) )*      the call will never finish: invalid, or cut off

The deltas of one call, joined, are the `arguments` of its CallFinished; what was sent is never taken back.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class DiagnosticKind(StrEnum):
    INVALID_CALL = "invalid_call"
    """A call that broke the dialect's rules after its name was out, or whose arguments are no legal value."""
    INCOMPLETE_CALL = "incomplete_call"
    """The answer ended inside a call."""
    MARKUP_IN_TEXT = "markup_in_text"
    """Text that looks like the dialect's markup, but is none; strict mode leaves it in the content."""
    STRAY_MARKER = "stray_marker"
    """The id of a marker that means nothing where it came: it is left out."""
    UNKNOWN_TOOL = "unknown_tool"
    TYPE_MISMATCH = "type_mismatch"
    """The markup claims another type than the tool's schema; the schema wins."""
    OPEN_REASONING = "open_reasoning"
    """The answer ended before its reasoning was closed."""
    REPAIRED = "repaired"
    """Repair mode read something that the dialect does not allow."""


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """`ordinal` counts the calls of the answer from 0; `custom`: its deltas are raw input, not JSON."""

    ordinal: int
    name: str
    namespace: str | None = None
    custom: bool = False


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """A piece of the arguments' JSON text in canonical spacing (of the raw input, for a custom tool)."""

    ordinal: int
    text: str


@dataclass(frozen=True, slots=True)
class CallFinished:
    ordinal: int
    arguments: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """`raw` is the model's text that it is about. With an `ordinal`: this call will never finish."""

    kind: DiagnosticKind
    message: str
    raw: str = ""
    ordinal: int | None = None


ParserEvent: TypeAlias = ReasoningDelta | TextDelta | CallStarted | ArgumentsDelta | CallFinished | Diagnostic
