"""What the server tells the recorder, where there is one: how a request came in, and how one ended that did not end well."""

from __future__ import annotations

from starlette.types import Scope

from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.inspector import Arrival, Record, Recorder, State
from zllm_ref.server.wire import ErrorShape

_GENERATING = {
    "/v1/chat/completions": "chat",
    "/v1/messages": "messages",
    "/v1/responses": "responses",
    "/v1/responses/compact": "responses",
}
_SHOWN_HEADERS = frozenset(
    (b"user-agent", b"content-type", b"content-length", b"accept", b"anthropic-version", b"anthropic-beta", b"openai-beta",
     b"originator", b"x-tokens-per-step", b"x-stainless-lang", b"x-stainless-package-version", b"x-stainless-runtime")
)  # fmt: skip
"""Never a key, a cookie or an account."""
_MOST_VALUE = 300


def arrived(recorder: Recorder | None, scope: Scope, request_id: str, owner: str, raw: bytes) -> Record | None:
    """A request that will generate, with its whole body. None: nobody records, or this path makes no tokens."""
    websocket = scope["type"] == "websocket"
    protocol = _GENERATING.get(scope["path"])
    if recorder is None or protocol is None or (not websocket and scope["method"] != "POST"):
        return None
    shown = tuple(
        (name.decode("latin-1"), value.decode("latin-1")[:_MOST_VALUE])
        for name, value in scope["headers"]
        if name in _SHOWN_HEADERS
    )
    transport, method = ("websocket", "GET") if websocket else ("unary", "POST")
    return recorder.arrive(request_id, owner, Arrival(protocol, transport, method, scope["path"], shown, raw))


def refused(recorder: Recorder | None, errors: ErrorShape, error: ApiError, request_id: str) -> None:
    """The request was answered with an error and nothing else."""
    record = recorder.get(request_id) if recorder is not None else None
    if record is not None:
        record.on_body(errors.status_of(error), errors.render(error, request_id))
        record.on_end(end_of(error), error.message)


def end_of(error: BaseException | None) -> State:
    """Whose fault an end is: ours (failed), the request's or the hour's (refused), nobody's (the client has gone)."""
    if isinstance(error, ApiError):
        return State.FAILED if error.kind is ErrorKind.INTERNAL else State.REFUSED
    return State.FAILED if isinstance(error, Exception) else State.CANCELLED
