"""The ideas of the Open Responses compliance set, as cases of this project: 17 scenarios, seven of them over WebSocket.

Where that set looks at the shape of the last object, these look at every event too, and at whether what was said was understood.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from openai.types.responses import ResponseOutputMessage
from websockets.sync.client import ClientConnection

from conformance.checker import StreamCheck
from conformance.checker.unary_check import check_unary
from conformance.checker.websocket_check import WebSocketCheck
from end_to_end.serving import PATIENCE_SECONDS, ServerProcess, started
from zllm_ref.engine.script import SCRIPTED_TEXT

PROFILE = "openresponses"
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
TERMINAL = ("response.completed", "response.incomplete", "response.failed", "error")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    running = started("--model", "scripted", "--profile", PROFILE, "--quiet", directory=tmp_path_factory.mktemp("openresponses"))
    yield running
    running.stop()


def created(server: ServerProcess, **body: Any) -> dict[str, Any]:
    answer = httpx.post(f"{server.url}/v1/responses", json={"model": "scripted", **body}, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 200, answer.text
    assert check_unary("responses", answer.json(), PROFILE) == []
    response: dict[str, Any] = answer.json()
    assert response["status"] == "completed"
    return response


def text_of(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


def tokens_of(server: ServerProcess, **body: Any) -> int:
    answer = httpx.post(f"{server.url}/v1/responses/input_tokens", json={"model": "scripted", **body}, timeout=PATIENCE_SECONDS)
    count: int = answer.json()["input_tokens"]
    return count


class Session:
    """One WebSocket; everything on it is judged at its end."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.check = WebSocketCheck(PROFILE)

    def ask(self, **body: Any) -> dict[str, Any]:
        """One request; its terminal event, or the error."""
        message = json.dumps({"type": "response.create", "model": "scripted", **body})
        self.check.observe_text(message)
        self._socket.send(message)
        while True:
            text = str(self._socket.recv(PATIENCE_SECONDS))
            self.check.observe_text(text)
            event: dict[str, Any] = json.loads(text)
            if event["type"] in TERMINAL:
                return event


@contextmanager
def session(server: ServerProcess) -> Iterator[Session]:
    with server.websocket() as socket:
        one = Session(socket)
        yield one
        assert one.check.finish() == []


def test_1_basic_response(server: ServerProcess) -> None:
    response = created(server, input="Say hello.")

    assert text_of(response) == SCRIPTED_TEXT
    assert response["usage"]["total_tokens"] == response["usage"]["input_tokens"] + response["usage"]["output_tokens"]


def test_2_phase_of_an_assistants_message_is_accepted(server: ServerProcess) -> None:
    said = [
        {"type": "message", "role": "user", "content": "Look."},
        {"type": "message", "role": "assistant", "phase": "commentary", "content": "I am looking."},
        {"type": "message", "role": "assistant", "phase": "final_answer", "content": "There is nothing."},
        {"type": "message", "role": "user", "content": "And now?"},
    ]

    assert text_of(created(server, input=said)) == SCRIPTED_TEXT
    assert tokens_of(server, input=said) > tokens_of(server, input=said[:1] + said[3:])


def test_3_phase_in_an_output_is_read_by_the_sdk() -> None:
    part = {"type": "output_text", "text": "x", "annotations": []}
    shown = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}

    phases = [ResponseOutputMessage.model_validate({**shown, "phase": phase}).phase for phase in ("commentary", "final_answer")]

    assert phases == ["commentary", "final_answer"]


def test_4_streaming_response(server: ServerProcess) -> None:
    body = {"model": "scripted", "input": "Count.", "stream": True}
    answer = httpx.post(f"{server.url}/v1/responses", json=body, timeout=PATIENCE_SECONDS)

    check = StreamCheck("responses", PROFILE, request=body)
    check.feed(answer.content)
    assert check.finish() == []
    assert answer.text.endswith("data: [DONE]\n\n")


def test_5_system_prompt(server: ServerProcess) -> None:
    said = [
        {"type": "message", "role": "system", "content": "You are a pirate."},
        {"type": "message", "role": "user", "content": "Hi"},
    ]

    assert text_of(created(server, input=said)) == SCRIPTED_TEXT
    assert created(server, input=said)["usage"]["input_tokens"] == tokens_of(server, input=said) > tokens_of(server, input="Hi")


def test_6_tool_calling(server: ServerProcess) -> None:
    response = created(server, input="What is the weather?", tools=[WEATHER])

    (call,) = response["output"]
    assert (call["type"], call["name"], json.loads(call["arguments"])) == ("function_call", "get_weather", {"city": ""})
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    assert text_of(created(server, previous_response_id=response["id"], input=[result], tools=[WEATHER])) == SCRIPTED_TEXT


