"""Responses over WebSocket, seen through the official SDK and, where it would not misbehave, through a bare socket."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from conformance.checker.websocket_check import WebSocketCheck
from tests.server.conftest import RunningServer, Serve
from tests.server.fake_engine import PATIENCE, FakeEngine, Say, unending
from tests.server.test_exchange import eventually, is_idle
from tests.server.test_sdk_text import openai_client

PATIENT: Any = {"open_timeout": PATIENCE, "close_timeout": PATIENCE, "ping_interval": None, "max_queue": None}
"""A connection that gives nobody up; with a bounded queue, one left with messages unread does not hear that it is closed."""
TERMINAL = ("response.completed", "response.incomplete", "response.failed", "error")


@contextmanager
def connection(server: RunningServer, **headers: str) -> Iterator[ClientConnection]:
    url = server.url.replace("http://", "ws://") + "/v1/responses"
    with connect(url, additional_headers=headers, **PATIENT) as socket:
        yield socket


def say(socket: ClientConnection, **message: Any) -> None:
    socket.send(json.dumps({"type": "response.create", "model": "fake", "store": False, **message}))


def hear(socket: ClientConnection) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(socket.recv(PATIENCE))
    return found


def turn(socket: ClientConnection, **message: Any) -> list[dict[str, Any]]:
    """The events of one response, to its terminal event or an error."""
    say(socket, **message)
    return rest(socket)


def rest(socket: ClientConnection) -> list[dict[str, Any]]:
    events = [hear(socket)]
    while events[-1]["type"] not in TERMINAL:
        events.append(hear(socket))
    return events


def final(events: list[dict[str, Any]]) -> dict[str, Any]:
    assert events[-1]["type"] == "response.completed", events[-1]
    response: dict[str, Any] = events[-1]["response"]
    return response


def texts(server: RunningServer) -> list[str]:
    return [message.text for message in server.engine.requests[-1].messages]


def test_the_sdk_holds_a_conversation_on_one_connection(serve: Serve) -> None:
    server = serve(FakeEngine(script=(Say("text", "One."),)))
    with openai_client(server.url).responses.connect(websocket_connection_options=PATIENT) as socket:
        socket.response.create(model="fake", input="a", store=False)
        first = next(event for event in socket if event.type == "response.completed").response
        socket.response.create(model="fake", input="b", store=False, previous_response_id=first.id)
        second = next(event for event in socket if event.type == "response.completed").response

    assert first.output_text == second.output_text == "One."
    assert second.previous_response_id == first.id
    assert texts(server) == ["a", "One.", "b"]


def test_the_events_are_those_of_the_stream(serve: Serve) -> None:
    """X3, WS16."""
    server = serve(FakeEngine(script=(Say("reasoning", "hm"), Say("text", "One."), Say("call", "f", '{"a":1}'))))
    body = {"model": "fake", "input": "a", "stream": True, "store": False}
    with httpx.stream("POST", f"{server.url}/v1/responses", json=body, timeout=PATIENCE) as response:
        streamed = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: ")]
    with connection(server) as socket:
        events = turn(socket, input="a", stream=True)

    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [outline(event) for event in events] == [outline(event) for event in streamed]


def outline(event: dict[str, Any]) -> dict[str, Any]:
    """The event without what differs between any two requests: ids and times."""
    text = json.dumps(event)
    for name in ("id", "item_id", "call_id", "created_at", "completed_at", "zllm"):
        event = json.loads(text, object_hook=lambda pairs, name=name: {key: value for key, value in pairs.items() if key != name})
        text = json.dumps(event)
    return event


def test_a_session_of_many_lanes_keeps_its_grammar(serve: Serve) -> None:
    server = serve(FakeEngine(events_per_step=2, pause_seconds=0.001))
    check = WebSocketCheck()
    ended: dict[str, int] = {}
    with connection(server) as socket:
        for number in range(12):
            message = {"type": "response.create", "model": "fake", "input": "x", "stream_id": f"lane.{number % 4}"}
            check.observe_text(json.dumps(message))
            socket.send(json.dumps(message))
        while sum(ended.values()) < 12:
            text = str(socket.recv(PATIENCE))
            check.observe_text(text)
            event = json.loads(text)
            if event["type"] == "response.completed":
                ended[event["stream_id"]] = ended.get(event["stream_id"], 0) + 1

    assert check.finish() == []
    assert ended == {f"lane.{number}": 3 for number in range(4)}


def test_a_response_is_remembered_by_its_connection_alone(serve: Serve) -> None:
    """WS8."""
    server = serve()
    with connection(server) as socket:
        first = final(turn(socket, input="a"))
        assert final(turn(socket, input="b", previous_response_id=first["id"]))
        assert turn(socket, input="c", previous_response_id=first["id"])[-1]["type"] == "error"
    with connection(server) as socket:
        error = turn(socket, input="b", previous_response_id=first["id"])[-1]
        kept = final(turn(socket, input="a", store=True))
        again = final(turn(socket, input="b"))
        assert final(turn(socket, input="c", previous_response_id=kept["id"]))

    assert error["status"] == 400
    assert error["error"]["code"] == "previous_response_not_found"
    assert error["error"]["param"] == "previous_response_id"
    assert again["id"] != kept["id"]


def test_another_lane_may_fork_and_a_failed_continuation_is_forgotten(serve: Serve) -> None:
    """WS9."""
    server = serve()
    with connection(server) as socket:
        first = final(turn(socket, input="a", stream_id="main"))
        bad = {"input": "b", "previous_response_id": first["id"], "temperature": 9}
        assert turn(socket, stream_id="fork", **bad)[-1]["status"] == 400
        fork = final(turn(socket, input="c", stream_id="fork", previous_response_id=first["id"]))
        assert turn(socket, stream_id="main", **bad)[-1]["stream_id"] == "main"
        gone = turn(socket, input="d", stream_id="main", previous_response_id=first["id"])[-1]
        assert final(turn(socket, input="e", stream_id="fork", previous_response_id=fork["id"]))

    assert gone["error"]["code"] == "previous_response_not_found"


@pytest.mark.parametrize("profile", ["openai", "openresponses"])
def test_warming_up_says_nothing_and_can_be_continued(serve: Serve, profile: str) -> None:
    """WS10, as Codex does it: the instructions first, then the rest, then a tool's output alone."""
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}
    server = serve(FakeEngine(script=(Say("call", "f", "{}"),)), profile=profile)
    with connection(server, originator="codex_exec") as socket:
        warm = turn(
            socket, generate=False, input=[{"role": "developer", "content": "Rules."}], tools=[tool], client_metadata={"a": "b"}
        )
        second = final(turn(socket, previous_response_id=final(warm)["id"], input="go", tools=[tool]))
        output = {"type": "function_call_output", "call_id": second["output"][0]["call_id"], "output": "done"}
        final(turn(socket, previous_response_id=second["id"], input=[output], tools=[tool]))

    assert [event["type"] for event in warm] == ["response.created", "response.in_progress", "response.completed"]
    assert final(warm)["output"] == []
    assert final(warm)["usage"]["output_tokens"] == 0
    assert server.engine.requests[0].max_tokens == 1
    assert [message.role.value for message in server.engine.requests[-1].messages] == ["developer", "user", "assistant", "tool"]


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("{", "invalid_json"),
        ("[]", "invalid_json"),
        (b"\x00\x01", "invalid_json"),
        ("{}", "unknown_event_type"),
        ('{"type": "response.destroy"}', "unknown_event_type"),
        ('{"type": "response.create", "stream_id": "a b"}', "invalid_stream_id"),
        ('{"type": "response.create", "stream_id": 5}', "invalid_stream_id"),
        ('{"type": "response.create", "model": "fake", "background": true}', "unsupported_parameter"),
        ('{"type": "response.create", "model": "other", "input": "x"}', "model_not_found"),
        ('{"type": "response.create", "model": "fake"}', "missing_required_parameter"),
        ('{"type": "response.steer"}', "missing_required_parameter"),
    ],
)
def test_a_bad_message_gets_an_error_and_the_connection_lives(serve: Serve, frame: str | bytes, code: str) -> None:
    """WS7, WS12."""
    with connection(serve()) as socket:
        socket.send(frame)
        error = hear(socket)
        assert final(turn(socket, input="still there?"))

    assert error["type"] == "error"
    assert error["status"] in (400, 404)
    assert error["error"]["code"] == code
    assert set(error["error"]) == {"type", "message", "code", "param"}


