"""One HTTP connection of the small right server: paths, refusals, and what goes out."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Final

from conformance.golden import render_chat, render_messages, render_responses
from conformance.golden.story import Frame
from conformance.mutants.brain import BadRequestError
from conformance.mutants.connection import serve_websocket
from conformance.mutants.requests import read_request
from conformance.mutants.server_wrongs import FRAME_EDITS, UNARY_EDITS
from conformance.mutants.state import MODEL, State

if TYPE_CHECKING:
    from conformance.mutants.server import RightServer

_PATHS: Final = {"/v1/chat/completions": "chat", "/v1/responses": "responses", "/v1/messages": "messages"}
_RENDERERS: Final[dict[str, Any]] = {"chat": render_chat, "responses": render_responses, "messages": render_messages}
_MAX_BODY: Final = 16_000_000


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
        if self._state.wrong("refuses-betas") and self.headers.get("anthropic-beta"):
            return self._error("messages", 400, "unknown beta")
        if path == "/v1/messages/count_tokens":
            return self._guarded("messages", raw, self._count)
        if path == "/v1/responses/input_tokens":
            return self._guarded("responses", raw, self._count)
        protocol = _PATHS.get(path)
        if protocol in self._state.absent:
            protocol = None
        if protocol is None and self._state.wrong("unknown-path-is-text"):
            return self._text(404, "Not Found")
        if protocol is None:
            return self._error("messages" if "messages" in path else "chat", 404, "no such path")
        return self._guarded(protocol, raw, self._generate)

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        self._state.num_touched += path.startswith("/v1/responses")
        if path == "/v1/models":
            return self._models()
        if path == "/v1/responses" and self.headers.get("upgrade", "").lower() == "websocket" and not self._state.absent:
            self.close_connection = True
            return serve_websocket(self._state, self.connection, self.path, dict(self.headers.items()))
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
        return self._error("responses", 404, f"no response {name!r}")

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
        is_let_in = key != "wrong" and (key or not self._state.wrong("needs-key"))
        if not is_let_in and not self._state.wrong("any-key"):
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
        if state.wrong("names-no-param"):
            return self._error(protocol, error.status, error.message, None, error.code)
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
        self._state.num_touched += 1
        if self._state.wrong("busy-afterwards") and self._state.num_touched > 1:
            raise BadRequestError(503, "busy")
        request, story = self._state.answer(protocol, body)
        if self._state.wrong("beta-query-counts") and "beta=true" in self.path:
            story = replace(story, prompt_tokens=story.prompt_tokens + 7)
        story.options["usage"] = bool((body.get("stream_options") or {}).get("include_usage"))
        if protocol == "responses":
            story.options["queued"] = bool(body.get("background"))
        renderer = _RENDERERS[protocol]
        told = replace(story, end="stop") if story.end == "error" and self._state.wrong("failure-called-stop") else story
        frames = [Frame(one.event, json.loads(json.dumps(one.data)), one.is_comment) for one in renderer.render_stream(told)]
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
            self._stream(frames, story.option("stall", 0.0))
        elif story.end == "error":
            self._error(protocol, 500, "the engine failed", None, "engine_error")
        else:
            self._send(200, unary)

    def _stream(self, frames: list[Frame], stall_seconds: float = 0.0) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json" if self._state.wrong("wrong-media-type") else "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self._own_headers()
        self.end_headers()
        try:
            if self._state.wrong("one-burst"):
                self._chunk(b"".join(frame.encode() for frame in frames))
            else:
                for number, frame in enumerate(frames):
                    if number == (1 if self._state.wrong("holds-back-before-stall") else len(frames) // 2):
                        time.sleep(stall_seconds)
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

    def _text(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("content-type", "text/plain")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

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
