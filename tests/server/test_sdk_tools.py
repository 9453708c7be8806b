"""Tools and reasoning through the official SDKs: what they accumulate from a stream is what the unary answer says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.conftest import RunningServer, Serve
from tests.server.fake_engine import FakeEngine, Say
from tests.server.test_sdk_text import anthropic_client, openai_client

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
STORY = (
    Say("reasoning", "They want the weather."),
    Say("text", "Let me look."),
    Say("call", "weather", '{"city": "Paris"}'),
    Say("call", "weather", '{"city": "Rome"}'),
)
CITIES = [{"city": "Paris"}, {"city": "Rome"}]
USER: list[Any] = [{"role": "user", "content": "Weather in Paris and Rome?"}]


@pytest.fixture
def server(serve: Serve) -> RunningServer:
    return serve(FakeEngine(script=STORY))


def test_chat_tools_accumulate_to_the_unary_message(server: RunningServer) -> None:
    client = openai_client(server.url)
    tools: list[Any] = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]

    unary = client.chat.completions.create(model="fake", messages=USER, tools=tools).choices[0]
    with client.chat.completions.stream(model="fake", messages=USER, tools=tools) as stream:
        streamed = stream.get_final_completion().choices[0]
    echoed = unary.message.model_dump()
    results = [{"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in unary.message.tool_calls]
    client.chat.completions.create(model="fake", messages=[*USER, echoed, *results], tools=tools)

    for choice in (unary, streamed):
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content == "Let me look."
        assert choice.message.reasoning_content == "They want the weather."
        assert [json.loads(call.function.arguments) for call in choice.message.tool_calls] == CITIES
        assert len({call.id for call in choice.message.tool_calls}) == 2
    sent = server.engine.requests[-1].messages
    assert [message.role.value for message in sent] == ["user", "assistant", "tool", "tool"]
    assert sent[1].reasoning == "They want the weather."


def test_responses_tools_accumulate_to_the_unary_response(server: RunningServer) -> None:
    client = openai_client(server.url)
    asked: dict[str, Any] = {
        "model": "fake",
        "input": USER,
        "tools": [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}],
        "include": ["reasoning.encrypted_content"],
        "store": False,
    }

    unary = client.responses.create(**asked)
    with client.responses.stream(**asked) as stream:
        streamed = stream.get_final_response()
    items = [item.model_dump(exclude_none=True) for item in unary.output]
    outputs = [
        {"type": "function_call_output", "call_id": item.call_id, "output": "sunny"}
        for item in unary.output
        if item.type == "function_call"
    ]
    client.responses.create(**{**asked, "input": [*USER, *items, *outputs]})

    for response in (unary, streamed):
        kinds = [item.type for item in response.output]
        assert kinds == ["reasoning", "message", "function_call", "function_call"]
        assert response.output[0].encrypted_content
        assert [json.loads(item.arguments) for item in response.output[2:]] == CITIES
        assert response.tools[0].name == "weather"
    assert [message.role.value for message in server.engine.requests[-1].messages] == ["user", "assistant", "tool", "tool"]
    assert server.engine.requests[-1].messages[1].reasoning == "They want the weather."


@pytest.mark.parametrize("display", ["summarized", "omitted"])
def test_messages_tools_accumulate_to_the_unary_message(server: RunningServer, display: str) -> None:
    client = anthropic_client(server.url)
    asked: dict[str, Any] = {
        "model": "fake",
        "max_tokens": 4000,
        "messages": USER,
        "tools": [{"name": "weather", "input_schema": SCHEMA}],
        "thinking": {"type": "adaptive", "display": display},
    }

    unary = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        streamed = stream.get_final_message()
    content = [block.model_dump(exclude_none=True) for block in unary.content]
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": "sunny", "is_error": False}
        for block in unary.content
        if block.type == "tool_use"
    ]
    client.messages.create(
        **{**asked, "messages": [*USER, {"role": "assistant", "content": content}, {"role": "user", "content": results}]}
    )

    for message in (unary, streamed):
        assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
        assert message.content[0].thinking == ("" if display == "omitted" else "They want the weather.")
        assert message.content[0].signature
        assert [block.input for block in message.content[2:]] == CITIES
        assert message.stop_reason == "tool_use"
    assert [message.role.value for message in server.engine.requests[-1].messages] == ["user", "assistant", "tool", "tool"]
    assert server.engine.requests[-1].messages[1].reasoning == "They want the weather."


def test_a_call_of_one_protocol_is_answered_in_another(server: RunningServer) -> None:
    """An id that Chat gave out comes back through Messages and Responses."""
    tools: list[Any] = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
    message = openai_client(server.url).chat.completions.create(model="fake", messages=USER, tools=tools).choices[0].message
    call = message.tool_calls[0]

    use = {"type": "tool_use", "id": call.id, "name": "weather", "input": json.loads(call.function.arguments)}
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    anthropic_client(server.url).messages.create(
        model="fake",
        max_tokens=99,
        messages=[*USER, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}],
    )
    item = {"type": "function_call", "call_id": call.id, "name": "weather", "arguments": call.function.arguments}
    output = {"type": "function_call_output", "call_id": call.id, "output": "sunny"}
    openai_client(server.url).responses.create(model="fake", input=[*USER, item, output])

    assert server.engine.requests[-1].messages == server.engine.requests[-2].messages