def test_lanes_are_limited(serve: Serve) -> None:
    with connection(serve(unending())) as socket:
        for number in range(33):
            say(socket, input="x", stream_id=str(number))
        error = hear(socket)
        while error["type"] != "error":
            error = hear(socket)

    assert error["error"]["code"] == "websocket_stream_limit_reached"
    assert error["stream_id"] == "32"


def test_a_page_of_another_site_cannot_talk_to_a_server_without_keys(serve: Serve) -> None:
    server = serve(FakeEngine())
    for origin in ("http://another.example", "null", server.url + "1"):
        with pytest.raises(InvalidStatus) as refused, connection(server, Origin=origin):
            pass
        assert refused.value.response.status_code == 403
        assert b"origin" in refused.value.response.body


def test_a_page_of_the_server_itself_and_a_caller_with_a_key_may_have_an_origin(serve: Serve) -> None:
    server = serve(FakeEngine())
    with connection(server, Origin=server.url) as socket:
        final(turn(socket, input="Hi"))
    keyed = serve(FakeEngine(), api_keys=("secret",))
    with connection(keyed, Origin="http://another.example", Authorization="Bearer secret") as socket:
        final(turn(socket, input="Hi"))


def test_a_key_is_asked_for_before_the_upgrade(serve: Serve) -> None:
    """WS1."""
    server = serve(api_keys=("one",))

    with pytest.raises(InvalidStatus) as refused, connection(server):
        pass
    with connection(server, authorization="Bearer one") as socket:
        assert final(turn(socket, input="x"))

    assert refused.value.response.status_code == 401
    assert json.loads(refused.value.response.body or b"")["error"]["code"] == "invalid_api_key"


