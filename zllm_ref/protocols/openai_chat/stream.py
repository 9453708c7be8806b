"""Canonical events to Chat Completions chunks.

    choice = role-chunk piece* finish-chunk ; chunks of choices interleave ; [usage-chunk] [DONE]

What is equal in all chunks is serialised once; a piece costs the quoting of its text and one concatenation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
from zllm_ref.canonical.request import ToolChoiceNamed
from zllm_ref.canonical.usage import Usage
from zllm_ref.protocols.context import Profile
from zllm_ref.protocols.openai_chat.error import error_frame
from zllm_ref.protocols.openai_chat.request import ChatRequest
from zllm_ref.protocols.sse import DONE, Form, Frame, dump, quote

SYSTEM_FINGERPRINT = "fp_zllm_ref"
_LOWEST_LOGPROB = -9999.0  # JSON has no infinity; this is what OpenAI writes

_FINISH_REASONS = {
    FinishReason.END: "stop",
    FinishReason.STOP_STRING: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.CONTEXT_FULL: "length",
    FinishReason.TOOL_CALLS: "tool_calls",
    FinishReason.CONTENT_FILTER: "content_filter",
    FinishReason.REFUSAL: "stop",  # the refusal itself says what it is
}


@dataclass(slots=True)
class _Choice:
    is_open: bool = False
    is_finished: bool = False
    argument_pieces: int = 0
    is_custom: bool = False
    """The open call is one of a free-form tool."""
    forms: dict[str, Form] = field(default_factory=dict)
    """By what stands before the text in the delta."""


class Stream:
    """One answer's chunks. `include_usage` is the request's own wish, or True to fold a unary answer from the chunks."""

    def __init__(self, call: ChatRequest, *, include_usage: bool | None = None) -> None:
        self._call = call
        self._include_usage = call.include_usage if include_usage is None else include_usage
        self._usage_in_finish = call.profile is Profile.DEEPSEEK
        self._choices = [_Choice() for _ in range(call.request.num_choices)]
        self._cache_id: str | None = None
        head = {"id": call.id, "object": "chat.completion.chunk", "created": call.created, "model": call.request.model}
        head |= {"service_tier": "default", "system_fingerprint": SYSTEM_FINGERPRINT}
        self._head = dump(head)[:-1] + ',"choices":['  # CH1 CH2 CH3 CH4
        has_usage_key = self._include_usage or self._usage_in_finish
        self._tail = '],"usage":null}' if has_usage_key else "]}"  # CH17

    def on(self, event: Event) -> list[Frame]:
        """The chunks that this event makes, in order."""
        match event:
            case Started():
                self._cache_id = event.cache_id
                return []
            case TextDelta():
                if not event.text and not event.logprobs:
                    return []
                return [*self._opened(event.choice, '""'), self._piece(event, '{"content":')]
            case RefusalDelta():
                if not event.text and not event.logprobs:
                    return []
                return [*self._opened(event.choice, "null"), self._piece(event, '{"refusal":')]
            case ReasoningDelta():
                if not event.text:
                    return []
                # CH22: before the content, never inside it
                return [*self._opened(event.choice, "null"), self._form(event.choice, '{"reasoning_content":').fill(event.text)]
            case ToolCallStarted():
                return [*self._opened(event.choice, "null"), self._tool_open(event)]
            case ToolArgumentsDelta():
                return [self._tool_piece(event.choice, event.ordinal, event.text)] if event.text else []
            case ToolCallFinished():
                return self._tool_closed(event)
            case Finished():
                return self._finished(event)
            case Failed():
                return self.fail(event.error)
        assert_never(event)

    def fail(self, error: ApiError) -> list[Frame]:
        """An error is never the first thing that a stream says: known that early, it would have been an HTTP error (T6)."""
        opening = [] if any(choice.is_open for choice in self._choices) else self._opened(0, "null")
        return [*opening, error_frame(error)]

    def _opened(self, index: int, content: str) -> list[Frame]:
        """CH5: the first chunk of a choice, and no other, carries the role. `content` null stays null if no text follows."""
        choice = self._choices[index]
        if choice.is_open:
            return []
        choice.is_open = True
        return [self._chunk(index, f'{{"role":"assistant","content":{content},"refusal":null}}')]

    def _chunk(self, index: int, delta: str, logprobs: str = "null", finish: str = "null") -> Frame:
        choice = f'{{"index":{index},"delta":{delta},"logprobs":{logprobs},"finish_reason":{finish}}}'
        return Frame(self._head + choice + self._tail)

    def _piece(self, event: TextDelta | RefusalDelta, before: str) -> Frame:
        if not self._call.request.logprobs:
            return self._form(event.choice, before).fill(event.text)
        kind = "content" if isinstance(event, TextDelta) else "refusal"
        return self._chunk(event.choice, f"{before}{quote(event.text)}}}", self._logprobs(event.logprobs, kind))

    def _form(self, index: int, before: str, after: str = "}") -> Form:
        """Chunks of this choice whose delta is `before`, a text, `after`."""
        forms = self._choices[index].forms
        form = forms.get(before)
        if form is None:
            head = f'{self._head}{{"index":{index},"delta":{before}'
            form = forms[before] = Form(head, f'{after},"logprobs":null,"finish_reason":null}}{self._tail}')
        return form

    def _tool_open(self, event: ToolCallStarted) -> Frame:
        choice = self._choices[event.choice]
        choice.argument_pieces, choice.is_custom = 0, event.custom
        call: dict[str, Any] = {"index": event.ordinal, "id": event.call_id}  # CH10 CH11
        if event.custom:
            call |= {"type": "custom", "custom": {"name": event.name, "input": ""}}
        else:
            call |= {"type": "function", "function": {"name": event.name, "arguments": ""}}
        return self._chunk(event.choice, dump({"tool_calls": [call]}))

    def _tool_piece(self, index: int, ordinal: int, text: str) -> Frame:
        """CH12: neither id nor name again: readers would append them."""
        choice = self._choices[index]
        choice.argument_pieces += 1
        body = '"custom":{"input":' if choice.is_custom else '"function":{"arguments":'
        return self._form(index, f'{{"tool_calls":[{{"index":{ordinal},{body}', "}}]}").fill(text)

    def _tool_closed(self, event: ToolCallFinished) -> list[Frame]:
        """CH14: the joined arguments are a JSON object, `{}` where the model wrote none; free-form input may be empty."""
        choice = self._choices[event.choice]
        if choice.argument_pieces or choice.is_custom:
            return []
        return [self._tool_piece(event.choice, event.ordinal, event.arguments or "{}")]

    def _finished(self, event: Finished) -> list[Frame]:
        choice = self._choices[event.choice]
        frames = self._opened(event.choice, '""')
        choice.is_finished = True
        reason = _FINISH_REASONS[event.reason]
        if reason == "tool_calls" and isinstance(self._call.request.tool_choice, ToolChoiceNamed):
            reason = "stop" if self._call.profile is Profile.OPENAI else reason  # CH15: OpenAI's own answer to a named choice
        last = all(each.is_finished for each in self._choices)
        frame = self._chunk(event.choice, "{}", finish=quote(reason))
        if not last:
            return [*frames, frame]
        extension = f',"zllm":{dump({"cache_id": self._cache_id})}' if self._cache_id is not None else ""
        usage = dump(render_usage(event.usage))
        if self._usage_in_finish:
            frame = Frame(frame.data.removesuffix('"usage":null}') + f'"usage":{usage}{extension}}}')
            return [*frames, frame, DONE]
        frame = Frame(frame.data[:-1] + extension + "}")
        frames.append(frame)
        if self._include_usage:
            frames.append(Frame(f'{self._head}],"usage":{usage}{extension}}}'))
        return [*frames, DONE]

    @staticmethod
    def _logprobs(tokens: tuple[TokenLogprob, ...], kind: str) -> str:
        return dump({"content": None, "refusal": None, kind: [_token(token) for token in tokens]})  # CH21


def render_usage(usage: Usage) -> dict[str, Any]:
    """CH18, in OpenAI's convention and in DeepSeek's, which some clients read alone."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
        "prompt_cache_hit_tokens": usage.cached_tokens,
        "prompt_cache_miss_tokens": usage.prompt_tokens - usage.cached_tokens,
    }


def _token(token: TokenLogprob) -> dict[str, Any]:
    top = [
        {"token": other.text, "logprob": max(other.logprob, _LOWEST_LOGPROB), "bytes": list(other.bytes)} for other in token.top
    ]
    logprob = max(token.logprob, _LOWEST_LOGPROB)
    return {"token": token.text, "logprob": logprob, "bytes": list(token.bytes), "top_logprobs": top}
