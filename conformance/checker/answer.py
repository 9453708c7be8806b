"""What an answer says, whatever the protocol: text, reasoning, calls, why it ended, what it cost.

Made from the raw frames of a stream or from a unary object. It trusts nothing and raises nothing: what has the wrong type is
left out here, and told by the grammar and the laws.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from conformance.checker.client import Exchange
from conformance.checker.laws.law import at_path
from conformance.checker.laws.messages import prompt_total
from conformance.checker.sse import SseDecoder

_ENDS: Final = {
    "stop": "stop", "tool_calls": "calls", "length": "length", "content_filter": "filter",
    "end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "calls", "refusal": "filter",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    arguments: str
    namespace: str | None = None
    kind: str = "function"

    def value(self) -> Any:
        """The arguments as a value; their text where they are no JSON."""
        try:
            return json.loads(self.arguments or "{}")
        except ValueError:
            return self.arguments


@dataclass(frozen=True, slots=True)
class Counts:
    """None: not reported."""

    prompt: int | None = None
    cached: int | None = None
    completion: int | None = None
    reasoning: int | None = None


@dataclass
class Answer:
    """`end`: stop, calls, length, filter, failed, or empty where none was told. `raw`: the final object of the protocol."""

    exchange: Exchange
    id: str = ""
    text: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    end: str = ""
    counts: Counts = field(default_factory=Counts)
    raw: dict[str, Any] = field(default_factory=dict)
    logprobs: list[dict[str, Any]] = field(default_factory=list)
    num_choices: int = 1

    def was_cut(self, max_tokens: int) -> bool:
        """The limit ended it, whether the target says so or not."""
        return self.end == "length" or (self.counts.completion or 0) >= max_tokens


def read_answer(exchange: Exchange) -> Answer:
    """The answer in an exchange with status 200."""
    reader = {"chat": _read_chat, "responses": _read_responses, "messages": _read_messages}[exchange.protocol]
    return reader(exchange)


def events_of(exchange: Exchange) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream, in order."""
    decoder = SseDecoder()
    for frame in [*decoder.feed(exchange.body), *decoder.finish()]:
        try:
            payload = json.loads(frame.data)
        except ValueError:
            continue
        if isinstance(payload, dict):
            yield payload


def failures_of(exchange: Exchange) -> list[dict[str, Any]]:
    """The events of a stream in which the target tells a failure, in any protocol's form."""
    return [
        event
        for event in events_of(exchange)
        if event.get("type") in ("error", "response.failed") or event.get("error") is not None
    ]


def _read_chat(exchange: Exchange) -> Answer:
    body = _accumulate_chat(exchange) if exchange.is_stream else exchange.json() or {}
    answer = Answer(exchange, id=str(body.get("id", "")), raw=body)
    choices = body.get("choices") or [{}]
    answer.num_choices = len(choices)
    message = choices[0].get("message") or {}
    answer.text = message.get("content") or ""
    answer.reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
    for call in message.get("tool_calls") or ():
        kind, growing = ("custom", "input") if call.get("type") == "custom" else ("function", "arguments")
        called = call.get(kind) or {}
        text = str(called.get(growing) or "")
        answer.calls.append(ToolCall(str(call.get("id")), str(called.get("name")), text, kind=kind))
    answer.end = _ENDS.get(str(choices[0].get("finish_reason")), "")
    if answer.calls and answer.end == "stop":
        answer.end = "calls"
    answer.logprobs = at_path(choices[0], "logprobs", "content") or []
    answer.counts = _openai_counts(body.get("usage"), "prompt", "completion")
    return answer


def _accumulate_chat(exchange: Exchange) -> dict[str, Any]:
    body: dict[str, Any] = {"choices": []}
    choices: dict[int, dict[str, Any]] = {}
    for chunk in events_of(exchange):
        body["id"] = body.get("id") or chunk.get("id")
        body["model"] = body.get("model") or chunk.get("model")
        if isinstance(chunk.get("usage"), dict):
            body["usage"] = chunk["usage"]
        if "error" in chunk:
            body["error"] = chunk["error"]
        for piece in chunk.get("choices") or ():
            index = piece.get("index") if isinstance(piece.get("index"), int) else 0
            choice = choices.setdefault(
                index, {"index": index, "message": {"role": "assistant", "content": None}, "finish_reason": None}
            )
            _add_delta(choice["message"], piece.get("delta") or {})
            choice["finish_reason"] = choice["finish_reason"] or piece.get("finish_reason")
            entries = at_path(piece, "logprobs", "content")
            if entries:
                choice.setdefault("logprobs", {"content": []})["content"] += entries
    body["choices"] = [choices[index] for index in sorted(choices)]
    return body


