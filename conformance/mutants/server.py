"""A small server that answers all three protocols right, and one thing wrong on demand: the target that proves the scenarios.

Standard library HTTP, one thread a connection, loopback only. `Wrongs` names what it does wrong; empty, every scenario
passes on it. Not an example to follow for anything but the wire.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Final

from websockets.frames import Opcode
from websockets.http11 import Request as HandshakeRequest
from websockets.server import ServerProtocol

from conformance.golden import render_chat, render_messages, render_responses
from conformance.golden.story import Frame, Story
from conformance.mutants.brain import BadRequestError, Cache, Request, story_of
from conformance.mutants.requests import read_request

MODEL: Final = "right-1"
_PATHS: Final = {"/v1/chat/completions": "chat", "/v1/responses": "responses", "/v1/messages": "messages"}
_RENDERERS: Final[dict[str, Any]] = {"chat": render_chat, "responses": render_responses, "messages": render_messages}
_MAX_BODY: Final = 16_000_000


class State:
    """What the server remembers between requests."""

    def __init__(self, wrongs: frozenset[str]) -> None:
        self.wrongs = wrongs
        self.cache = Cache()
        self.stored: dict[str, dict[str, Any]] = {}
        self.chains: dict[str, list[tuple[str, str]]] = {}
        self.streams: dict[str, list[Frame]] = {}
        self.lock = threading.Lock()
        self.num_requests = 0

    def wrong(self, name: str) -> bool:
        return name in self.wrongs

    def answer(self, protocol: str, body: Any, known: dict[str, list[tuple[str, str]]] | None = None) -> tuple[Request, Story]:
        """Reads a request, continues its chain, thinks, counts."""
        with self.lock:
            self.num_requests += 1
            number = self.num_requests
            request = read_request(protocol, body, MODEL)
            self._continue(request, body, known)
            story = story_of(request, Cache() if self.wrong("never-cached") else self.cache, f"{number:05d}", MODEL)
        return request, bend(story, request, self.wrongs, number)

    def _continue(self, request: Request, body: dict[str, Any], known: dict[str, list[tuple[str, str]]] | None) -> None:
        previous = body.get("previous_response_id")
        if request.protocol != "responses" or previous is None or self.wrong("previous-response-ignored"):
            return
        turns = (known or {}).get(previous) or self.chains.get(previous)
        if turns is None:
            raise BadRequestError(400, f"no response {previous!r}", "previous_response_id", "previous_response_not_found")
        own = [turn for turn in request.turns if turn[0] != "system"]
        system = [turn for turn in request.turns if turn[0] == "system"]
        kept = turns if self.wrong("instructions-carried") else [turn for turn in turns if turn[0] != "system"]
        doubled = kept * 2 if self.wrong("context-doubles") else kept
        request.turns = [*system, *doubled, *own]

    def remember(self, request: Request, response: dict[str, Any], frames: list[Frame], is_stored: bool) -> list[tuple[str, str]]:
        """The chain after this answer; kept where the request said so."""
        from conformance.checker.answer import answer_of_response
        from conformance.checker.client import Exchange

        answer = answer_of_response(Exchange("responses", "", "", None, {}), response)
        told = answer.text + "".join(f" call {call.name} {call.arguments}" for call in answer.calls)
        chain = [*request.turns, ("assistant", told)]
        if is_stored or self.wrong("stores-everything"):
            self.chains[response["id"]] = chain
            if not self.wrong("forgets-stored"):
                self.stored[response["id"]] = response
            self.streams[response["id"]] = frames
        return chain


def bend(story: Story, request: Request, wrongs: frozenset[str], number: int) -> Story:
    """Applies what the server does wrong to the generation itself."""
    from conformance.mutants.server_wrongs import BENDS

    for name in wrongs & set(BENDS):
        story = BENDS[name](story, request, number)
    return story


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: RightServer

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path, _, _ = self.path.partition("?")
        if self._state.wrong("beta-query-fails") and "beta=true" in self.path:
            return self._error("messages", 500, "beta")
        if path == "/v1/messages/count_tokens":
            return self._guarded("messages", raw, self._count)
        if path == "/v1/responses/input_tokens":
            return self._guarded("responses", raw, self._count)
        protocol = _PATHS.get(path)
        if protocol is None:
            return self._error("messages" if "messages" in path else "chat", 404, "no such path")
        return self._guarded(protocol, raw, self._generate)

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path == "/v1/models":
            return self._models()
        if path == "/v1/responses" and self.headers.get("upgrade", "").lower() == "websocket":
            return self._websocket()
        name = path.removeprefix("/v1/responses/")
        if path == "/v1/responses":
            status = 500 if self._state.wrong("plain-get-crashes") else 426
            return self._error("responses", status, "this path speaks WebSocket")
        if path.startswith("/v1/responses/") and name in self._state.streams and "stream=true" in query:
            after = int(query.rpartition("starting_after=")[2])
            again = 0 if self._state.wrong("resumes-from-start") else after + 1
            return self._stream(self._state.streams[name][again:])
        if path.startswith("/v1/responses/") and name in self._state.stored:
            return self._send(200, self._state.stored[name])
        return self._error("responses", 404, "no such thing")

    def do_DELETE(self) -> None:
        name = self.path.removeprefix("/v1/responses/")
        if name in self._state.stored and not self._state.wrong("delete-keeps"):
            del self._state.stored[name]
        self._send(200, {"id": name, "object": "response", "deleted": True})

    def do_HEAD(self) -> None:
        self.send_response(500 if self._state.wrong("head-crashes") else 200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        protocol = _PATHS.get(self.path, "chat")
        self._error(protocol, 400 if self._state.wrong("wrong-method-400") else 405, "no such method")

    def log_message(self, format: str, *args: Any) -> None:
        """Silence."""

    @property
    def _state(self) -> State:
        return self.server.state

    def _guarded(self, protocol: str, raw: bytes, run: Any) -> None:
        """Refuses what must be refused, in the protocol's words."""
        if len(raw) > _MAX_BODY:
            return self._error(protocol, 413, "the body is too large")
        key = self.headers.get("x-api-key") or self.headers.get("authorization", "").removeprefix("Bearer ")
        if key == "wrong" and not self._state.wrong("any-key"):
            return self._error(protocol, 401, "wrong key", None, "invalid_api_key")
        body: Any = None
        try:
            body = json.loads(raw)
            run(protocol, body)
        except ValueError:
            status = 500 if self._state.wrong("malformed-json-500") else 400
            self._error(protocol, status, "the body is no JSON", None, None)
        except BadRequestError as error:
            self._refuse(protocol, error, body)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            status = 500 if self._state.wrong("odd-types-crash") else 400
            self._error(protocol, status, f"a field has another type: {error}", None, "invalid_type")
        return None

    def _refuse(self, protocol: str, error: BadRequestError, body: Any) -> None:
        state = self._state
        if state.wrong("errors-in-band") and isinstance(body, dict) and body.get("stream"):
            return self._stream(
                [Frame(None, {"error": {"message": error.message, "type": "invalid_request_error", "param": None, "code": None}})]
            )
        if state.wrong("error-differs-streamed") and isinstance(body, dict) and body.get("stream"):
            return self._error(protocol, 422, error.message, error.param, error.code)
        if state.wrong("error-code-number"):
            return self._error(protocol, error.status, error.message, error.param, error.status)
        if state.wrong("unknown-model-500") and error.code == "model_not_found":
            return self._error(protocol, 500, error.message)
        return self._error(protocol, error.status, error.message, error.param, error.code)

    def _count(self, protocol: str, body: Any) -> None:
        if protocol == "messages":
            body.setdefault("max_tokens", 1)
        count = len(read_request(protocol, body, MODEL).words())
        if self._state.wrong("counts-without-tools"):
            count = len(read_request(protocol, {**body, "tools": []}, MODEL).words())
        extra = {"object": "response.input_tokens"} if protocol == "responses" else {}
        self._send(200, {**extra, "input_tokens": count})

    def _generate(self, protocol: str, body: Any) -> None:
        from conformance.mutants.server_wrongs import FRAME_EDITS, UNARY_EDITS

        if self._state.wrong("strict-fields") and {"metadata", "client_metadata", "context_management"} & set(body):
            raise BadRequestError(400, "unknown field", "metadata", "unknown_parameter")
        if self._state.wrong("refuses-custom-tools") and any(tool.get("type") == "custom" for tool in body.get("tools") or ()):
            raise BadRequestError(400, "no", "tools")
        request, story = self._state.answer(protocol, body)
        story.options["usage"] = bool((body.get("stream_options") or {}).get("include_usage"))
        if protocol == "responses":
            story.options["queued"] = bool(body.get("background"))
        renderer = _RENDERERS[protocol]
        frames = [Frame(one.event, json.loads(json.dumps(one.data)), one.is_comment) for one in renderer.render_stream(story)]
        unary = renderer.render_unary(story)
        if protocol == "messages" and story.option("stop"):
            for data in [
                unary,
                *(one.data["delta"] for one in frames if isinstance(one.data, dict) and one.data["type"] == "message_delta"),
            ]:
                data["stop_sequence"] = story.option("stop")
        if protocol == "chat" and story.option("logprobs") and unary["choices"][0]["message"]["content"]:
            pieces = [
                entry
                for one in frames
                if isinstance(one.data, dict)
                for choice in one.data["choices"]
                for entry in (choice["logprobs"] or {}).get("content", ())
            ]
            unary["choices"][0]["logprobs"] = {"content": pieces, "refusal": None}
        for name in self._state.wrongs:
            if name in FRAME_EDITS:
                FRAME_EDITS[name](protocol, frames)
            if name in UNARY_EDITS:
                UNARY_EDITS[name](protocol, unary)
        if protocol == "responses":
            final = (
                unary
                if not body.get("stream")
                else next(
                    one.data["response"] for one in reversed(frames) if isinstance(one.data, dict) and "response" in one.data
                )
            )
            self._state.remember(request, final, frames, body.get("store") is not False)
        if body.get("stream"):
            self._stream(frames)
        else:
            self._send(200, unary)

    def _stream(self, frames: list[Frame]) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json" if self._state.wrong("wrong-media-type") else "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self._own_headers()
        self.end_headers()
        try:
            if self._state.wrong("one-burst"):
                self._chunk(b"".join(frame.encode() for frame in frames))
            else:
                for frame in frames:
                    self._chunk(frame.encode())
            self.wfile.write(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _send(self, status: int, body: Any) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self._own_headers()
        self.end_headers()
        self.wfile.write(raw)

    def _own_headers(self) -> None:
        if not self._state.wrong("no-request-id"):
            self.send_header("x-request-id", f"req-{self._state.num_requests}")
        if self.headers.get("x-tokens-per-step"):
            self.send_header("x-tokens-per-step", self.headers["x-tokens-per-step"])

    def _error(self, protocol: str, status: int, message: str, param: str | None = None, code: Any = None) -> None:
        kinds = {401: "authentication_error", 404: "not_found_error", 413: "request_too_large", 500: "api_error"}
        if self._state.wrong("foreign-error-shape"):
            protocol = "chat" if protocol == "messages" else "messages"
        if protocol == "messages":
            error = {"type": kinds.get(status, "invalid_request_error"), "message": message}
            return self._send(status, {"type": "error", "error": error, "request_id": "req"})
        return self._send(status, {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}})

    def _models(self) -> None:
        is_anthropic = "anthropic-version" in self.headers
        if is_anthropic and not self._state.wrong("one-models-shape"):
            row = {"type": "model", "id": MODEL, "display_name": MODEL, "created_at": "2025-11-30T00:00:00Z"}
            return self._send(200, {"data": [row], "has_more": False, "first_id": MODEL, "last_id": MODEL})
        return self._send(
            200, {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 1764457200, "owned_by": "tests"}]}
        )

    def _websocket(self) -> None:
        """Takes the connection over: handshake by hand, frames by the sans-IO protocol of `websockets`."""
        protocol = ServerProtocol()
        head = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        protocol.receive_data(f"GET {self.path} HTTP/1.1\r\n{head}\r\n".encode())
        (handshake,) = protocol.events_received()
        assert isinstance(handshake, HandshakeRequest)
        protocol.send_response(protocol.accept(handshake))
        session = Session(self._state, protocol)
        self.close_connection = True
        try:
            self._flush(protocol)
            while data := self.connection.recv(65536):
                protocol.receive_data(data)
                for event in protocol.events_received():
                    if getattr(event, "opcode", None) in (Opcode.TEXT, Opcode.BINARY):
                        session.take(bytes(event.data))  # type: ignore[union-attr]
                self._flush(protocol)
                if session.is_over or protocol.close_expected():
                    break
        except OSError:
            return

    def _flush(self, protocol: ServerProtocol) -> None:
        for data in protocol.data_to_send():
            if data:
                self.connection.sendall(data)


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
        request, story = self._state.answer("responses", message, self._known)
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


class RightServer(ThreadingHTTPServer):
    """Loopback, on a free port."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, wrongs: frozenset[str] = frozenset()) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.state = State(wrongs)

    def server_bind(self) -> None:
        """Without the name lookup of the standard library, which waits for a resolver."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave are no news; all else is shown."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


@contextmanager
def right_server(*wrongs: str) -> Iterator[str]:
    """The base URL of a server that does nothing wrong but what is named."""
    server = RightServer(frozenset(wrongs))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
