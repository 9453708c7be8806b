"""A conversation: messages of parts, in the order in which they were said."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from zllm_ref.canonical.json_value import JsonObject


class Role(StrEnum):
    SYSTEM = "system"
    DEVELOPER = "developer"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What the model thought; `signature` is what the protocol gave out to prove that it was this server's own."""

    text: str
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model made. `id` is what the client echoes; `namespace` groups tools (Codex: RS24)."""

    id: str
    name: str
    arguments: JsonObject
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class CustomToolCall:
    """A call of a free-form tool: `input` is raw text, never JSON."""

    id: str
    name: str
    input: str
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the client's tool answered. `name` is the called tool's name where the conversation tells it."""

    call_id: str
    text: str
    is_error: bool = False
    name: str | None = None


Part: TypeAlias = Text | Reasoning | ToolCall | CustomToolCall | ToolResult


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """All text parts, joined as they stand."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def reasoning(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Reasoning))

    @property
    def tool_calls(self) -> tuple[ToolCall | CustomToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall | CustomToolCall))

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolResult))
