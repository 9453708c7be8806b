"""The `response` object, and the unary answer: the object that the stream's terminal event carries (RS25)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zllm_ref.canonical.usage import Usage
from zllm_ref.protocols.openai_responses.request import ResponsesRequest
from zllm_ref.protocols.sse import Frame, dump, quote

TERMINAL = {"response.completed": "completed", "response.incomplete": "incomplete", "response.failed": "failed"}


def render_response(
    call: ResponsesRequest,
    status: str,
    output: Sequence[str] = (),
    *,
    usage: Usage | None = None,
    error: str = "null",
    incomplete_reason: str | None = None,
    cache_id: str | None = None,
) -> str:
    """JSON text with every key present, nulls included. `output` and `error` are JSON texts already."""
    parts = [
        f'"id":{quote(call.id)},"object":"response","created_at":{call.created},"status":{quote(status)}',
        f'"completed_at":{call.clock() if status == "completed" else "null"}',
        f'"error":{error},"incomplete_details":' + ("null" if incomplete_reason is None else dump({"reason": incomplete_reason})),
        f'"model":{quote(call.request.model)},"output":[{",".join(output)}]',
        call.echo,
        '"usage":' + ("null" if usage is None else dump(render_usage(usage))),
    ]
    if cache_id is not None:
        parts.append(f'"zllm":{dump({"cache_id": cache_id})}')
    return "{" + ",".join(parts) + "}"


def render_usage(usage: Usage) -> dict[str, Any]:
    """RS13."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


def response_text(terminal: Frame) -> str:
    """The response object of a terminal event, exactly as it goes out (RS21)."""
    start = terminal.data.index('"response":') + len('"response":')
    return terminal.data[start:-1]


class Accumulator:
    """Takes the frames of a `Stream`; all that a unary answer needs stands in the last one."""

    def __init__(self) -> None:
        self._response: dict[str, Any] | None = None

    def on(self, frame: Frame) -> None:
        if frame.event in TERMINAL:
            self._response = frame.payload["response"]

    def result(self) -> str:
        """The JSON text of the whole answer."""
        assert self._response is not None, "no terminal event"
        return dump(self._response)
