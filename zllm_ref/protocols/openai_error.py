"""The errors of OpenAI's two APIs: status, type, code and body (protocols.md 1.4). They differ in streams only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zllm_ref.canonical.error import ApiError, ErrorKind


@dataclass(frozen=True, slots=True)
class Row:
    status: int
    type: str
    code: str | None


_CALLER = "invalid_request_error"
_TABLE: dict[ErrorKind, Row] = {
    ErrorKind.INVALID_JSON: Row(400, _CALLER, None),
    ErrorKind.INVALID_VALUE: Row(400, _CALLER, "invalid_value"),
    ErrorKind.MISSING_FIELD: Row(400, _CALLER, "missing_required_parameter"),
    ErrorKind.UNSUPPORTED: Row(400, _CALLER, "unsupported_parameter"),
    ErrorKind.UNKNOWN_MODEL: Row(404, _CALLER, "model_not_found"),
    ErrorKind.CONTEXT_OVERFLOW: Row(400, _CALLER, "context_length_exceeded"),
    ErrorKind.BODY_TOO_LARGE: Row(413, _CALLER, "request_too_large"),
    ErrorKind.UNAUTHENTICATED: Row(401, _CALLER, "invalid_api_key"),
    ErrorKind.FORBIDDEN: Row(403, _CALLER, None),
    ErrorKind.NOT_FOUND: Row(404, _CALLER, "not_found"),
    ErrorKind.METHOD_NOT_ALLOWED: Row(405, _CALLER, "method_not_allowed"),
    ErrorKind.UPGRADE_REQUIRED: Row(426, _CALLER, "upgrade_required"),
    ErrorKind.CONFLICT: Row(409, _CALLER, "conflict"),
    ErrorKind.RATE_LIMITED: Row(429, "rate_limit_error", "rate_limit_exceeded"),
    ErrorKind.BUSY: Row(429, "rate_limit_error", "rate_limit_exceeded"),
    ErrorKind.OVERLOADED: Row(503, "server_error", "server_is_overloaded"),
    ErrorKind.INTERNAL: Row(500, "server_error", "server_error"),
}


def status_of(error: ApiError) -> int:
    return _TABLE[error.kind].status


def fields_of(error: ApiError, prompt_field: str) -> dict[str, Any]:
    """The four keys of an error object, always all of them (E2), `code` a string or null (E3).

    An overflow is the fault of the field that holds the prompt, which each API names differently.
    """
    row = _TABLE[error.kind]
    param = prompt_field if error.param is None and error.kind is ErrorKind.CONTEXT_OVERFLOW else error.param
    return {"message": error.message, "type": row.type, "param": param, "code": error.code or row.code}
