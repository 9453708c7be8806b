"""Canonical events to Messages events.

    message_start block* message_delta message_stop        one block open at a time, numbered from 0
    block = content_block_start delta* content_block_stop

A block keeps the constant half of its delta events serialised; a delta costs the quoting of its text and one concatenation.
"""

from __future__ import annotations

from typing import Any, assert_never

from zllm_ref.canonical.error import ApiError
from zllm_ref.canonical.event import (
    Event,
    Failed,
    Finished,
    FinishReason,
    ReasoningDelta,
    RefusalDelta,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from zllm_ref.canonical.usage import Usage
from zllm_ref.protocols.anthropic_messages.blocks import shown_id
from zllm_ref.protocols.anthropic_messages.error import error_frame
from zllm_ref.protocols.anthropic_messages.request import MessagesRequest
from zllm_ref.protocols.sse import Form, Frame, dump

# AN15. The published schema requires `citations`, and the AI SDK's reader refuses a null there.
_EMPTY_TEXT: dict[str, Any] = {"type": "text", "text": "", "citations": []}

PING = Frame('{"type":"ping"}', "ping")

_STOP_REASONS = {
    FinishReason.END: "end_turn",
    FinishReason.STOP_STRING: "stop_sequence",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.CONTEXT_FULL: "model_context_window_exceeded",
    FinishReason.TOOL_CALLS: "tool_use",
    FinishReason.CONTENT_FILTER: "refusal",
    FinishReason.REFUSAL: "refusal",
}


class Stream:
    """One message's events. Where no thinking was asked for, none is shown (AN17)."""

    def __init__(self, call: MessagesRequest) -> None:
        self._call = call
        self._cache_id: str | None = None
        self._index = -1
        self._block: str | None = None
        self._form: Form | None = None
        self._thinking: list[str] = []

    def on(self, event: Event) -> list[Frame]:
        """The events that this event makes, in order."""
        match event:
            case Started():
                self._cache_id = event.cache_id
                return [self._message_start(event.usage)]
            case TextDelta() | RefusalDelta():  # this API has no block for a refusal: it is text, and the stop reason says so
                if not event.text:
                    return []
                return [*self._switched("text"), self._delta(event.text)]
            case ReasoningDelta():
                return self._reasoning(event.text) if event.text and self._call.show_thinking else []
            case ToolCallStarted():
                block: dict[str, Any] = {"type": "tool_use", "id": shown_id(event.call_id), "name": event.name}
                block |= {"input": {}, "caller": {"type": "direct"}}  # AN6 AN7
                frames = [*self._closed(), *self._started("tool_use", block, '"input_json_delta","partial_json":')]
                return [*frames, self._delta("")]
            case ToolArgumentsDelta():
                return [self._delta(event.text)] if event.text else []
            case ToolCallFinished():
                return self._closed()
            case Finished():
                return self._finished(event)
            case Failed():
                return self.fail(event.error)
        assert_never(event)

    def fail(self, error: ApiError) -> list[Frame]:
        return [error_frame(error, self._call.request.request_id)]

    def _message_start(self, usage: Usage) -> Frame:
        message: dict[str, Any] = {"id": self._call.id, "type": "message", "role": "assistant", "model": self._call.request.model}
        message |= {"content": [], "stop_reason": None, "stop_sequence": None, "stop_details": None, "container": None}  # AN1
        message["usage"] = render_usage(self._call, usage)
        return Frame(dump({"type": "message_start", "message": message}), "message_start")

    def _reasoning(self, text: str) -> list[Frame]:
        frames = self._switched("thinking")
        self._thinking.append(text)
        return frames if self._call.omit_thinking_text else [*frames, self._delta(text)]

    def _switched(self, kind: str) -> list[Frame]:
        """Events that close the open block, if it is of another kind, and start one of this kind."""
        if self._block == kind:
            return []
        if kind == "text":
            return [*self._closed(), *self._started(kind, _EMPTY_TEXT, '"text_delta","text":')]
        block = {"type": "thinking", "thinking": "", "signature": ""}
        return [*self._closed(), *self._started(kind, block, '"thinking_delta","thinking":')]

    def _started(self, kind: str, block: dict[str, Any], delta_type: str) -> list[Frame]:
        self._block = kind
        self._index += 1  # AN3
        head = f'{{"type":"content_block_delta","index":{self._index},"delta":{{"type":{delta_type}'
        self._form = Form(head, "}}", "content_block_delta")
        start = {"type": "content_block_start", "index": self._index, "content_block": block}
        return [Frame(dump(start), "content_block_start")]

    def _delta(self, text: str) -> Frame:
        assert self._form is not None, "a delta without an open block"
        return self._form.fill(text)

    def _closed(self) -> list[Frame]:
        if self._block is None:
            return []
        frames = []
        if self._block == "thinking":
            frames.append(self._signature())
        self._block = None
        frames.append(Frame(f'{{"type":"content_block_stop","index":{self._index}}}', "content_block_stop"))
        return frames

    def _signature(self) -> Frame:
        """AN8: exactly one, last. Where the text is not shown, the signature carries it, readable by this server alone."""
        text = "".join(self._thinking)
        self._thinking.clear()
        signature = self._call.seal.seal(text) if self._call.omit_thinking_text else self._call.seal.sign(text)
        delta = {"type": "signature_delta", "signature": signature}
        return Frame(dump({"type": "content_block_delta", "index": self._index, "delta": delta}), "content_block_delta")

    def _finished(self, event: Finished) -> list[Frame]:
        reason = _STOP_REASONS[event.reason]
        stop_string = event.stop_string if reason == "stop_sequence" else None
        delta: dict[str, Any] = {
            "stop_reason": reason,
            "stop_sequence": stop_string,
            "stop_details": None,
            "container": None,
        }  # AN9 AN10
        if reason == "refusal":
            delta["stop_details"] = {"type": "refusal", "category": None, "explanation": None}
        last: dict[str, Any] = {"type": "message_delta", "delta": delta, "usage": render_usage(self._call, event.usage)}
        if self._cache_id is not None:
            last["zllm"] = {"cache_id": self._cache_id}
        return [*self._closed(), Frame(dump(last), "message_delta"), Frame('{"type":"message_stop"}', "message_stop")]  # AN11


def render_usage(call: MessagesRequest, usage: Usage) -> dict[str, Any]:
    """AN12, AN13: three counts that add up to the prompt. A write is told where the client asked for one by `cache_control`."""
    written = usage.cache_write_tokens if call.request.cache.marked else 0
    short, long = (0, written) if call.write_ttl == "1h" else (written, 0)
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens - written,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation": {"ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": long},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
        "server_tool_use": None,
        "service_tier": "standard",
        "inference_geo": None,
    }
