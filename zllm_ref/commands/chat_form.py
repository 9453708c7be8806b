"""A conversation written as a Chat Completions body, as a person has it in a file: read for the `dialect` and `fence` commands.

Only what a prompt is made of: messages and tools. The server reads requests with `protocols`, which answers every field.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from zllm_ref.canonical.json_value import JsonObject, JsonTextError, JsonValue, kind_of, parse_json, parse_json_object
from zllm_ref.canonical.message import CustomToolCall, Message, Part, Reasoning, Role, Text, ToolCall, ToolResult
from zllm_ref.canonical.request import CustomTool, FunctionTool, Tool


class ChatFormError(ValueError):
    """The file does not hold what it should; the message says where."""


def tools_from_file(path: Path) -> tuple[Tool, ...]:
    """A list of tools, or a whole request body with `tools`."""
    return tools_from_json(_read(path.read_text("utf-8"), str(path)))


def conversation_from_text(text: str, where: str) -> tuple[tuple[Message, ...], tuple[Tool, ...]]:
    """A list of messages, or a whole request body with `messages` (and perhaps `tools`)."""
    value = _read(text, where)
    tools: tuple[Tool, ...] = ()
    if isinstance(value, JsonObject):
        tools = tools_from_json(value.get("tools") or ())
        value = value.get("messages")
    if not isinstance(value, tuple):
        raise ChatFormError(f"{where}: got {kind_of(value)}, allowed a list of messages or an object with messages")
    return messages_from_json(value), tools


def messages_from_json(messages: Sequence[JsonValue]) -> tuple[Message, ...]:
    return tuple(_message(value, f"messages[{index}]") for index, value in enumerate(messages))


def tools_from_json(value: JsonValue) -> tuple[Tool, ...]:
    if isinstance(value, JsonObject):
        value = value.get("tools")
    if not isinstance(value, tuple):
        raise ChatFormError(f"tools: got {kind_of(value)}, allowed a list")
    return tuple(_tool(item, f"tools[{index}]") for index, item in enumerate(value))


def _read(text: str, where: str) -> JsonValue:
    try:
        return parse_json(text)
    except JsonTextError as error:
        raise ChatFormError(f"{where}: {error}") from None


def _tool(value: JsonValue, where: str) -> Tool:
    if not isinstance(value, JsonObject):
        raise ChatFormError(f"{where}: got {kind_of(value)}, allowed an object")
    kind = value.get("type") or "function"
    body = value.get(str(kind))
    if not isinstance(body, JsonObject):
        body = value  # the flat form of the Responses API, or a bare function
    name, description = body.get("name"), body.get("description")
    if not isinstance(name, str):
        raise ChatFormError(f"{where}.name: got {kind_of(name)}, allowed a string")
    described = description if isinstance(description, str) else None
    if kind == "custom":
        return CustomTool(name, described)
    if kind != "function":
        raise ChatFormError(f"{where}.type: got {kind!r}, allowed 'function' or 'custom'")
    parameters = body.get("parameters")
    if parameters is not None and not isinstance(parameters, JsonObject):
        raise ChatFormError(f"{where}.parameters: got {kind_of(parameters)}, allowed an object")
    return FunctionTool(name, described, parameters, body.get("strict") is True)


def _message(value: JsonValue, where: str) -> Message:
    if not isinstance(value, JsonObject):
        raise ChatFormError(f"{where}: got {kind_of(value)}, allowed an object")
    try:
        role = Role(str(value.get("role")))
    except ValueError:
        raise ChatFormError(f"{where}.role: got {value.get('role')!r}, allowed {', '.join(Role)}") from None
    content = _content(value.get("content"), f"{where}.content")
    if role is Role.TOOL:
        name = value.get("name")
        result = ToolResult(str(value.get("tool_call_id") or ""), content, name=name if isinstance(name, str) else None)
        return Message(role, (result,))
    parts: list[Part] = []
    reasoning = value.get("reasoning_content") or value.get("reasoning")
    if isinstance(reasoning, str):
        parts.append(Reasoning(reasoning))
    if content:
        parts.append(Text(content))
    calls = value.get("tool_calls")
    if isinstance(calls, tuple):
        parts += [_call(call, f"{where}.tool_calls[{index}]") for index, call in enumerate(calls)]
    return Message(role, tuple(parts))


def _content(value: JsonValue, where: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, tuple):
        raise ChatFormError(f"{where}: got {kind_of(value)}, allowed a string or a list of text parts")
    texts = [part.get("text") for part in value if isinstance(part, JsonObject)]
    if len(texts) != len(value) or not all(isinstance(text, str) for text in texts):
        raise ChatFormError(f"{where}: got a part without text, allowed text parts")
    return "".join(str(text) for text in texts)


def _call(value: JsonValue, where: str) -> ToolCall | CustomToolCall:
    if not isinstance(value, JsonObject):
        raise ChatFormError(f"{where}: got {kind_of(value)}, allowed an object")
    call_id = str(value.get("id") or "")
    custom = value.get("custom")
    if isinstance(custom, JsonObject):
        return CustomToolCall(call_id, str(custom.get("name")), str(custom.get("input")))
    function = value.get("function")
    if not isinstance(function, JsonObject):
        raise ChatFormError(f"{where}.function: got {kind_of(function)}, allowed an object")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = parse_json_object(arguments)
        except JsonTextError as error:
            raise ChatFormError(f"{where}.function.arguments: {error}") from None
    if not isinstance(arguments, JsonObject):
        raise ChatFormError(f"{where}.function.arguments: got {kind_of(arguments)}, allowed the text of an object")
    return ToolCall(call_id, str(function.get("name")), arguments)
