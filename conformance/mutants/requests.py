"""Reads the three protocols' requests for the small right server, and refuses what it must."""

from __future__ import annotations

import json
from typing import Any

from conformance.mutants.brain import BadRequestError, Request, told_call

_HOSTED = frozenset({"web_search", "local_shell"})


def read_request(protocol: str, body: Any, model: str) -> Request:
    """The request. Raises BadRequestError with status, param and code."""
    if not isinstance(body, dict):
        raise BadRequestError(400, "the body is no object", None)
    if "model" not in body:
        raise BadRequestError(400, "model is missing", "model", "missing_required_parameter")
    if body["model"] != model:
        raise BadRequestError(404, f"no model {body['model']!r}", "model", "model_not_found")
    temperature = body.get("temperature", 1)
    if not isinstance(temperature, (int, float)):
        raise BadRequestError(400, "temperature is a number", "temperature")
    return {"chat": _chat, "responses": _responses, "messages": _messages}[protocol](body)


def _chat(body: dict[str, Any]) -> Request:
    request = Request("chat", turns=[turn for message in _list(body, "messages") for turn in _chat_turn(message)])
    request.max_tokens = _limit(body, "max_tokens")
    for tool in body.get("tools") or ():
        function = tool["function"]
        request.tools.append({"type": "function", "name": function["name"], "schema": function.get("parameters")})
    choice = body.get("tool_choice", "auto")
    request.tool_choice = choice if isinstance(choice, str) else choice["function"]["name"]
    request.is_parallel = body.get("parallel_tool_calls", True)
    stop = body.get("stop") or []
    request.stops = [stop] if isinstance(stop, str) else stop
    request.num_choices = body.get("n") or 1
    request.logprobs = body.get("logprobs") is True
    request.thinks = body.get("reasoning_effort") not in (None, "none")
    if (body.get("response_format") or {}).get("type") == "json_schema":
        request.schema = body["response_format"]["json_schema"]["schema"]
    return request


def _chat_turn(message: Any) -> list[tuple[str, str]]:
    role = message["role"]
    turns = [(role, _text(message.get("content")))]
    if role == "assistant":
        told = "".join(
            told_call(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or ()
        )
        turns = [(role, turns[0][1] + told)]
    return turns


def _responses(body: dict[str, Any]) -> Request:
    request = Request("responses")
    if body.get("instructions"):
        request.turns.append(("system", body["instructions"]))
    items = body.get("input")
    if isinstance(items, str):
        items = [{"type": "message", "role": "user", "content": items}]
    if not isinstance(items, list):
        raise BadRequestError(
            400, "input is a string or a list", "input", "invalid_value" if "input" in body else "missing_required_parameter"
        )
    request.max_tokens = _limit(body, "max_output_tokens")
    tools = list(body.get("tools") or ())
    for item in items:
        _add_item(request, tools, item)
    for tool in tools:
        _add_tool(request, tool)
    choice = body.get("tool_choice", "auto")
    request.tool_choice = choice if isinstance(choice, str) else choice["name"]
    request.is_parallel = body.get("parallel_tool_calls", True)
    request.thinks = (body.get("reasoning") or {}).get("effort") not in (None, "none")
    if ((body.get("text") or {}).get("format") or {}).get("type") == "json_schema":
        request.schema = body["text"]["format"]["schema"]
    return request


def _add_item(request: Request, tools: list[Any], item: dict[str, Any]) -> None:
    kind = item.get("type", "message")
    if kind == "message" or ("role" in item and kind != "additional_tools"):
        request.turns.append((item["role"], _text(item["content"])))
    elif kind in ("function_call", "custom_tool_call"):
        _append(request, told_call(item["name"], item.get("arguments", item.get("input", ""))))
    elif kind in ("function_call_output", "custom_tool_call_output"):
        request.turns.append(("tool", _text(item["output"])))
    elif kind == "additional_tools":
        tools += item["tools"]


def _append(request: Request, told: str) -> None:
    """Calls of one answer stand in one turn."""
    if request.turns and request.turns[-1][0] == "assistant":
        request.turns[-1] = ("assistant", request.turns[-1][1] + told)
    else:
        request.turns.append(("assistant", told))


def _add_tool(request: Request, tool: dict[str, Any]) -> None:
    kind = tool["type"]
    if kind in ("function", "custom"):
        request.tools.append({"type": kind, "name": tool["name"], "schema": tool.get("parameters")})
    elif kind == "namespace":
        for inner in tool["tools"]:
            request.tools.append(
                {"type": "function", "name": inner["name"], "schema": inner["parameters"], "namespace": tool["name"]}
            )
    elif kind not in _HOSTED:
        raise BadRequestError(400, f"tool type {kind!r} is not known", "tools[0].type")


def _messages(body: dict[str, Any]) -> Request:
    request = Request("messages")
    system = body.get("system")
    blocks = [{"text": system}] if isinstance(system, str) else system or []
    kept = [block["text"] for block in blocks if not block["text"].startswith("x-anthropic-billing-header")]
    if kept:
        request.turns.append(("system", "".join(kept)))
    for message in _list(body, "messages"):
        _add_message(request, message)
    if "max_tokens" not in body:
        raise BadRequestError(400, "max_tokens is missing", "max_tokens")
    request.max_tokens = _limit(body, "max_tokens")
    for tool in body.get("tools") or ():
        request.tools.append({"type": "function", "name": tool["name"], "schema": tool["input_schema"]})
    choice = body.get("tool_choice") or {"type": "auto"}
    request.tool_choice = {"any": "required", "tool": choice.get("name")}.get(choice["type"], choice["type"]) or "auto"
    request.is_parallel = not choice.get("disable_parallel_tool_use", False)
    request.stops = body.get("stop_sequences") or []
    thinking = body.get("thinking") or {"type": "disabled"}
    if thinking["type"] == "enabled":
        if not 1024 <= thinking["budget_tokens"] < body["max_tokens"]:
            raise BadRequestError(400, "thinking.budget_tokens is between 1024 and max_tokens", "thinking.budget_tokens")
        request.thinks = True
    if ((body.get("output_config") or {}).get("format") or {}).get("type") == "json_schema":
        request.schema = body["output_config"]["format"]["schema"]
    return request


def _add_message(request: Request, message: dict[str, Any]) -> None:
    content = message["content"]
    if isinstance(content, str):
        request.turns.append((message["role"], content))
        return
    for block in content:
        if block["type"] == "text":
            request.turns.append((message["role"], block["text"]))
        elif block["type"] == "tool_use":
            _append(request, told_call(block["name"], json.dumps(block["input"])))
        elif block["type"] == "tool_result":
            request.turns.append(("tool", _text(block.get("content", ""))))


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def _list(body: dict[str, Any], name: str) -> list[Any]:
    value = body.get(name)
    if not isinstance(value, list) or not value:
        raise BadRequestError(
            400, f"{name} is a list of messages", name, "invalid_value" if name in body else "missing_required_parameter"
        )
    return value


def _limit(body: dict[str, Any], name: str) -> int:
    value = body.get(name, 4096)
    if not isinstance(value, int) or value < 1:
        raise BadRequestError(400, f"{name} is a positive whole number", name)
    return value
