"""The conversation: what the body says, in the project's own words, and the answer in the same form."""

from __future__ import annotations

from typing import Any

from zllm_ref.canonical.json_value import to_python
from zllm_ref.canonical.message import CustomToolCall, Part, Reasoning, Text, ToolCall, ToolResult
from zllm_ref.canonical.request import (
    FunctionTool,
    JsonObjectFormat,
    JsonSchemaFormat,
    Request,
    Tool,
    ToolChoiceAuto,
    ToolChoiceNamed,
    ToolChoiceNone,
    ToolChoiceRequired,
)
from zllm_ref.inspector.attribution import part_text
from zllm_ref.inspector.axis import Span
from zllm_ref.inspector.view import View

MOST_TEXT = 20_000


def conversation(view: View) -> dict[str, Any]:
    request = view.request
    messages = []
    for index, message in enumerate(view.messages):
        spans = view.part_bytes(index)
        whole = view.message_tokens[index]
        messages.append(
            {
                "index": index,
                "role": message.role.value,
                "parts": [
                    _part(part, None if span is None else view.axis.tokens_of(span), is_replayed=index in view.replayed)
                    for part, span in zip(message.parts, spans, strict=True)
                ],
                "tokens": _span(whole),
            }
        )
    answer = view.answer
    output = {
        "index": len(messages),
        "role": "assistant",
        "parts": [_part(spoken.part, spoken.tokens, is_replayed=False) for spoken in answer.parts],
        "tokens": [view.axis.num_prompt, view.axis.num_tokens],
    }
    return {
        "messages": messages,
        "tools": [_tool(tool, span) for tool, span in zip(request.tools, view.tool_tokens, strict=True)],
        "settings": _settings(request),
        "output": output if view.output_ids else None,
    }


def _part(part: Part, tokens: Span | None, *, is_replayed: bool) -> dict[str, Any]:
    text = part_text(part)
    kind, name, call_id, is_error = "text", None, None, False
    match part:
        case Text():
            pass
        case Reasoning():
            kind = "reasoning"
        case ToolCall():
            kind, name, call_id = "tool_call", part.name, part.id
        case CustomToolCall():
            kind, name, call_id = "custom_tool_call", part.name, part.id
        case ToolResult():
            kind, name, call_id, is_error = "tool_result", part.name, part.call_id, part.is_error
    return {
        "kind": kind,
        "text": text[:MOST_TEXT],
        "cut": max(0, len(text) - MOST_TEXT),
        "name": name,
        "call_id": call_id,
        "is_error": is_error,
        "tokens": _span(tokens),
        "replayed": is_replayed,
    }


def _tool(tool: Tool, tokens: Span | None) -> dict[str, Any]:
    is_function = isinstance(tool, FunctionTool)
    parameters = tool.parameters if isinstance(tool, FunctionTool) else None
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": None if parameters is None else to_python(parameters),
        "kind": "function" if is_function else "custom",
        "tokens": _span(tokens),
    }


def _settings(request: Request) -> dict[str, Any]:
    sampling, reasoning = request.sampling, request.reasoning
    return {
        "tool_choice": _choice(request),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
        "max_tokens": request.max_tokens,
        "reasoning": {
            "enabled": reasoning.enabled,
            "effort": reasoning.effort,
            "budget_tokens": reasoning.budget_tokens,
        },
        "response_format": _format(request),
        "stop": list(request.stop),
        "namespace": request.cache.namespace,
        "cache_salted": request.cache.salt is not None,
    }


def _choice(request: Request) -> str:
    match request.tool_choice:
        case ToolChoiceNone():
            return "none"
        case ToolChoiceRequired():
            return "required"
        case ToolChoiceNamed(name):
            return name
        case ToolChoiceAuto():
            return "auto"


def _format(request: Request) -> str:
    match request.response_format:
        case JsonSchemaFormat():
            return "json_schema"
        case JsonObjectFormat():
            return "json_object"
        case _:
            return "text"


def _span(span: Span | None) -> list[int] | None:
    return None if span is None else list(span)