def test_7_image_input_is_refused_by_name(server: ServerProcess) -> None:
    parts = [{"type": "input_text", "text": "What is this?"}, {"type": "input_image", "image_url": "data:image/png;base64,AA=="}]
    body = {"model": "scripted", "input": [{"type": "message", "role": "user", "content": parts}]}

    answer = httpx.post(f"{server.url}/v1/responses", json=body, timeout=PATIENCE_SECONDS)

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "input[0].content[1].type"


def test_8_multi_turn(server: ServerProcess) -> None:
    first = created(server, input="My name is Ada.")
    second = created(server, previous_response_id=first["id"], input="What is my name?")
    whole = [{"role": "user", "content": "My name is Ada."}, *first["output"], {"role": "user", "content": "What is my name?"}]

    assert second["usage"]["input_tokens"] == tokens_of(server, input=whole)
    assert second["usage"]["input_tokens_details"]["cached_tokens"] >= first["usage"]["input_tokens"]


def test_9_compaction(server: ServerProcess) -> None:
    compacted = server.openai().responses.compact(model="scripted", input=[{"role": "user", "content": "Remember the number 7."}])

    assert compacted.object == "response.compaction"
    assert compacted.output[-1].type == "compaction"
    items = [item.model_dump(exclude_none=True) for item in compacted.output]
    assert text_of(created(server, input=[*items, {"role": "user", "content": "Which number?"}])) == SCRIPTED_TEXT


def test_10_compaction_without_a_model_is_refused(server: ServerProcess) -> None:
    answer = httpx.post(f"{server.url}/v1/responses/compact", json={"input": "x"}, timeout=PATIENCE_SECONDS)

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")


def test_11_websocket_response(server: ServerProcess) -> None:
    with session(server) as one:
        event = one.ask(input="Hi", store=False)

    assert text_of(event["response"]) == SCRIPTED_TEXT


def test_12_websocket_sequential_responses(server: ServerProcess) -> None:
    with session(server) as one:
        responses = [one.ask(input=text, store=False)["response"] for text in ("a", "b", "c")]

    assert len({response["id"] for response in responses}) == 3
    assert len({response["usage"]["input_tokens"] for response in responses}) == 1


def test_13_websocket_continuation(server: ServerProcess) -> None:
    with session(server) as one:
        first = one.ask(input="a", store=False)["response"]
        second = one.ask(input="b", store=False, previous_response_id=first["id"])["response"]

    assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"] + first["usage"]["output_tokens"]


def test_14_websocket_reconnection_forgets_what_was_not_stored(server: ServerProcess) -> None:
    with session(server) as one:
        kept = one.ask(input="a", store=True)["response"]["id"]
        lost = one.ask(input="a", store=False)["response"]["id"]
    with session(server) as one:
        refused = one.ask(input="b", store=False, previous_response_id=lost)
        went_on = one.ask(input="b", store=False, previous_response_id=kept)

    assert (refused["status"], refused["error"]["code"]) == (400, "previous_response_not_found")
    assert went_on["type"] == "response.completed"


def test_15_websocket_unknown_previous_response(server: ServerProcess) -> None:
    with session(server) as one:
        refused = one.ask(input="b", previous_response_id="resp_never")
        next_one = one.ask(input="b", store=False)

    assert (refused["error"]["code"], refused["error"]["param"]) == ("previous_response_not_found", "previous_response_id")
    assert next_one["type"] == "response.completed", "an error costs the connection nothing"


def test_16_websocket_failed_continuation_is_evicted(server: ServerProcess) -> None:
    with session(server) as one:
        first = one.ask(input="a", store=False)["response"]["id"]
        failed = one.ask(input=[{"type": "never"}], store=False, previous_response_id=first)
        again = one.ask(input="b", store=False, previous_response_id=first)

    assert failed["type"] == "error"
    assert again["error"]["code"] == "previous_response_not_found"


def test_17_websocket_chain_from_a_compaction(server: ServerProcess) -> None:
    body = {"model": "scripted", "input": [{"role": "user", "content": "Remember the number 7."}]}
    items = httpx.post(f"{server.url}/v1/responses/compact", json=body, timeout=PATIENCE_SECONDS).json()["output"]
    with session(server) as one:
        first = one.ask(input=[*items, {"role": "user", "content": "Which number?"}], store=False)["response"]
        second = one.ask(input="And again?", store=False, previous_response_id=first["id"])["response"]

    assert first["previous_response_id"] is None
    assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]


def test_there_are_seventeen_and_seven_of_them_use_a_websocket() -> None:
    names = [name for name, _ in inspect.getmembers(sys.modules[__name__], inspect.isfunction) if name.startswith("test_")]
    numbered = sorted(int(name.split("_")[1]) for name in names if name.split("_")[1].isdigit())

    assert numbered == list(range(1, 18))
    assert sum("_websocket_" in name for name in names) == 7
