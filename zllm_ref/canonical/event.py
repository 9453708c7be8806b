"""The answer as it happens. One stream of these makes every protocol's stream and every unary answer.

    Started ( ReasoningDelta | TextDelta | RefusalDelta | ToolCallStarted ToolArgumentsDelta* ToolCallFinished )* Finished
    Started ... Failed

With several choices the middle interleaves, each event naming its `choice`; every choice gets its own `Finished`, and the
last `Finished` carries the usage of the whole request.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from zllm_ref.canonical.error import ApiError
from zllm_ref.canonical.usage import Usage


class FinishReason(StrEnum):
    """Why a choice ended (protocols.md 1.5 maps each to the three protocols)."""

    END = "end"
    """The model ended its turn."""
    STOP_STRING = "stop_string"
    LENGTH = "length"
    """`max_tokens` was reached."""
    CONTEXT_FULL = "context_full"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"
    REFUSAL = "refusal"
    """The model ended its turn, and what it said last was a refusal."""


@dataclass(frozen=True, slots=True)
class AlternativeToken:
    text: str
    bytes: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One generated token with its log probability and the most likely alternatives, best first."""

    text: str
    bytes: bytes
    logprob: float
    top: tuple[AlternativeToken, ...] = ()


@dataclass(frozen=True, slots=True)
class Started:
    """The prompt is computed, the first token is there. `usage` already holds the prompt's counts (AN12)."""

    usage: Usage
    cache_id: str | None = None
    """Under this id the end state of the answer will be found; None: it will not be kept."""


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str
    choice: int = 0


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str
    choice: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class RefusalDelta:
    """A piece of text by which the model declines: its own part of a message where a protocol has one, else text."""

    text: str
    choice: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """`ordinal` counts the calls of the choice from 0; `call_id` is unique across requests."""

    ordinal: int
    call_id: str
    name: str
    namespace: str | None = None
    custom: bool = False
    choice: int = 0


@dataclass(frozen=True, slots=True)
class ToolArgumentsDelta:
    """A piece of the arguments' JSON text (of the raw input, for a custom tool)."""

    ordinal: int
    text: str
    choice: int = 0


@dataclass(frozen=True, slots=True)
class ToolCallFinished:
    ordinal: int
    arguments: str
    """All pieces, joined."""
    choice: int = 0


@dataclass(frozen=True, slots=True)
class Finished:
    reason: FinishReason
    usage: Usage
    stop_string: str | None = None
    choice: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    error: ApiError


Event: TypeAlias = (
    Started
    | ReasoningDelta
    | TextDelta
    | RefusalDelta
    | ToolCallStarted
    | ToolArgumentsDelta
    | ToolCallFinished
    | Finished
    | Failed
)
