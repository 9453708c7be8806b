"""A conversation as templates think of it: a row of turns, one tool result each, empty parts gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from zllm_ref.canonical.message import CustomToolCall, Message, Role, Text, ToolCall, ToolResult


@dataclass(frozen=True, slots=True)
class SystemTurn:
    text: str


@dataclass(frozen=True, slots=True)
class UserTurn:
    text: str


@dataclass(frozen=True, slots=True)
class AssistantTurn:
    """`message` is where the turn came from: replay finds the generated ids by it."""

    reasoning: str
    text: str
    calls: tuple[ToolCall | CustomToolCall, ...]
    message: Message


@dataclass(frozen=True, slots=True)
class ResultTurn:
    call_id: str
    text: str


Turn: TypeAlias = SystemTurn | UserTurn | AssistantTurn | ResultTurn


def turns_of(messages: Sequence[Message]) -> tuple[Turn, ...]:
    """The turns, in order. A message of several tool results becomes as many turns; text beside results keeps its place."""
    turns: list[Turn] = []
    for message in messages:
        match message.role:
            case Role.SYSTEM | Role.DEVELOPER:
                turns.append(SystemTurn(message.text))
            case Role.ASSISTANT:
                turns.append(AssistantTurn(message.reasoning, message.text, message.tool_calls, message))
            case Role.USER | Role.TOOL:
                turns.extend(_spoken(message))
    return tuple(turns)


def _spoken(message: Message) -> list[Turn]:
    if not message.tool_results:
        return [UserTurn(message.text)]
    turns: list[Turn] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            turns.append(ResultTurn(part.call_id, part.text))
        elif isinstance(part, Text) and part.text:
            turns.append(UserTurn(part.text))
    return turns


def last_user_index(turns: Sequence[Turn]) -> int:
    """Place of the last user turn; -1: there is none. Tool results are no user turns."""
    return max((index for index, turn in enumerate(turns) if isinstance(turn, UserTurn)), default=-1)
