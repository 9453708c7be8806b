"""Canonical events to Responses events.

    created [queued] in_progress item* (completed | incomplete | failed)    one item open at a time, numbered as they are added
    item = output_item.added body output_item.done

A background response is queued until its first token; its client has an id long before that.

A part keeps the constant half of its delta events serialised; a delta costs the quoting of its text and one concatenation.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    TokenLogprob,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from zllm_ref.canonical.usage import Usage
from zllm_ref.protocols.context import Profile
from zllm_ref.protocols.openai_responses.error import render_failure
from zllm_ref.protocols.openai_responses.open_item import REFUSAL, TEXT, Growth, OpenItem, call_item, message_item, reasoning_item
from zllm_ref.protocols.openai_responses.request import ResponsesRequest
from zllm_ref.protocols.openai_responses.response import render_response
from zllm_ref.protocols.sse import DONE, Frame

_INCOMPLETE = {
    FinishReason.LENGTH: "max_output_tokens",
    FinishReason.CONTEXT_FULL: "max_output_tokens",
    FinishReason.CONTENT_FILTER: "content_filter",
}
_LOWEST_LOGPROB = -9999.0


class Stream:
    """One response's events."""

    def __init__(self, call: ResponsesRequest) -> None:
        self._call = call
        self._sequence_number = 0
        self._number_of_end: int | None = None
        self._is_created = False
        self._is_open = False
        self._cache_id: str | None = None
        self._output: list[str] = []
        self._item: OpenItem | None = None

    @property
    def output(self) -> tuple[str, ...]:
        """The finished items so far, as JSON texts."""
        return tuple(self._output)

    def on(self, event: Event) -> list[Frame]:
        """The events that this event makes, in order."""
        match event:
            case Started():
                self._cache_id = event.cache_id
                return self._opened()
            case TextDelta():
                if not event.text and not event.logprobs:
                    return []
                return [*self._in_message(TEXT), self._delta(event.text, self._logprobs(event.logprobs))]
            case RefusalDelta():
                return [*self._in_message(REFUSAL), self._delta(event.text)] if event.text else []
            case ReasoningDelta():
                return [*self._in_reasoning(), self._delta(event.text)] if event.text else []
            case ToolCallStarted():
                return [*self._closed("completed"), *self._added(call_item(self._call, len(self._output), event))]
            case ToolArgumentsDelta():
                return [self._delta(event.text)] if event.text else []
            case ToolCallFinished():
                return self._call_finished(event)
            case Finished():
                return self._finished(event)
            case Failed():
                return self.fail(event.error)
        assert_never(event)

    def fail(self, error: ApiError) -> list[Frame]:
        """`response.failed` and nothing else: readers that ignore `error` events still see the end (clients.md 6.8).

        Where another end was made already, this one has its number (RS3): it goes out in its place.
        """
        if self._number_of_end is not None:
            self._sequence_number = self._number_of_end
        frames = [*self._opened(), *self._closed("incomplete")]
        return [
            *frames,
            *self._terminal("failed", render_response(self._call, "failed", self._output, error=render_failure(error))),
        ]

    def end_with_item(self, item: str, usage: Usage) -> list[Frame]:
        """Completes a response that is one item which does not grow."""
        index = len(self._output)
        self._output.append(item)
        frames = [*self._opened()]
        frames += [
            self._frame(f"response.output_item.{end}", f'"output_index":{index},"item":{item}') for end in ("added", "done")
        ]
        response = render_response(self._call, "completed", self._output, usage=usage, cache_id=self._cache_id)
        return [*frames, *self._terminal("completed", response)]

    def end_empty(self, usage: Usage) -> list[Frame]:
        """Completes a response that says nothing (WS10)."""
        response = render_response(self._call, "completed", usage=usage, cache_id=self._cache_id)
        return [*self._opened(), *self._terminal("completed", response)]

    def end_incomplete(self, reason: str, usage: Usage) -> list[Frame]:
        """Ends a response that is steered away: what was said stays."""
        frames = [*self._opened(), *self._closed("incomplete")]
        response = render_response(self._call, "incomplete", self._output, usage=usage, incomplete_reason=reason)
        return [*frames, *self._terminal("incomplete", response)]

    def created(self) -> list[Frame]:
        """RS1: the first events of a response, before anything is known of its answer. Nothing the second time."""
        if self._is_created:
            return []
        self._is_created = True
        names, status = (("created", "queued"), "queued") if self._call.background else (("created",), "in_progress")
        response = render_response(self._call, status)
        return [self._frame(f"response.{name}", f'"response":{response}') for name in names]

    def _opened(self) -> list[Frame]:
        if self._is_open:
            return []
        self._is_open = True
        frames = self.created()
        return [*frames, self._frame("response.in_progress", f'"response":{render_response(self._call, "in_progress")}')]

    def _in_message(self, growth: Growth) -> list[Frame]:
        """Events after which a part of this kind is open in a message: the next part of an open one, or a new message."""
        item = self._item
        if item is None or item.kind != "message":
            return [*self._closed("completed"), *self._added(message_item(self._call, len(self._output), growth))]
        if item.grows_by(growth):
            return []
        frames = self._of_item(item.part_done())
        item.next_part(growth)
        return frames + self._of_item(item.part_added())

    def _in_reasoning(self) -> list[Frame]:
        if self._item is not None and self._item.kind == "reasoning":
            return []
        return [*self._closed("completed"), *self._added(reasoning_item(self._call, len(self._output)))]

    def _of_item(self, events: Iterable[tuple[str, str]]) -> list[Frame]:
        return [self._frame(name, body) for name, body in events]

    def _added(self, item: OpenItem) -> list[Frame]:
        self._item = item
        frames = [self._frame("response.output_item.added", f'"output_index":{item.index},"item":{item.initial()}')]
        return frames + self._of_item(item.part_added())

    def _delta(self, text: str, logprobs: list[Any] | None = None) -> Frame:
        item = self._item
        assert item is not None, "a delta without an open item"
        return item.delta(text, self._next_number(), logprobs)

    def _closed(self, status: str) -> list[Frame]:
        """Ends the open item. A call that something else ends never came to its own end: it broke off, or was found invalid."""
        is_call = self._item is not None and self._item.kind in ("function_call", "custom_tool_call")
        return self._done("incomplete" if is_call else status)

    def _done(self, status: str) -> list[Frame]:
        """RS10, RS11: text.done, part.done, item.done; the done item is what the response will list (RS12)."""
        item, self._item = self._item, None
        if item is None:
            return []
        frames = self._of_item(item.part_done())
        final = item.final(status)
        self._output.append(final)
        return [*frames, self._frame("response.output_item.done", f'"output_index":{item.index},"item":{final}')]

    def _call_finished(self, event: ToolCallFinished) -> list[Frame]:
        item = self._item
        assert item is not None, "the end of a call that is not open"
        frames = []
        if item.is_empty and item.kind == "function_call":
            frames.append(self._delta(event.arguments or "{}"))  # RS9: the joined arguments are an object
        return [*frames, *self._done("completed")]

    def _finished(self, event: Finished) -> list[Frame]:
        reason = _INCOMPLETE.get(event.reason)
        status = "completed" if reason is None else "incomplete"
        frames = [] if self._item is not None or self._output else self._in_message(TEXT)
        frames += self._closed(status)
        response = render_response(
            self._call, status, self._output, usage=event.usage, incomplete_reason=reason, cache_id=self._cache_id
        )
        return [*frames, *self._terminal(status, response)]

    def _terminal(self, status: str, response: str) -> list[Frame]:
        self._number_of_end = self._sequence_number
        frame = self._frame(f"response.{status}", f'"response":{response}')  # RS2
        return [frame, DONE] if self._call.profile is Profile.OPENRESPONSES else [frame]  # T4

    def _frame(self, name: str, body: str) -> Frame:
        return Frame(f'{{"type":"{name}","sequence_number":{self._next_number()},{body}}}', name)

    def _next_number(self) -> int:
        number = self._sequence_number  # RS3
        self._sequence_number = number + 1
        return number

    def _logprobs(self, tokens: tuple[TokenLogprob, ...]) -> list[Any] | None:
        if not self._call.include_logprobs:
            return None
        return [_token(token) for token in tokens]


def _token(token: TokenLogprob) -> dict[str, Any]:
    top = [
        {"token": other.text, "logprob": max(other.logprob, _LOWEST_LOGPROB), "bytes": list(other.bytes)} for other in token.top
    ]
    logprob = max(token.logprob, _LOWEST_LOGPROB)
    return {"token": token.text, "logprob": logprob, "bytes": list(token.bytes), "top_logprobs": top}
