"""A tool as the model sees it: one flat name and one JSON object, whichever protocol it came from."""

from __future__ import annotations

from zllm_ref.canonical.json_value import JsonObject
from zllm_ref.canonical.message import CustomToolCall, ToolCall
from zllm_ref.canonical.request import CustomTool, FunctionTool, Tool

CUSTOM_PARAMETER = "input"
"""A free-form tool is shown as a function with this one string."""

_NO_PARAMETERS = JsonObject((("type", "object"), ("properties", JsonObject())))


def wire_name(tool: Tool | ToolCall | CustomToolCall) -> str:
    """`namespace.name`, or the name alone. API names hold no dot, so the pair can be read back."""
    return f"{tool.namespace}.{tool.name}" if tool.namespace else tool.name


def wire_parameters(tool: Tool) -> JsonObject:
    """The JSON Schema of the tool's arguments."""
    if isinstance(tool, CustomTool):
        described: list[tuple[str, str]] = [("type", "string")]
        if tool.grammar is not None:
            syntax, definition = tool.grammar
            described.append(("description", f"Text that follows this {syntax} grammar:\n{definition}"))
        properties = JsonObject(((CUSTOM_PARAMETER, JsonObject(tuple(described))),))
        return JsonObject((("type", "object"), ("properties", properties), ("required", (CUSTOM_PARAMETER,))))
    return tool.parameters if tool.parameters is not None else _NO_PARAMETERS


def wire_tool(tool: Tool) -> JsonObject:
    """`{"type": "function", "function": {…}}`, the shape on which models were trained, with the keys in that order."""
    pairs: list[tuple[str, JsonObject | str]] = [("name", wire_name(tool))]
    if tool.description is not None:
        pairs.append(("description", tool.description))
    pairs.append(("parameters", wire_parameters(tool)))
    return JsonObject((("type", "function"), ("function", JsonObject(tuple(pairs)))))


def wire_arguments(call: ToolCall | CustomToolCall) -> JsonObject:
    if isinstance(call, CustomToolCall):
        return JsonObject(((CUSTOM_PARAMETER, call.input),))
    return call.arguments


def shown_tools(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """The tools that stand at the front of the prompt: deferred ones do not (their arrival must not move the prefix)."""
    return tuple(tool for tool in tools if not (isinstance(tool, FunctionTool) and tool.deferred))
