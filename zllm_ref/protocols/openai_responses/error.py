"""Errors of Responses: OpenAI's body, the error of a failed response, and the envelope of the WebSocket (WS7)."""

from __future__ import annotations

from typing import Any

from zllm_ref.canonical.error import ApiError
from zllm_ref.protocols.openai_error import fields_of, status_of
from zllm_ref.protocols.sse import dump

__all__ = ["render_error", "render_failure", "render_websocket_error", "status_of"]


def render_error(error: ApiError) -> str:
    return dump({"error": fields_of(error, "input")})


def render_failure(error: ApiError) -> str:
    """`response.error` of a failed response: readers decide by its code whether to try again (protocols.md 1.4)."""
    return dump({"code": fields_of(error, "input")["code"] or "server_error", "message": error.message})


def render_websocket_error(error: ApiError, *, stream_id: str | None = None) -> str:
    """With a numeric status: Codex ignores an error without one and waits for its idle time-out."""
    envelope: dict[str, Any] = {"type": "error", "status": status_of(error), "error": fields_of(error, "input")}
    if stream_id is not None:
        envelope["stream_id"] = stream_id
    return dump(envelope)
