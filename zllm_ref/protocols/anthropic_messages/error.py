"""Errors of Messages: status, type and body (protocols.md 1.4), and the event that ends a stream which had already begun (T7)."""

from __future__ import annotations

import re
from typing import Any

from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.protocols.sse import Frame, dump

_TABLE: dict[ErrorKind, tuple[int, str]] = {
    ErrorKind.INVALID_JSON: (400, "invalid_request_error"),
    ErrorKind.INVALID_VALUE: (400, "invalid_request_error"),
    ErrorKind.MISSING_FIELD: (400, "invalid_request_error"),
    ErrorKind.UNSUPPORTED: (400, "invalid_request_error"),
    ErrorKind.UNKNOWN_MODEL: (404, "not_found_error"),
    ErrorKind.CONTEXT_OVERFLOW: (400, "invalid_request_error"),
    ErrorKind.BODY_TOO_LARGE: (413, "request_too_large"),
    ErrorKind.UNAUTHENTICATED: (401, "authentication_error"),
    ErrorKind.FORBIDDEN: (403, "permission_error"),
    ErrorKind.NOT_FOUND: (404, "not_found_error"),
    ErrorKind.METHOD_NOT_ALLOWED: (405, "invalid_request_error"),
    ErrorKind.UPGRADE_REQUIRED: (426, "invalid_request_error"),
    ErrorKind.CONFLICT: (409, "invalid_request_error"),
    ErrorKind.RATE_LIMITED: (429, "rate_limit_error"),
    ErrorKind.BUSY: (529, "overloaded_error"),
    ErrorKind.OVERLOADED: (529, "overloaded_error"),
    ErrorKind.INTERNAL: (500, "api_error"),
}
_INDEX = re.compile(r"\[(\d+)\]")
_OVERFLOW = "prompt is too long"  # by this text, and the counts after it, Claude Code knows an overflow
_COUNTS = re.compile(r"got (\d+) tokens, allowed (\d+)")


def status_of(error: ApiError) -> int:
    return _TABLE[error.kind][0]


def render_error(error: ApiError, request_id: str) -> str:
    body: dict[str, Any] = {"type": "error", "error": {"type": _TABLE[error.kind][1], "message": _message(error)}}
    return dump(body | {"request_id": f"req_{request_id}"})


def error_frame(error: ApiError, request_id: str) -> Frame:
    return Frame(render_error(error, request_id), "error")


def _message(error: ApiError) -> str:
    """This API has no field for the path: the message begins with it, spelt `messages.0.role`."""
    text = error.message
    if error.param is not None:
        text = text.replace(f"'{error.param}'", _INDEX.sub(r".\1", error.param), 1)
    if error.kind is ErrorKind.CONTEXT_OVERFLOW:
        counts = _COUNTS.search(text)
        if counts is not None:
            return f"{_OVERFLOW}: {counts.group(1)} tokens > {counts.group(2)} maximum"
        return text if _OVERFLOW in text else f"{_OVERFLOW}: {text}"
    return text
