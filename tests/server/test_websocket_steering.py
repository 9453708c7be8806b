"""Steering on a connection: a response that is under way ends, and its successor has what was said meanwhile."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.conftest import Serve
from tests.server.fake_engine import Say, unending
from tests.server.test_sdk_text import openai_client
from tests.server.test_websocket import PATIENT, connection, final, hear, rest, say, texts, turn


def test_steering_ends_the_response_and_makes_its_successor(serve: Serve) -> None:
    """WS15."""
    server = serve(unending())
    with connection(server) as socket:
        say(socket, input="a", instructions="Be brief.", stream_id="main")
        first = hear(socket)["response"]["id"]
        while hear(socket)["type"] != "response.output_text.delta":
            continue
        socket.send(json.dumps({"type": "response.steer", "previous_response_id": first, "input": "no, b"}))
        events = rest(socket)
        accepted = next(event for event in events if event["type"] == "response.steer.accepted")
        created = hear(socket)

    ended = events[-1]
    assert accepted["steer"]["previous_response_id"] == first
    assert accepted["stream_id"] == created["stream_id"] == "main"
    assert (ended["type"], ended["response"]["incomplete_details"]) == ("response.incomplete", {"reason": "steered"})
    assert ended["response"]["usage"]["output_tokens"] > 0
    assert server.engine.generations[0].cancelled.is_set()
    assert created["type"] == "response.created"
    assert created["response"]["previous_response_id"] == first
    said = ended["response"]["output"][0]["content"][0]["text"]
    assert texts(server) == ["Be brief.", "a", said, "no, b"]


def test_the_sdk_speaks_on_lanes_and_steers(serve: Serve) -> None:
    server = serve(unending())
    with openai_client(server.url).responses.connect(websocket_connection_options=PATIENT) as socket:
        socket.response.create(model="fake", input="a", store=False, stream_id="main")
        first = socket.recv()
        while socket.recv().type != "response.output_text.delta":
            continue
        socket.response.steer(input="no, b", previous_response_id=first.response.id)  # type: ignore[union-attr]
        kinds = []
        while (event := socket.recv()).type != "response.created":
            kinds.append(event.type)

    assert "response.steer.accepted" in kinds
    assert kinds[-1] == "response.incomplete"
    assert event.stream_id == first.stream_id == "main"  # type: ignore[union-attr]
    assert event.response.previous_response_id == first.response.id  # type: ignore[union-attr]


def test_steering_waits_for_the_results_that_the_client_owes(serve: Serve) -> None:
    server = serve(unending(script=(Say("call", "f", "{}"), Say("text", "abc" * 500))))
    with connection(server) as socket:
        say(socket, input="a")
        first = hear(socket)["response"]["id"]
        while hear(socket)["type"] != "response.output_text.delta":
            continue
        socket.send(json.dumps({"type": "response.steer", "previous_response_id": first, "input": "and b"}))
        call = rest(socket)[-1]["response"]["output"][0]
        pending = hear(socket)
        server.engine.script, server.engine.gates = (Say("text", "Done."),), {}
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "1"}
        final(turn(socket, previous_response_id=first, input=[output, {"role": "user", "content": "c"}]))

    assert pending["type"] == "response.steer.pending"
    assert pending["required_input"] == [{"type": "function_call_output", "call_id": call["call_id"], "output": None}]
    messages = server.engine.requests[-1].messages
    roles = [message.role.value for message in messages]
    assert roles == ["user", "assistant", "assistant", "tool", "user", "user"]  # each result right behind its call
    assert [message.text for message in messages[4:]] == ["and b", "c"]  # in the order in which they were said


@pytest.mark.parametrize("given", [[], "", [{"role": "system", "content": "x"}], [{"type": "function_call_output"}], 5])
def test_what_cannot_steer_comes_back(serve: Serve, given: Any) -> None:
    server = serve(unending())
    with connection(server) as socket:
        say(socket, input="a")
        first = hear(socket)["response"]["id"]
        socket.send(json.dumps({"type": "response.steer", "previous_response_id": first, "input": given}))
        failed = hear(socket)
        while failed["type"].startswith("response.") and "steer" not in failed["type"]:
            failed = hear(socket)

    assert failed["type"] == "response.steer.failed"
    assert failed["error"]["code"] == "invalid_input"
    assert failed["steer"]["input"] == given


def test_a_response_that_has_ended_cannot_be_steered(serve: Serve) -> None:
    with connection(serve()) as socket:
        first = final(turn(socket, input="a"))["id"]
        socket.send(json.dumps({"type": "response.steer", "previous_response_id": first, "input": "b"}))
        ended = hear(socket)
        socket.send(json.dumps({"type": "response.steer", "previous_response_id": "resp_unknown", "input": "b"}))
        unknown = hear(socket)

    assert ended["error"]["code"] == "response_already_completed"
    assert unknown["error"]["code"] == "response_not_found"
