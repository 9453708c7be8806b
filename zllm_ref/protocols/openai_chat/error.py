"""Errors of Chat Completions: OpenAI's body, and the frame that ends a stream which had already begun (T7, CH25)."""

from __future__ import annotations

from zllm_ref.canonical.error import ApiError
from zllm_ref.protocols.openai_error import fields_of, status_of
from zllm_ref.protocols.sse import Frame, dump

__all__ = ["error_frame", "render_error", "status_of"]


def render_error(error: ApiError) -> str:
    return dump({"error": fields_of(error, "messages")})


def error_frame(error: ApiError) -> Frame:
    """Neither a finish chunk nor a `[DONE]` follows it: nothing after it could be taken for success."""
    return Frame(render_error(error))
