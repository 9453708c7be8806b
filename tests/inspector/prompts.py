"""Conversations and views for the tests of this room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from zllm_ref.canonical.json_value import parse_json_object
from zllm_ref.canonical.message import Message, Part, Reasoning, Role, Text, ToolCall, ToolResult
from zllm_ref.canonical.request import FunctionTool, Protocol, ReasoningSettings, Request, Tool
from zllm_ref.dialect import encode
from zllm_ref.inspector.explanation import Explained, Writing, explain
from zllm_ref.inspector.family import FAMILIES
from zllm_ref.inspector.family_tokenizers import with_markers
from zllm_ref.inspector.prefix_panel import Prices
from zllm_ref.inspector.prompt_view import PromptView
from zllm_ref.tokenizer import byte_vocabulary

WEATHER = FunctionTool(
    "get_weather",
    "The weather of a city.",
    parse_json_object('{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}'),
)
_CITY = '{"type": "object", "properties": {"city": {"type": "string"}}}'
CLOCK = FunctionTool("get_time", "The time of a city.", parse_json_object(_CITY))


def system(text: str) -> Message:
    return Message(Role.SYSTEM, (Text(text),))


def user(text: str) -> Message:
    return Message(Role.USER, (Text(text),))


def answer(*parts: Part) -> Message:
    return Message(Role.ASSISTANT, parts)


def call(arguments: str, name: str = "get_weather", call_id: str = "call_1") -> ToolCall:
    return ToolCall(call_id, name, parse_json_object(arguments))


def result(text: str, call_id: str = "call_1") -> Message:
    return Message(Role.TOOL, (ToolResult(call_id, text, name="get_weather"),))


def thought(text: str) -> Reasoning:
    return Reasoning(text)


def request(*messages: Message, tools: Sequence[Tool] = (), reasoning: bool | None = None) -> Request:
    return Request("r", Protocol.CHAT, "m", messages, tuple(tools), reasoning=ReasoningSettings(enabled=reasoning))


def writing(family: str = "smollm2") -> Writing:
    """A family's renderer, on bytes."""
    found = FAMILIES[family]
    return Writing(found.dialect or found.name, found.renderer, with_markers(byte_vocabulary(), found.markers), found.shows_tools)


def view(asked: Request, family: str = "smollm2") -> PromptView:
    return writing(family).view(asked)


def explained(now: Request, earlier: Request, family: str = "smollm2", earlier_family: str | None = None) -> Explained:
    return explain(now, writing(family), earlier, writing(earlier_family or family), Prices())


def cause(now: Request, earlier: Request, family: str = "smollm2", earlier_family: str | None = None) -> str | None:
    """The name of what broke the prefix."""
    found = explained(now, earlier, family, earlier_family).cause
    return None if found is None else str(found["name"])


def salted(asked: Request, salt: str) -> Request:
    return replace(asked, cache=replace(asked.cache, salt=salt))


def ids_of(asked: Request, family: str = "smollm2") -> list[int]:
    made = writing(family)
    return encode(made.segments(asked), made.vocabulary)
