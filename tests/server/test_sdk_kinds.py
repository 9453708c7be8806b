"""Free-form calls and refusals through the official SDKs, streamed and whole."""

from __future__ import annotations

from typing import Any

from tests.server.conftest import Serve
from tests.server.fake_engine import FakeEngine, Say
from tests.server.test_sdk_text import anthropic_client, openai_client
from zllm_ref.canonical.message import CustomToolCall

USER: list[Any] = [{"role": "user", "content": "x"}]
INPUT = "1 +\n1"
NO = "I cannot help with that."


def test_free_form_calls_of_chat_come_back_as_what_they_were(serve: Serve) -> None:
    server = serve(FakeEngine(script=(Say("custom", "exec", INPUT),)))
    client = openai_client(server.url)
    tools: list[Any] = [{"type": "custom", "custom": {"name": "exec"}}]

    (call,) = client.chat.completions.create(model="fake", messages=USER, tools=tools).choices[0].message.tool_calls or ()
    chunks = list(client.chat.completions.create(model="fake", messages=USER, tools=tools, stream=True))
    pieces = [piece.to_dict() for chunk in chunks for piece in chunk.choices[0].delta.tool_calls or ()]
    echoed = {"role": "assistant", "tool_calls": [call.to_dict()]}
    result = {"role": "tool", "tool_call_id": call.id, "content": "2"}
    client.chat.completions.create(model="fake", messages=[*USER, echoed, result], tools=tools)

    assert call.type == "custom"
    assert (call.custom.name, call.custom.input) == ("exec", INPUT)
    assert pieces[0]["type"] == "custom"
    assert "".join(piece["custom"]["input"] for piece in pieces) == INPUT
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    assert server.engine.requests[-1].messages[1].tool_calls == (CustomToolCall(call.id, "exec", INPUT),)


def test_a_refusal_is_told_in_each_protocols_own_form(serve: Serve) -> None:
    url = serve(FakeEngine(script=(Say("refusal", NO),))).url
    client, other = openai_client(url), anthropic_client(url)

    chat = client.chat.completions.create(model="fake", messages=USER).choices[0].message
    with client.chat.completions.stream(model="fake", messages=USER) as chat_stream:
        streamed = chat_stream.get_final_completion().choices[0].message
    with client.responses.stream(model="fake", input="x") as stream:
        kinds = [event.type for event in stream]
        response = stream.get_final_response()
    message = other.messages.create(model="fake", max_tokens=99, messages=USER)
    with other.messages.stream(model="fake", max_tokens=99, messages=USER) as message_stream:
        final = message_stream.get_final_message()

    assert (chat.refusal, chat.content) == (streamed.refusal, streamed.content) == (NO, None)
    part: Any = response.output[0].content[0]  # type: ignore[union-attr]
    assert (part.type, part.refusal) == ("refusal", NO)
    assert kinds.count("response.refusal.delta") == len(NO) // 3
    assert "response.refusal.done" in kinds
    for told in (message, final):
        assert (told.stop_reason, told.content[0].text) == ("refusal", NO)
        assert told.stop_details is not None
