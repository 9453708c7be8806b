"""One request, told in each protocol: what a scenario asks is written once."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from conformance.checker.answer import Answer, ToolCall

WEATHER: Final[dict[str, Any]] = {
    "name": "get_weather",
    "description": "Tells the weather of a city.",
    "schema": {
        "type": "object",
        "properties": {"location": {"type": "string"}},
        "required": ["location"],
        "additionalProperties": False,
    },
}
TIME: Final[dict[str, Any]] = {
    "name": "get_time",
    "description": "Tells the time in a city.",
    "schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False},
}
PING: Final[dict[str, Any]] = {
    "name": "ping",
    "description": "Checks the line. Takes no arguments.",
    "schema": {"type": "object", "properties": {}, "additionalProperties": False},
}


@dataclass(frozen=True, slots=True)
class User:
    text: str
    as_parts: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """An earlier answer of the target, fed back as it came."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class Result:
    """A tool's output; `as_parts` sends it as a list."""

    call: ToolCall
    text: str
    as_parts: bool = False
    is_error: bool = False


@dataclass(frozen=True)
class Ask:
    """`tool_choice`: None, auto, none, required, or a tool's name."""

    turns: tuple[User | Said | Result, ...]
    system: str | None = None
    system_as_parts: bool = False
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: str | None = None
    is_parallel: bool | None = None
    max_tokens: int | None = 64
    stop: tuple[str, ...] = ()
    schema: dict[str, Any] | None = None
    thinks: bool = False
    extra: dict[str, Any] = field(default_factory=dict)

    def body(self, protocol: str, model: str, stream: bool) -> dict[str, Any]:
        """The JSON body of the protocol."""
        maker = {"chat": _chat, "responses": _responses, "messages": _messages}[protocol]
        body = {"model": model, **maker(self), "stream": stream, **self.extra}
        if protocol == "chat" and stream:
            body["stream_options"] = {"include_usage": True}
        return {key: value for key, value in body.items() if value is not OMIT}


OMIT: Final = object()


def ask(text: str, **more: Any) -> Ask:
    """A single user turn."""
    return Ask((User(text),), **more)


def _chat(asked: Ask) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    if asked.system is not None:
        content: Any = [{"type": "text", "text": asked.system}] if asked.system_as_parts else asked.system
        messages.append({"role": "system", "content": content})
    for turn in asked.turns:
        if isinstance(turn, User):
            messages.append({"role": "user", "content": [{"type": "text", "text": turn.text}] if turn.as_parts else turn.text})
        elif isinstance(turn, Said):
            messages.append(_chat_message(turn.answer))
        else:
            content = [{"type": "text", "text": turn.text}] if turn.as_parts else turn.text
            messages.append({"role": "tool", "tool_call_id": turn.call.id, "content": content})
    body: dict[str, Any] = {"messages": messages, "temperature": 0}
    if asked.max_tokens is not None:
        body["max_tokens"] = asked.max_tokens
    if asked.stop:
        body["stop"] = list(asked.stop)
    if asked.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": one["name"], "description": one["description"], "parameters": one["schema"]},
            }
            for one in asked.tools
        ]
    if asked.tool_choice is not None:
        is_word = asked.tool_choice in ("auto", "none", "required")
        body["tool_choice"] = asked.tool_choice if is_word else {"type": "function", "function": {"name": asked.tool_choice}}
    if asked.is_parallel is not None:
        body["parallel_tool_calls"] = asked.is_parallel
    if asked.schema is not None:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "answer", "strict": True, "schema": asked.schema},
        }
    if asked.thinks:
        body["reasoning_effort"] = "low"
        body.pop("temperature")
    return body


def _chat_message(answer: Answer) -> dict[str, Any]:
    choices = answer.raw.get("choices") or [{}]
    message = choices[0].get("message") or {}
    kept = {"role": "assistant", "content": message.get("content")}
    for name in ("tool_calls", "reasoning_content"):
        if message.get(name):
            kept[name] = message[name]
    return kept


