"""One WebSocket connection of the small right server: turns in series, the chain of the connection in memory."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any

from websockets.frames import Opcode
from websockets.http11 import Request as HandshakeRequest
from websockets.server import ServerProtocol

from conformance.golden import render_responses
from conformance.golden.story import Story
from conformance.mutants.brain import BadRequestError
from conformance.mutants.state import MODEL, State


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
        while data := connection.recv(65536):
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
        self.is_over = False

    def take(self, data: bytes) -> None:
        """One message of the client."""
        lane: Any = None
        try:
            message = json.loads(data)
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

    def _turn(self, message: dict[str, Any], lane: str | None) -> None:
        try:
            request, story = self._state.answer("responses", message, self._known)
        except BadRequestError:
            if not self._state.wrong("keeps-failed-parent"):
                self._known.pop(str(message.get("previous_response_id")), None)
            raise
        if message.get("generate") is False and not self._state.wrong("warm-up-speaks"):
            story = Story((), prompt_tokens=story.prompt_tokens, completion_tokens=0, model=MODEL, scope=story.scope)
        frames = render_responses.render_stream(story)
        response: dict[str, Any] = {}
        for frame in frames:
            assert isinstance(frame.data, dict)
            response = frame.data.get("response", response)
            is_echoed = lane is not None and not self._state.wrong("lane-not-echoed")
            if self._state.wrong("websocket-lacks-in-progress") and frame.event == "response.in_progress":
                continue
            self._send({**frame.data, "stream_id": lane} if is_echoed else frame.data)
        if self._state.wrong("done-over-websocket"):
            self._protocol.send_text(b"[DONE]")
        chain = self._state.remember(request, response, frames, message.get("store") is not False)
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
