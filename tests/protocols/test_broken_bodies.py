"""Rich requests with something wrong in any place: read, or refused with a path; never anything else."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocols.wires import SEAL, context
from zllm_ref.canonical.error import ApiError
from zllm_ref.protocols import anthropic_messages, openai_chat, openai_responses
from zllm_ref.protocols.body import read_body
from zllm_ref.protocols.context import Profile

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
BODIES: dict[str, dict[str, Any]] = {
    "chat": {
        "model": "fake",
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "s"}]},
            {"role": "user", "content": "u", "name": "n"},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "r",
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "t"}]},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True}}],
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]},
        },
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}},
        "stream": True,
        "stream_options": {"include_usage": True},
        "logit_bias": {"5": 1.5},
        "stop": ["x"],
        "reasoning": {"effort": "low"},
        "n": 2,
    },
    "responses": {
        "model": "fake",
        "instructions": "i",
        "input": [
            {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "g"}]},
            {"role": "user", "content": [{"type": "input_text", "text": "u"}]},
            {
                "type": "reasoning",
                "id": "rs",
                "summary": [{"type": "summary_text", "text": "r"}],
                "encrypted_content": SEAL.seal("r"),
            },
            {"type": "message", "role": "assistant", "phase": "commentary", "content": [{"type": "output_text", "text": "a"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "namespace": "n"},
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "t"}]},
            {"type": "custom_tool_call", "call_id": "d", "name": "g", "input": "x"},
            {"type": "custom_tool_call_output", "call_id": "d", "output": "y"},
            {"type": "compaction", "encrypted_content": SEAL.seal("summary")},
        ],
        "tools": [
            {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}]},
            {"type": "custom", "name": "h", "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"}},
        ],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}, "verbosity": "low"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
        "metadata": {"a": "b"},
        "truncation": "auto",
    },
    "messages": {
        "model": "fake",
        "max_tokens": 4096,
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "u"}]},
            {"role": "system", "content": "m"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "r", "signature": SEAL.sign("r")},
                    {"type": "redacted_thinking", "data": SEAL.seal("q")},
                    {"type": "text", "text": "a"},
                    {"type": "tool_use", "id": "toolu_c", "name": "f", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_c",
                        "is_error": True,
                        "content": [{"type": "tool_reference", "tool_name": "f"}, {"type": "text", "text": "t"}],
                    }
                ],
            },
        ],
        "tools": [{"name": "f", "description": "d", "input_schema": SCHEMA, "defer_loading": True}],
        "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 2048, "display": "omitted"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
        "stop_sequences": ["x"],
    },
}
PARSERS: dict[str, Callable[..., Any]] = {
    "chat": openai_chat.parse_request,
    "responses": openai_responses.parse_request,
    "messages": anthropic_messages.parse_request,
}
WRONG: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    10**30,
    "",
    "x",
    "\u2028",
    [],
    {},
    [None],
    [{}],
    {"type": "x"},
    {"type": "text", "text": 5},
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in inner:
        yield (*path, name)
        yield from places(item, (*path, name))


@pytest.mark.parametrize("name", BODIES)
def test_the_unbroken_body_is_read(name: str) -> None:
    assert PARSERS[name](read_body(json.dumps(BODIES[name]).encode()), context()).request.messages


@pytest.mark.parametrize("name", BODIES)
@given(data=st.data())
def test_a_body_broken_anywhere_is_read_or_refused(name: str, data: st.DataObject) -> None:
    body = copy.deepcopy(BODIES[name])
    *way, last = data.draw(st.sampled_from(sorted(places(body), key=str)))
    holder: Any = body
    for step in way:
        holder = holder[step]
    if data.draw(st.booleans()):
        holder[last] = data.draw(st.sampled_from(WRONG))
    else:
        del holder[last]

    profile = data.draw(st.sampled_from(Profile))
    refusal: ApiError | None = None
    try:
        PARSERS[name](read_body(json.dumps(body).encode()), context(profile))
    except ApiError as error:
        refusal = error

    assert refusal is None or (refusal.message and refusal.param)
