"""The same words are the same messages, whichever protocol and shape they came in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.protocols.wires import SEAL, chat, context, messages, responses
from zllm_ref.canonical.error import ApiError
from zllm_ref.canonical.json_value import JsonNumber
from zllm_ref.canonical.message import CustomToolCall, Message, Reasoning, Role, Text, ToolCall, ToolResult
from zllm_ref.canonical.request import (
    CustomTool,
    FunctionTool,
    JsonSchemaFormat,
    Request,
    ToolChoiceAuto,
    ToolChoiceNamed,
    ToolChoiceNone,
    ToolChoiceRequired,
)
from zllm_ref.protocols import anthropic_messages
from zllm_ref.protocols.body import read_body
from zllm_ref.protocols.context import Profile
from zllm_ref.protocols.openai_responses import History

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ARGUMENTS = '{"city":"Rome","days":1e2}'


def test_a_turn_with_reasoning_text_calls_and_results_is_one_conversation_in_three_protocols() -> None:
    first = chat(
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant",
                "content": "Looking.",
                "reasoning_content": "Rome it is.",
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}},
                    {"id": "call_2", "type": "function", "function": {"name": "clock", "arguments": ""}},
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
            {
                "role": "tool",
                "tool_call_id": "call_2",
                "content": [{"type": "text", "text": "no"}, {"type": "text", "text": "on"}],
            },
            {"role": "user", "content": "Thanks"},
        ]
    )
    second = responses(
        instructions="Be brief.",
        input=[
            {"role": "user", "content": "Weather?"},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": SEAL.seal("Rome it is.")},
            {"type": "message", "role": "assistant", "id": "msg_1", "content": [{"type": "output_text", "text": "Looking."}]},
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "weather", "arguments": ARGUMENTS},
            {"type": "function_call", "call_id": "call_2", "name": "clock", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
            {"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "noon"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Thanks"}]},
        ],
    )
    thinking = {"type": "thinking", "thinking": "Rome it is.", "signature": SEAL.sign("Rome it is.")}
    city = {"city": "Rome", "days": 1e2}
    third = messages(
        system=[{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}],
        messages=[
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant",
                "content": [
                    thinking,
                    {"type": "text", "text": "Looking."},
                    {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": city},
                    {"type": "tool_use", "id": "toolu_2", "name": "clock", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"},
                    {"type": "tool_result", "tool_use_id": "toolu_2", "content": [{"type": "text", "text": "noon"}]},
                    {"type": "text", "text": "Thanks"},
                ],
            },
        ],
    )

    expected = first.request.messages
    assert [message.role for message in expected] == [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL, Role.TOOL, Role.USER]
    assert expected[3].parts == (ToolResult("call_1", "sunny", False, "weather"),)
    call = expected[2].tool_calls[0]
    assert isinstance(call, ToolCall)
    assert call.arguments.get("days") == JsonNumber("1e2")
    assert second.request.messages == expected
    assert [_plain(message) for message in third.request.messages] == [_plain(message) for message in expected]


def _plain(message: Message) -> Message:
    """Without signatures, and with numbers as Python writes them: the JSON library of this test rewrote `1e2`."""
    parts = tuple(Reasoning(part.text) if isinstance(part, Reasoning) else part for part in message.parts)
    return Message(message.role, tuple(part for part in parts if not (isinstance(part, ToolCall) and part.name == "weather")))


@pytest.mark.parametrize(
    ("listed", "plain"),
    [
        ([{"type": "text", "text": "a"}, {"type": "text", "text": ""}, {"type": "text", "text": "b"}], "ab"),
        ([{"type": "text", "text": "", "cache_control": {"type": "ephemeral"}}], ""),
    ],
)
def test_a_list_of_blocks_and_its_string_are_the_same_message(listed: list[dict[str, Any]], plain: str) -> None:
    first = messages(system="s", messages=[{"role": "user", "content": listed}, {"role": "system", "content": listed}])
    second = messages(system="s", messages=[{"role": "user", "content": plain}, {"role": "system", "content": plain}])

    assert first.request.messages == second.request.messages


def test_the_billing_line_is_no_part_of_the_prompt() -> None:
    billing = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.332.0b8; cc_entrypoint=sdk-cli;"}
    prompt = {"type": "text", "text": "You help.", "cache_control": {"type": "ephemeral"}}

    with_line = messages(system=[billing, prompt], messages=[{"role": "user", "content": "x"}])

    assert with_line.request.messages[0] == Message(Role.SYSTEM, (Text("You help."),))


def test_a_switch_keeps_the_billing_line() -> None:
    text = "x-anthropic-billing-header: cc_version=1;"
    body = {"model": "fake", "max_tokens": 9, "system": text, "messages": [{"role": "user", "content": "x"}]}

    kept = anthropic_messages.parse_request(read_body(json.dumps(body).encode()), context(strip_billing_line=False))

    assert kept.request.messages[0] == Message(Role.SYSTEM, (Text(text),))


def test_a_deferred_tool_is_shown_where_it_was_found() -> None:
    tools = [
        {"name": "search", "input_schema": {"type": "object"}},
        {"name": "fetch", "description": "Gets", "input_schema": SCHEMA, "defer_loading": True},
        {"name": "placeholder", "defer_loading": True},
    ]
    reference = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "tool_reference", "tool_name": "fetch"}]}
    use = {"type": "tool_use", "id": "t", "name": "search", "input": {}}

    request = messages(
        tools=tools, messages=[{"role": "assistant", "content": [use]}, {"role": "user", "content": [reference]}]
    ).request

    shown = request.messages[1].tool_results[0].text
    assert [tool.deferred for tool in request.tools if isinstance(tool, FunctionTool)] == [False, True, True]
    assert shown.startswith('{"name": "fetch", "description": "Gets", "parameters": {"type": "object"')


def test_codex_tools_keep_their_namespace_and_hosted_ones_are_named_as_skipped() -> None:
    tools = [
        {"type": "function", "name": "shell", "parameters": SCHEMA, "strict": False},
        {"type": "namespace", "name": "agents", "description": "x", "tools": [{"type": "function", "name": "spawn"}]},
        {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"}},
        {"type": "web_search", "external_web_access": True},
    ]
    extra = {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "exec"}]}

    call = responses(Profile.CODEX, tools=tools, input=[extra, {"role": "user", "content": "x"}], client_metadata={"a": "b"})

    names = [(tool.namespace, tool.name) for tool in call.request.tools]
    assert names == [(None, "shell"), ("agents", "spawn"), (None, "apply_patch"), (None, "exec")]
    patch = call.request.tools[2]
    assert isinstance(patch, CustomTool)
    assert patch.grammar == ("lark", "start: X")
    assert call.ignored_fields == ("tools[3] (web_search)",)
    with pytest.raises(ApiError, match="web_search"):
        responses(Profile.OPENAI, tools=tools, input="x")


def test_custom_calls_and_their_outputs_come_back_as_text() -> None:
    request = responses(
        input=[
            {"type": "custom_tool_call", "call_id": "c", "name": "exec", "input": "1 +\n1", "namespace": "n"},
            {"type": "custom_tool_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "2"}]},
        ]
    ).request

    assert request.messages[0].parts == (CustomToolCall("c", "exec", "1 +\n1", "n"),)
    assert request.messages[1].parts == (ToolResult("c", "2", False, "exec"),)


CHOICES = [
    ({"tool_choice": "none"}, {"tool_choice": "none"}, {"tool_choice": {"type": "none"}}, ToolChoiceNone()),
    ({}, {}, {}, ToolChoiceAuto()),
    ({"tool_choice": "required"}, {"tool_choice": "required"}, {"tool_choice": {"type": "any"}}, ToolChoiceRequired()),
    (
        {"tool_choice": {"type": "function", "function": {"name": "weather"}}},
        {"tool_choice": {"type": "function", "name": "weather"}},
        {"tool_choice": {"type": "tool", "name": "weather"}},
        ToolChoiceNamed("weather"),
    ),
]


@pytest.mark.parametrize(("first", "second", "third", "choice"), CHOICES)
def test_tool_choices_mean_the_same_in_three_protocols(
    first: dict[str, Any], second: dict[str, Any], third: dict[str, Any], choice: object
) -> None:
    user = [{"role": "user", "content": "x"}]
    function = {"name": "weather", "description": "d", "parameters": SCHEMA}

    asked: list[Request] = [
        chat(messages=user, tools=[{"type": "function", "function": function}], parallel_tool_calls=False, **first).request,
        responses(input=user, tools=[{"type": "function", **function}], parallel_tool_calls=False, **second).request,
    ]
    tool = {"name": "weather", "description": "d", "input_schema": SCHEMA}
    if third:
        third["tool_choice"]["disable_parallel_tool_use"] = True
    asked.append(messages(messages=user, tools=[tool], **third).request)

    assert [request.tool_choice for request in asked] == [choice] * 3
    assert asked[0].tools == asked[1].tools == asked[2].tools
    assert [request.parallel_tool_calls for request in asked[:2]] == [False, False]
    assert asked[2].parallel_tool_calls == (not third)


def test_allowed_tools_narrow_the_choice() -> None:
    tools = [{"type": "function", "name": name} for name in "ab"]
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "b"}]}

    choice = responses(input="x", tools=tools, tool_choice=allowed).request.tool_choice

    assert choice == ToolChoiceRequired(("b",))


def test_formats_are_carried_with_their_schema() -> None:
    user = [{"role": "user", "content": "x"}]
    form = {"name": "n", "schema": SCHEMA, "strict": True}

    first = chat(messages=user, response_format={"type": "json_schema", "json_schema": form}).request.response_format
    second = responses(input="x", text={"format": {"type": "json_schema", **form}}).request.response_format
    third = messages(messages=user, output_config={"format": {"type": "json_schema", "schema": SCHEMA}}).request.response_format

    assert first == second
    assert isinstance(first, JsonSchemaFormat)
    assert isinstance(third, JsonSchemaFormat)
    assert first.schema == third.schema


def test_thinking_comes_back_only_as_it_was_signed() -> None:
    def turn(text: str, signature: str) -> Request:
        block = {"type": "thinking", "thinking": text, "signature": signature}
        return messages(messages=[{"role": "assistant", "content": [block]}, {"role": "user", "content": "x"}]).request

    assert turn("abc", SEAL.sign("abc")).messages[0].reasoning == "abc"
    assert turn("", SEAL.seal("hidden")).messages[0].reasoning == "hidden"
    assert turn("abc", "").messages[0].reasoning == "abc"
    with pytest.raises(ApiError, match="signature"):
        turn("abd", SEAL.sign("abc"))


def test_earlier_items_come_before_new_ones_and_may_be_referred_to() -> None:
    old = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "one"}]}
    first = responses(input=[{"role": "user", "content": "say one"}, old])
    known = first.input_items[1]
    history = History(first.input_items, {"msg_1": known})  # type: ignore[dict-item]

    continued = responses(history=history, input="say two", instructions="new").request
    referred = responses(history=History((), {"msg_1": known}), input=[{"type": "item_reference", "id": "msg_1"}]).request  # type: ignore[dict-item]

    assert [message.text for message in continued.messages] == ["new", "say one", "one", "say two"]
    assert [message.text for message in referred.messages] == ["one"]
