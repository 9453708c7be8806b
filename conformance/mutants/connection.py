"""One WebSocket connection of the small right server: turns in series, the chain of the connection in memory."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from websockets.frames import Opcode
from websockets.http11 import Request as HandshakeRequest
from websockets.server import ServerProtocol

from conformance.golden import render_responses
from conformance.golden.story import Part, Story, Text
from conformance.mutants.brain import BadRequestError, Request
from conformance.mutants.state import MODEL, State


@dataclass(frozen=True)
class Stalled:
    """A turn of which `frames` are still to be said, at `until`; `steered` end it early."""

    request: Request
    message: dict[str, Any]
    frames: list[dict[str, Any]]
    steered: list[dict[str, Any]] = field(default_factory=list)
    until: float = 0.0

    @property
    def response_id(self) -> str:
        return str(self.frames[-1]["response"]["id"])


def _shortened(part: Part, num_pieces: int) -> Part:
    return replace(part, pieces=part.pieces[:num_pieces]) if isinstance(part, Text) else part


def serve_websocket(state: State, connection: socket.socket, path: str, headers: Mapping[str, str]) -> None:
    """Takes the connection over: handshake by hand, frames by the sans-IO protocol of `websockets`."""
    protocol = ServerProtocol()
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    protocol.receive_data(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
    (handshake,) = protocol.events_received()
    assert isinstance(handshake, HandshakeRequest)
    protocol.send_response(protocol.accept(handshake))
    session = Session(state, protocol)
    try:
        _flush(connection, protocol)
        while True:
            connection.settimeout(session.seconds_to_wait())
            try:
                data = connection.recv(65536)
            except TimeoutError:
                session.go_on()
                _flush(connection, protocol)
                continue
            if not data:
                break
            protocol.receive_data(data)
            for event in protocol.events_received():
                if getattr(event, "opcode", None) in (Opcode.TEXT, Opcode.BINARY):
                    session.take(bytes(event.data))  # type: ignore[union-attr]
            _flush(connection, protocol)
            if session.is_over or protocol.close_expected():
                break
    except OSError:
        return


def _flush(connection: socket.socket, protocol: ServerProtocol) -> None:
    for data in protocol.data_to_send():
        if data:
            connection.sendall(data)


class Session:
    """A WebSocket session: turns in series, the chain of the connection in memory."""

    def __init__(self, state: State, protocol: ServerProtocol) -> None:
        self._state = state
        self._protocol = protocol
        self._known: dict[str, list[tuple[str, str]]] = {}
        self._stalled: Stalled | None = None
        self.is_over = False

    def seconds_to_wait(self) -> float | None:
        """How long the engine stays silent yet; None where nothing is held back."""
        return None if self._stalled is None else max(0.001, self._stalled.until - time.monotonic())

    def go_on(self) -> None:
        """The engine speaks again."""
        if self._stalled is not None:
            held, self._stalled = self._stalled, None
            for frame in held.frames:
                self._send(frame)
            self._keep(held)

    def take(self, data: bytes) -> None:
        """One message of the client."""
        lane: Any = None
        try:
            message = json.loads(data)
            if isinstance(message, dict) and message.get("type") == "response.steer":
                return self._steer(message)
            if not isinstance(message, dict) or message.get("type") != "response.create":
                raise BadRequestError(400, "an unknown type of message", "type")
            lane = message.get("stream_id")
            if lane is not None and not str(lane).replace("-", "").isalnum():
                lane = None
                raise BadRequestError(400, "a bad lane name", "stream_id", "invalid_stream_id")
            self._turn(message, lane)
        except ValueError:
            self._fail(BadRequestError(400, "no JSON", None, "invalid_json"), lane)
        except BadRequestError as error:
            self._fail(error, lane)
        return None

    def _steer(self, message: dict[str, Any]) -> None:
        """Ends the response that is stalled, and makes its successor; any other is no longer there to be steered."""
        held = self._stalled
        told: dict[str, Any] = {"previous_response_id": message["previous_response_id"]}
        if held is None or held.response_id != message["previous_response_id"]:
            error = {"type": "invalid_request_error", "code": "response_already_completed", "message": "it has ended"}
            steer = {**told, "input": message["input"]}
            return self._send({"type": "response.steer.failed", "sequence_number": 0, "steer": steer, "error": error})
        self._send({"type": "response.steer.accepted", "sequence_number": 0, "steer": {**told, "id": "steer_1"}})
        if self._state.wrong("steers-nothing"):
            return None
        self._stalled = None
        for frame in held.steered:
            self._send(frame)
        return self._turn({**held.message, "input": message["input"]}, held.message.get("stream_id"))

    def _turn(self, message: dict[str, Any], lane: str | None) -> None:
        try:
            request, story = self._state.answer("responses", message, self._known)
        except BadRequestError:
            if not self._state.wrong("keeps-failed-parent"):
                self._known.pop(str(message.get("previous_response_id")), None)
            raise
        if message.get("generate") is False and not self._state.wrong("warm-up-speaks"):
            story = Story((), prompt_tokens=story.prompt_tokens, completion_tokens=0, model=MODEL, scope=story.scope)
        messages = self._messages(story, lane)
        turn = Stalled(request, message, messages)
        stall, num_tokens = story.option("stall", 0.0), story.option("stall_after", 0)
        if not stall:
            for one in messages:
                self._send(one)
            return self._keep(turn)
        cut = replace(story, parts=tuple(_shortened(part, num_tokens) for part in story.parts), end="length")
        num_sent = next(place for place, one in enumerate(messages) if one["type"].endswith(".delta")) + num_tokens
        for one in messages[:num_sent]:
            self._send(one)
        steered = json.loads(json.dumps(self._messages(cut, lane)[num_sent:]).replace("max_output_tokens", "steered"))
        self._stalled = replace(turn, frames=messages[num_sent:], steered=steered, until=time.monotonic() + stall)
        return None

    def _messages(self, story: Story, lane: str | None) -> list[dict[str, Any]]:
        extra = {"stream_id": lane} if lane is not None and not self._state.wrong("lane-not-echoed") else {}
        frames = [frame for frame in render_responses.render_stream(story) if isinstance(frame.data, dict)]
        lost = "response.in_progress" if self._state.wrong("websocket-lacks-in-progress") else ""
        return [{**frame.data, **extra} for frame in frames if frame.event != lost]  # type: ignore[dict-item]

    def _keep(self, turn: Stalled) -> None:
        """What this connection knows after the turn."""
        if self._state.wrong("done-over-websocket"):
            self._protocol.send_text(b"[DONE]")
        response = turn.frames[-1]["response"]
        chain = self._state.remember(turn.request, response, [], turn.message.get("store") is not False)
        if not self._state.wrong("connection-forgets"):
            self._known[response["id"]] = chain
        if self._state.wrong("closes-after-turn"):
            self._protocol.send_close(1000)
            self.is_over = True

    def _fail(self, error: BadRequestError, lane: str | None) -> None:
        body = {"type": "invalid_request_error", "message": error.message, "code": error.code, "param": error.param}
        status = {} if self._state.wrong("error-without-status") else {"status": error.status}
        self._send({"type": "error", **status, "error": body, **({"stream_id": lane} if lane else {})})
        if self._state.wrong("closes-on-error"):
            self._protocol.send_close(1008)
            self.is_over = True

    def _send(self, message: dict[str, Any]) -> None:
        self._protocol.send_text(json.dumps(message).encode())
