"""What agents and SDKs send, turn by turn: every field is accepted, and the second turn begins with the first, word for word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.protocols.wires import SEAL, chat, messages, responses
from zllm_ref.canonical.message import Role
from zllm_ref.canonical.request import FunctionTool, Request
from zllm_ref.protocols.context import Profile

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "command": {"type": "string", "minLength": 1, "pattern": "^.+$"},
        "timeout": {"anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"const": "none"}], "default": "none"},
    },
    "required": ["command"],
    "additionalProperties": False,
}
EPHEMERAL = {"type": "ephemeral"}
THOUGHT = "I should list the files."


def claude_code(*, second: bool) -> Request:
    """Blocks become strings, the breakpoint moves, and the billing line changes: none of it is the conversation."""
    said: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "List the files.", "cache_control": EPHEMERAL}]},
        {"role": "system", "content": [{"type": "text", "text": "Directory: /tmp", "cache_control": EPHEMERAL}]},
    ]
    if second:
        said = [
            {"role": "user", "content": "List the files."},
            {"role": "system", "content": "Directory: /tmp"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": THOUGHT, "signature": SEAL.sign(THOUGHT)},
                    {
                        "type": "tool_use",
                        "id": "toolu_01",
                        "name": "Bash",
                        "input": {"command": "ls"},
                        "caller": {"type": "direct"},
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_01",
                        "content": "a.txt",
                        "is_error": False,
                        "cache_control": EPHEMERAL,
                    }
                ],
            },
        ]
    return messages(
        max_tokens=32_000,
        stream=True,
        system=[
            {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.{'b1' if second else 'a0'};"},
            {"type": "text", "text": "You are an agent.", "cache_control": EPHEMERAL},
            {"type": "text", "text": "Be careful.", "cache_control": EPHEMERAL},
        ],
        messages=said,
        tools=[
            {"name": "Bash", "description": "Runs a command", "input_schema": SCHEMA, "eager_input_streaming": True},
            {"name": "DeferredToolPlaceholder", "description": "x", "defer_loading": True},
        ],
        metadata={"user_id": '{"device_id":"d","account_uuid":"","session_id":"s"}'},
        thinking={"type": "adaptive", "display": "summarized"},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        output_config={"effort": "high"},
    ).request


def codex(*, second: bool, sealed: bool = True) -> Request:
    items: list[dict[str, Any]] = [
        {"type": "message", "id": "m0", "role": "developer", "content": [{"type": "input_text", "text": "You are an agent."}]},
        {"type": "message", "id": "m1", "role": "user", "content": [{"type": "input_text", "text": "List the files."}]},
    ]
    if second:
        shown: dict[str, Any] = {"content": [{"type": "reasoning_text", "text": THOUGHT}], "encrypted_content": None}
        items += [
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [],
                **({"encrypted_content": SEAL.seal(THOUGHT)} if sealed else shown),
            },
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "call_1",
                "name": "shell",
                "arguments": '{"command":"ls"}',
                "namespace": "functions",
            },
            {"type": "function_call_output", "id": "fo_1", "call_id": "call_1", "output": "a.txt"},
        ]
    return responses(
        Profile.CODEX,
        input=items,
        stream=True,
        store=False,
        tool_choice="auto",
        parallel_tool_calls=True,
        reasoning={"summary": "auto", "effort": "medium", "context": "all_turns"},
        include=["reasoning.encrypted_content"],
        text={"verbosity": "low"},
        prompt_cache_key="thread-1",
        client_metadata={"turn": "2" if second else "1"},
        tools=[
            {"type": "namespace", "name": "functions", "description": "x", "tools": [_function("shell")]},
            {"type": "custom", "name": "apply_patch", "description": "x", "format": _lark()},
            {"type": "tool_search", "execution": "client"},
            {"type": "web_search", "external_web_access": True},
        ],
    ).request


def codex_lite(*, second: bool) -> Request:
    """Tools travel as the first item, the main one is free-form, and its output is a list."""
    items: list[dict[str, Any]] = [
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "exec", "format": _lark()}]},
        {"type": "message", "role": "developer", "content": "You are an agent."},
        {"type": "message", "role": "user", "content": "List the files."},
    ]
    if second:
        items += [
            {"type": "custom_tool_call", "id": "c1", "call_id": "call_1", "name": "exec", "input": "ls()", "status": "completed"},
            {"type": "custom_tool_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "a.txt"}]},
        ]
    return responses(Profile.CODEX, input=items, store=False, parallel_tool_calls=False, stream=True).request


def chat_client(arguments: str, **echo: Any) -> Callable[..., Request]:
    """Chat clients differ in how they write arguments again, and in what they echo beside them."""

    def ask(*, second: bool) -> Request:
        said: list[dict[str, Any]] = [
            {"role": "system", "content": "You are an agent."},
            {"role": "user", "content": "List the files."},
        ]
        if second:
            call = {"id": "call_1", "type": "function", "function": {"name": "shell", "arguments": arguments}}
            said += [
                {"role": "assistant", "content": None, "tool_calls": [call], **echo},
                {"role": "tool", "tool_call_id": "call_1", "content": "a.txt"},
            ]
        function = {name: value for name, value in _function("shell").items() if name != "type"}
        return chat(
            messages=said,
            stream=True,
            stream_options={"include_usage": True},
            max_tokens=8192,
            tool_choice="auto",
            tools=[{"type": "function", "function": function}],
        ).request

    return ask


def responses_sdk(*, second: bool) -> Request:
    items: list[dict[str, Any]] = [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": "List the files."},
    ]
    if second:
        call = {
            "type": "function_call",
            "call_id": "call_1",
            "name": "shell",
            "arguments": '{"command":"ls"}',
            "status": "completed",
        }
        items += [
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": THOUGHT}]},
            call,
            {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "a.txt"}]},
        ]
    return responses(input=items, tools=[_function("shell")], max_output_tokens=8192, prompt_cache_key="s", store=False).request


def messages_sdk(*, second: bool) -> Request:
    said: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "List the files."}]}]
    if second:
        use = {"type": "tool_use", "id": "toolu_1", "name": "shell", "input": {"command": "ls"}}
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "a.txt"}]}
        said += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    tool = {"name": "shell", "description": "Runs a command", "input_schema": SCHEMA, "eager_input_streaming": True}
    system = [{"type": "text", "text": "You are an agent.", "cache_control": EPHEMERAL}]
    return messages(system=system, messages=said, tools=[tool], stream=True, temperature=1, betas=["x"]).request


def _function(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name, "description": "Runs a command", "parameters": SCHEMA, "strict": False}


def _lark() -> dict[str, str]:
    return {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}


NULLS = {"refusal": None, "annotations": None, "audio": None, "function_call": None, "parsed": None}
ASKERS: dict[str, Callable[..., Request]] = {
    "claude code": claude_code,
    "codex": codex,
    "codex, raw reasoning": lambda *, second: codex(second=second, sealed=False),
    "codex, tools as an item": codex_lite,
    "ai sdk, compact arguments": chat_client('{"command":"ls"}', reasoning_content=THOUGHT),
    "langchain, spaced arguments": chat_client('{"command": "ls"}'),
    "openai-agents, reasoning": chat_client('{"command":"ls"}', reasoning=THOUGHT, content=""),
    "openai helper, nulls": chat_client('{"command":"ls"}', **NULLS),
    "responses sdk": responses_sdk,
    "messages sdk": messages_sdk,
}


@pytest.mark.parametrize("name", ASKERS)
def test_the_second_turn_begins_with_the_first(name: str) -> None:
    first, second = ASKERS[name](second=False), ASKERS[name](second=True)

    assert second.messages[: len(first.messages)] == first.messages
    assert second.tools == first.tools
    added = second.messages[len(first.messages) :]
    assert [message.role for message in added] == [Role.ASSISTANT, Role.TOOL]
    assert added[1].tool_results[0].text == "a.txt"


def test_the_same_call_is_the_same_message_however_it_was_written_again() -> None:
    calls = [ASKERS[name](second=True).messages[-2].tool_calls for name in ASKERS if "arguments" in name or "helper" in name]

    assert all(call == calls[0] for call in calls)


@pytest.mark.parametrize(
    "name", ["claude code", "codex", "codex, raw reasoning", "ai sdk, compact arguments", "openai-agents, reasoning"]
)
def test_reasoning_comes_back_from_where_each_client_keeps_it(name: str) -> None:
    assert ASKERS[name](second=True).messages[-2].reasoning == THOUGHT


def test_deferred_tools_are_marked_so() -> None:
    tools = claude_code(second=False).tools

    assert [tool.deferred for tool in tools if isinstance(tool, FunctionTool)] == [False, True]