def test_a_client_that_closes_cancels_what_it_asked_for(serve: Serve) -> None:
    """WS14."""
    server = serve(unending(pause_seconds=0.01))
    with connection(server) as socket:
        say(socket, input="x")
        say(socket, input="y", stream_id="other")
        assert eventually(lambda: len(server.engine.generations) == 2)
        hear(socket)

    assert all(generation.cancelled.wait(PATIENCE) for generation in server.engine.generations)


def test_a_client_that_closes_while_its_prompt_is_read_cancels_it_too(serve: Serve) -> None:
    gate = threading.Event()
    server = serve(unending(submit_gate=gate))
    with connection(server) as socket:
        say(socket, input="x")
        assert eventually(lambda: bool(server.engine.requests))
    assert eventually(lambda: is_idle(server))
    gate.set()

    assert eventually(lambda: bool(server.engine.generations))
    assert server.engine.generations[0].cancelled.wait(PATIENCE)


def test_a_connection_has_a_lifetime(serve: Serve) -> None:
    """WS13. Not less than it was given; how much more is the machine's affair."""
    began = time.monotonic()
    with connection(serve(websocket_lifetime_seconds=0.2)) as socket:
        error = hear(socket)
        assert time.monotonic() - began >= 0.2
        with pytest.raises(ConnectionClosed):
            socket.recv(PATIENCE)

    assert error["error"]["code"] == "websocket_connection_limit_reached"
    assert error["status"] == 400


def test_a_failure_after_tokens_is_the_responses_own_end(serve: Serve) -> None:
    with connection(serve(FakeEngine(fail_after=3))) as socket:
        failed = turn(socket, input="a")[-1]
    with connection(serve(FakeEngine(fail_after=0))) as socket:
        refused = turn(socket, input="a")[-1]

    assert failed["type"] == "response.failed"
    assert (refused["type"], refused["status"]) == ("error", 500)


FRAMES = st.one_of(
    st.text(max_size=40),
    st.binary(max_size=40),
    st.dictionaries(
        st.sampled_from(["type", "stream_id", "model", "input", "tools", "previous_response_id", "generate", "store"]),
        st.sampled_from(["response.create", "response.steer", "fake", "x", "", 5, None, True, [], {}, [{}], [{"role": "user"}]]),
        max_size=6,
    ).map(json.dumps),
)


def test_whatever_is_said_is_answered_and_the_connection_lives(serve: Serve) -> None:
    server = serve()

    @settings(max_examples=max(30, settings.default.max_examples // 4), deadline=None)
    @given(frame=FRAMES)
    def speak(frame: str | bytes) -> None:
        socket.send(frame)
        answer = hear(socket)
        assert answer["type"] in ("error", "response.created", "response.steer.failed")
        if answer["type"] == "error":
            assert 400 <= answer["status"] < 500
        elif answer["type"] == "response.created":
            rest(socket)

    with connection(server) as socket:
        speak()
        assert final(turn(socket, input="still there?"))


def test_a_server_that_ends_says_so_on_the_connection(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zllm_ref.server.state._LAST_WORDS_SECONDS", PATIENCE)
    server = serve(unending())
    with connection(server) as socket:
        say(socket, input="a")
        assert hear(socket)["type"] == "response.created"
        server.begin_to_stop()
        ended = rest(socket)[-1]
        with pytest.raises(ConnectionClosed):
            socket.recv(PATIENCE)

    assert ended["type"] == "response.failed"
    assert "shutting down" in ended["response"]["error"]["message"]
    assert server.engine.generations[0].cancelled.wait(PATIENCE)