def _add_delta(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for name in ("content", "reasoning_content", "reasoning", "refusal"):
        if isinstance(delta.get(name), str):
            message[name] = (message.get(name) or "") + delta[name]
    for fragment in delta.get("tool_calls") or ():
        calls = message.setdefault("tool_calls", [])
        index = fragment.get("index") if isinstance(fragment.get("index"), int) else len(calls)
        while len(calls) <= index and len(calls) < 256:
            calls.append({"id": None})
        if 0 <= index < len(calls):
            call = calls[index]
            call["id"] = call["id"] or fragment.get("id")
            kind, growing = ("custom", "input") if fragment.get("custom") else ("function", "arguments")
            piece = fragment.get(kind) or {}
            body = call.setdefault(call.setdefault("type", kind), {"name": "", growing: ""})
            body["name"] = body["name"] or piece.get("name") or ""
            if isinstance(piece.get(growing), str):
                body[growing] = body.get(growing, "") + piece[growing]


def _read_responses(exchange: Exchange) -> Answer:
    body: dict[str, Any] = {}
    if exchange.is_stream or exchange.frames:
        events = list(events_of(exchange)) if exchange.is_stream else [frame.get("message") or {} for frame in exchange.frames]
        for event in events:
            if event.get("type") in ("response.completed", "response.incomplete", "response.failed"):
                body = event.get("response") or {}
    else:
        body = exchange.json() or {}
    return answer_of_response(exchange, body)


def answer_of_response(exchange: Exchange, body: dict[str, Any]) -> Answer:
    """The answer in a response object."""
    answer = Answer(exchange, id=str(body.get("id", "")), raw=body)
    for item in body.get("output") or ():
        kind = item.get("type")
        if kind == "message":
            answer.text += "".join(part.get("text") or "" for part in item.get("content") or () if isinstance(part, dict))
        elif kind == "reasoning":
            parts = [*(item.get("content") or ()), *(item.get("summary") or ())]
            answer.reasoning += "".join(part.get("text") or "" for part in parts)
        elif kind in ("function_call", "custom_tool_call"):
            text = item.get("arguments") if kind == "function_call" else item.get("input")
            answer.calls.append(
                ToolCall(str(item.get("call_id")), str(item.get("name")), str(text or ""), item.get("namespace"), kind)
            )
    status = body.get("status")
    answer.end = {"incomplete": "length", "failed": "failed"}.get(
        str(status), "calls" if answer.calls else "stop" if status else ""
    )
    answer.counts = _openai_counts(body.get("usage"), "input", "output")
    return answer


def _read_messages(exchange: Exchange) -> Answer:
    body = _accumulate_messages(exchange) if exchange.is_stream else exchange.json() or {}
    answer = Answer(exchange, id=str(body.get("id", "")), raw=body)
    for block in body.get("content") or ():
        kind = block.get("type")
        if kind == "text":
            answer.text += block.get("text") or ""
        elif kind == "thinking":
            answer.reasoning += block.get("thinking") or ""
        elif kind == "tool_use":
            answer.calls.append(ToolCall(str(block.get("id")), str(block.get("name")), json.dumps(block.get("input"))))
    answer.end = _ENDS.get(str(body.get("stop_reason")), "")
    usage = body.get("usage")
    if isinstance(usage, dict):
        cached = usage.get("cache_read_input_tokens")
        answer.counts = Counts(prompt_total(usage), cached if isinstance(cached, int) else None, usage.get("output_tokens"))
    return answer


def _accumulate_messages(exchange: Exchange) -> dict[str, Any]:
    body: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    inputs: dict[int, str] = {}
    for event in events_of(exchange):
        kind, index = event.get("type"), event.get("index")
        if kind == "message_start":
            body = dict(event.get("message") or {})
        elif kind == "content_block_start" and isinstance(index, int):
            blocks[index] = dict(event.get("content_block") or {})
        elif kind == "content_block_delta" and isinstance(index, int) and index in blocks:
            delta = event.get("delta") or {}
            for name in ("text", "thinking", "signature"):
                if isinstance(delta.get(name), str):
                    blocks[index][name] = (blocks[index].get(name) or "") + delta[name]
            if isinstance(delta.get("partial_json"), str):
                inputs[index] = inputs.get(index, "") + delta["partial_json"]
        elif kind == "message_delta":
            body.update(event.get("delta") or {})
            body["usage"] = {**(body.get("usage") or {}), **(event.get("usage") or {})}
        elif kind == "error":
            body["error"] = event.get("error")
    for index, text in inputs.items():
        try:
            blocks[index]["input"] = json.loads(text or "{}")
        except ValueError:
            blocks[index]["input"] = text
    return {**body, "content": [blocks[index] for index in sorted(blocks)]}


def _openai_counts(usage: object, prompt: str, completion: str) -> Counts:
    return Counts(
        at_path(usage, f"{prompt}_tokens"),
        at_path(usage, f"{prompt}_tokens_details", "cached_tokens"),
        at_path(usage, f"{completion}_tokens"),
        at_path(usage, f"{completion}_tokens_details", "reasoning_tokens"),
    )