def _responses(asked: Ask) -> dict[str, Any]:
    items: list[Any] = []
    for turn in asked.turns:
        if isinstance(turn, User):
            content: Any = [{"type": "input_text", "text": turn.text}] if turn.as_parts else turn.text
            items.append({"type": "message", "role": "user", "content": content})
        elif isinstance(turn, Said):
            items += turn.answer.raw.get("output") or []
        else:
            kind = "custom_tool_call_output" if turn.call.kind == "custom_tool_call" else "function_call_output"
            output: Any = [{"type": "input_text", "text": turn.text}] if turn.as_parts else turn.text
            items.append({"type": kind, "call_id": turn.call.id, "output": output})
    body: dict[str, Any] = {"input": items, "temperature": 0, "store": False}
    if asked.system is not None:
        body["instructions"] = asked.system
    if asked.max_tokens is not None:
        body["max_output_tokens"] = max(16, asked.max_tokens)
    if asked.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": one["name"],
                "description": one["description"],
                "parameters": one["schema"],
                "strict": False,
            }
            for one in asked.tools
        ]
    if asked.tool_choice is not None:
        is_word = asked.tool_choice in ("auto", "none", "required")
        body["tool_choice"] = asked.tool_choice if is_word else {"type": "function", "name": asked.tool_choice}
    if asked.is_parallel is not None:
        body["parallel_tool_calls"] = asked.is_parallel
    if asked.schema is not None:
        body["text"] = {"format": {"type": "json_schema", "name": "answer", "strict": True, "schema": asked.schema}}
    if asked.thinks:
        body["reasoning"] = {"effort": "low"}
        body.pop("temperature")
    return body


def _messages(asked: Ask) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for turn in asked.turns:
        if isinstance(turn, User):
            _add(messages, "user", [{"type": "text", "text": turn.text}] if turn.as_parts else turn.text)
        elif isinstance(turn, Said):
            _add(messages, "assistant", turn.answer.raw.get("content") or [])
        else:
            block: dict[str, Any] = {"type": "tool_result", "tool_use_id": turn.call.id}
            block["content"] = [{"type": "text", "text": turn.text}] if turn.as_parts else turn.text
            if turn.is_error:
                block["is_error"] = True
            _add(messages, "user", [block])
    body: dict[str, Any] = {"messages": messages, "max_tokens": asked.max_tokens or 256, "temperature": 0}
    if asked.system is not None:
        block = {"type": "text", "text": asked.system, "cache_control": {"type": "ephemeral"}}
        body["system"] = [block] if asked.system_as_parts else asked.system
    if asked.stop:
        body["stop_sequences"] = list(asked.stop)
    if asked.tools:
        body["tools"] = [
            {"name": one["name"], "description": one["description"], "input_schema": one["schema"]} for one in asked.tools
        ]
    if asked.tool_choice is not None or asked.is_parallel is not None:
        word = asked.tool_choice or "auto"
        choice: dict[str, Any] = (
            {"type": {"required": "any"}.get(word, word)}
            if word in ("auto", "none", "required")
            else {"type": "tool", "name": word}
        )
        if asked.is_parallel is not None:
            choice["disable_parallel_tool_use"] = not asked.is_parallel
        body["tool_choice"] = choice
    if asked.schema is not None:
        body["output_config"] = {"format": {"type": "json_schema", "schema": asked.schema}}
    if asked.thinks:
        body["thinking"] = {"type": "enabled", "budget_tokens": 1024}
        body["max_tokens"] = max(2048, body["max_tokens"])
        body.pop("temperature")
    return body


def _add(messages: list[dict[str, Any]], role: str, content: Any) -> None:
    """Consecutive tool results go into one user message, as the protocol wants them."""
    if messages and messages[-1]["role"] == role and isinstance(messages[-1]["content"], list) and isinstance(content, list):
        messages[-1]["content"] = [*messages[-1]["content"], *content]
    else:
        messages.append({"role": role, "content": content})


def as_key(value: object) -> str:
    """A value as text, for comparisons that ignore the order of keys."""
    return json.dumps(value, sort_keys=True)
