"""The normal form of a conversation: whatever shape a client sent it in, the same words become the same messages (X7).

A list of text blocks and the plain string that they join to are the same message; each tool result is a message of its own; a
result knows the name of the tool that it answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.json_value import JsonObject, JsonTextError, parse_json_object
from zllm_ref.canonical.message import CustomToolCall, Message, Part, Role, Text, ToolCall, ToolResult
from zllm_ref.canonical.request import CustomTool, FunctionTool, Tool
from zllm_ref.protocols.reader import invalid

_TOOL_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}\Z")


def joined(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Neighbouring text parts as one, empty ones dropped."""
    result: list[Part] = []
    for part in parts:
        if not isinstance(part, Text):
            result.append(part)
        elif part.text:
            last = result[-1] if result else None
            if isinstance(last, Text):
                result[-1] = Text(last.text + part.text)
            else:
                result.append(part)
    return tuple(result)


class Conversation:
    """Collects messages in order, remembers the calls, and refuses a result that answers none of them."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._call_names: dict[str, str] = {}

    def add(self, role: Role, parts: Iterable[Part]) -> None:
        message = Message(role, joined(parts))
        for call in message.tool_calls:
            self._call_names[call.id] = call.name
        self.messages.append(message)

    def extend_last(self, parts: Iterable[Part]) -> None:
        """More parts for the last message: items of one turn that a protocol sends one by one."""
        last = self.messages.pop()
        self.add(last.role, (*last.parts, *parts))

    def add_result(self, call_id: str, text: str, path: str, *, is_error: bool = False) -> None:
        name = self._call_names.get(call_id)
        if name is None:
            raise invalid(path, call_id, "the id of a tool call earlier in the conversation")
        self.add(Role.TOOL, (ToolResult(call_id, text, is_error, name),))

    @property
    def last_role(self) -> Role | None:
        return self.messages[-1].role if self.messages else None

    @property
    def last_has_answer(self) -> bool:
        """The last message already holds text or calls, so that new reasoning or text belongs to another turn."""
        return any(isinstance(part, Text | ToolCall | CustomToolCall) for part in self.messages[-1].parts)


def arguments_of(text: str, path: str) -> JsonObject:
    """The arguments of a call that comes back. A call without arguments may come back as an empty string."""
    if not text.strip():
        return JsonObject()
    try:
        return parse_json_object(text)
    except JsonTextError as error:
        raise ApiError(ErrorKind.INVALID_VALUE, f"'{path}': {error}", param=path) from None


def tool_name(name: str, path: str) -> str:
    if not _TOOL_NAME.match(name):
        raise invalid(path, name, "1 to 128 letters, digits and _ . : -")
    return name


def require_unique_tools(tools: Iterable[Tool], path: str) -> tuple[Tool, ...]:
    """Two tools of one name (in one namespace) could not be told apart in the answer."""
    seen: set[tuple[str | None, str]] = set()
    result = tuple(tools)
    for tool in result:
        key = (tool.namespace, tool.name)
        if key in seen:
            raise invalid(path, tool.name, "every tool name once")
        seen.add(key)
    return result


def require_tool(tools: Iterable[FunctionTool | CustomTool], name: str, path: str) -> str:
    """A tool choice must name a tool that was offered."""
    if all(tool.name != name for tool in tools):
        raise invalid(path, name, "the name of one of the tools")
    return name
