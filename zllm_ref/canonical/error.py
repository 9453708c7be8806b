"""Errors that a client is told. Whose fault it is decides the kind, the protocol decides the shape.

ApiError
    caller's fault   INVALID_JSON INVALID_VALUE MISSING_FIELD UNSUPPORTED UNKNOWN_MODEL CONTEXT_OVERFLOW BODY_TOO_LARGE
                     UNAUTHENTICATED FORBIDDEN NOT_FOUND METHOD_NOT_ALLOWED CONFLICT
    not now          RATE_LIMITED BUSY OVERLOADED
    ours             INTERNAL
"""

from __future__ import annotations

from enum import StrEnum


class ErrorKind(StrEnum):
    INVALID_JSON = "invalid_json"
    INVALID_VALUE = "invalid_value"
    MISSING_FIELD = "missing_field"
    UNSUPPORTED = "unsupported"
    UNKNOWN_MODEL = "unknown_model"
    CONTEXT_OVERFLOW = "context_overflow"
    BODY_TOO_LARGE = "body_too_large"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    UPGRADE_REQUIRED = "upgrade_required"
    CONFLICT = "conflict"
    RATE_LIMITED = "rate_limited"
    BUSY = "busy"
    """As many answers at once as this server makes: what OpenAI calls a rate limit and Anthropic an overload."""
    OVERLOADED = "overloaded"
    INTERNAL = "internal"


class ApiError(Exception):
    """`message` says where, got, allowed; `param` is the path of the field at fault; `code` overrides the kind's own code."""

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.param = param
        self.code = code
        self.retry_after_seconds = retry_after_seconds

    def __repr__(self) -> str:
        return f"ApiError({self.kind.value}, {self.message!r}, param={self.param!r}, code={self.code!r})"
