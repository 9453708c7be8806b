"""What the small right server can do wrong, by name. `scenario_faults.py` says which scenario must see it, by which rule."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from conformance.golden.story import Call, Frame, Reasoning, Story, Text
from conformance.mutants.brain import Request

Bend = Callable[[Story, Request, int], Story]


def _texts(story: Story, change: Callable[[Text], Any]) -> Story:
    return replace(story, parts=tuple(change(part) if isinstance(part, Text) else part for part in story.parts))


def _without(story: Story, kind: type) -> Story:
    kept = tuple(part for part in story.parts if not isinstance(part, kind)) or (Text(("no.",)),)
    return replace(story, parts=kept)


def _calls(story: Story, change: Callable[[Call], Call]) -> Story:
    return replace(story, parts=tuple(change(part) if isinstance(part, Call) else part for part in story.parts))


def _call_where_forbidden(story: Story, request: Request, number: int) -> Story:
    if request.tool_choice == "none" and request.tools:
        return replace(story, parts=(Call(request.tools[0]["name"], ("{}",)),))
    return story


def _wrong_name(story: Story, request: Request, number: int) -> Story:
    if request.tool_choice in ("auto", "none", "required"):
        return story
    return _calls(story, lambda call: replace(call, name=request.tools[0]["name"]))


def _twice(story: Story, request: Request, number: int) -> Story:
    calls = [part for part in story.parts if isinstance(part, Call)]
    return replace(story, parts=(*story.parts, *calls)) if len(calls) == 1 and not request.is_parallel else story


def _over_limit(story: Story, request: Request, number: int) -> Story:
    return replace(story, completion_tokens=story.completion_tokens + 5) if story.end == "length" else story


def _speak_on(story: Story, request: Request, number: int) -> Story:
    if story.end != "stop_string":
        return story
    return _texts(story, lambda part: replace(part, pieces=(*part.pieces, story.option("stop"))))


def _other_step(story: Story, request: Request, number: int) -> Story:
    return _calls(story, lambda call: replace(call, pieces=('{"location": "Oslo"}',))) if number % 2 else story


BENDS: Final[dict[str, Bend]] = {
    "limit-called-stop": lambda story, request, number: replace(story, end="stop") if story.end == "length" else story,
    "over-limit": _over_limit,
    "stop-string-leaks": _speak_on,
    "schema-ignored": lambda story, request, number: (
        _texts(story, lambda part: Text(("It rains.",))) if request.schema else story
    ),
    "reasoning-in-text": lambda story, request, number: (
        _texts(story, lambda part: Text(("I think so.", *part.pieces))) if request.thinks else story
    ),
    "thinks-unasked": lambda story, request, number: (
        replace(story, parts=(Reasoning(("hm",)), *story.parts))
        if not request.thinks and request.protocol == "messages"
        else story
    ),
    "never-calls": lambda story, request, number: _without(story, Call),
    "calls-when-forbidden": _call_where_forbidden,
    "named-tool-ignored": _wrong_name,
    "parallel-when-forbidden": _twice,
    "arguments-for-nothing": lambda story, request, number: _calls(
        story, lambda call: replace(call, pieces=('{"a":1}',)) if call.name == "ping" else call
    ),
    "one-id-for-all": lambda story, request, number: replace(story, scope="same"),
    "prompt-count-drifts": lambda story, request, number: replace(story, prompt_tokens=story.prompt_tokens + number % 2),
    "cache-without-limit": lambda story, request, number: (
        replace(story, cached_tokens=story.prompt_tokens) if story.cached_tokens else story
    ),
    "cached-text-differs": lambda story, request, number: (
        _texts(story, lambda part: replace(part, pieces=("Other ", *part.pieces))) if story.cached_tokens > 200 else story
    ),
    "stall-loses-text": lambda story, request, number: (
        _texts(story, lambda part: replace(part, pieces=part.pieces[:2])) if story.option("stall") else story
    ),
    "short-hits": lambda story, request, number: replace(story, cached_tokens=story.cached_tokens // 2),
    "steps-change-calls": _other_step,
    "logprobs-missing": lambda story, request, number: replace(story, options={**story.options, "logprobs": False}),
    "one-choice": lambda story, request, number: replace(
        story, parts=story.parts[:1], options={**story.options, "num_choices": 1}
    ),
    "namespace-flattened": lambda story, request, number: _calls(
        story, lambda call: replace(call, name=f"{call.namespace}__{call.name}", namespace=None) if call.namespace else call
    ),
    "custom-input-wrapped": lambda story, request, number: _calls(
        story, lambda call: replace(call, kind="function", pieces=('{"input":"x"}',)) if call.kind == "custom" else call
    ),
    "seals-nothing": lambda story, request, number: replace(
        story, parts=tuple(replace(part, is_encrypted=False) if isinstance(part, Reasoning) else part for part in story.parts)
    ),
}


def _drop(kind: str) -> Callable[[str, list[Frame]], None]:
    def edit(protocol: str, frames: list[Frame]) -> None:
        frames[:] = [frame for frame in frames if frame.event != kind]

    return edit


def _end_with(frame: Frame) -> Callable[[str, list[Frame]], None]:
    return lambda protocol, frames: frames.append(frame)


def _break_characters(protocol: str, frames: list[Frame]) -> None:
    for frame in frames:
        if isinstance(frame.data, dict) and "text" in frame.data.get("delta", {}):
            frame.data["delta"]["text"] = frame.data["delta"]["text"].replace("😀", "\ufffd\ufffd")


def _share_call_ids(protocol: str, frames: list[Frame]) -> None:
    """All calls of the answer take the first one's id."""
    ids = list(dict.fromkeys(re.findall(r'"(?:call_|toolu_)[^"]*"', json.dumps([frame.data for frame in frames]))))
    for frame in frames:
        text = json.dumps(frame.data)
        for other in ids[1:]:
            text = text.replace(other, ids[0])
        frame_data = json.loads(text)
        if isinstance(frame.data, dict):
            frame.data.clear()
            frame.data.update(frame_data)


def _go_on_after_failure(protocol: str, frames: list[Frame]) -> None:
    """The stream that failed is ended as if it had not."""
    if not _failed(frames):
        return
    if protocol == "chat":
        first = json.loads(json.dumps(frames[0].data))
        first["choices"][0].update(delta={}, finish_reason="stop")
        frames += [Frame(None, first), Frame(None, "[DONE]")]
    elif protocol == "messages":
        frames.append(Frame("message_stop", {"type": "message_stop"}))
    else:
        last = json.loads(json.dumps(frames[-1].data).replace('"failed"', '"completed"'))
        frames.append(Frame("response.completed", {**last, "type": "response.completed"}))


def _fall_silent(protocol: str, frames: list[Frame]) -> None:
    """The stream that failed just ends."""
    if _failed(frames):
        frames[:] = [frame for frame in frames if not _failed([frame])]


def _failed(frames: list[Frame]) -> bool:
    told = [frame.data for frame in frames if isinstance(frame.data, dict)]
    return any(data.get("error") or data.get("type") in ("error", "response.failed") for data in told)


def _other_city(protocol: str, frames: list[Frame]) -> None:
    for frame in frames:
        if isinstance(frame.data, dict) and "Pari" in str(frame.data.get("choices")):
            frame.data["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] = ' "Bari'


FRAME_EDITS: Final[dict[str, Callable[[str, list[Frame]], None]]] = {
    "no-item-done": _drop("response.output_item.done"),
    "no-block-stop": _drop("content_block_stop"),
    "broken-characters": _break_characters,
    "streamed-call-differs": _other_city,
    "two-ends": _end_with(Frame(None, "[DONE]")),
    "shared-call-ids": _share_call_ids,
    "goes-on-after-failure": _go_on_after_failure,
    "falls-silent": _fall_silent,
}


def _other_unary(protocol: str, unary: dict[str, Any]) -> None:
    if protocol == "chat" and unary["choices"][0]["message"]["content"]:
        unary["choices"][0]["message"]["content"] += "!"
    elif protocol == "messages" and unary["content"] and unary["content"][-1]["type"] == "text":
        unary["content"][-1]["text"] += "!"
    elif protocol == "responses" and unary["output"] and unary["output"][-1]["type"] == "message":
        unary["output"][-1]["content"][0]["text"] += "!"


UNARY_EDITS: Final[dict[str, Callable[[str, dict[str, Any]], None]]] = {"unary-differs": _other_unary}


def _has_block(body: dict[str, Any], kind: str) -> bool:
    contents = [message.get("content") for message in body.get("messages") or () if isinstance(message, dict)]
    return any(block.get("type") == kind for content in contents if isinstance(content, list) for block in content)


def _items(body: dict[str, Any]) -> list[dict[str, Any]]:
    items = body.get("input")
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


_UNKNOWN_FIELDS: Final = {"metadata", "client_metadata", "context_management"}

REFUSALS: Final[dict[str, Callable[[dict[str, Any]], bool]]] = {
    "strict-fields": lambda body: bool(_UNKNOWN_FIELDS & set(body)),
    "refuses-custom-tools": lambda body: any(tool.get("type") == "custom" for tool in body.get("tools") or ()),
    "refuses-namespaced-items": lambda body: any(item.get("namespace") for item in _items(body)),
    "refuses-sealed": lambda body: any(item.get("encrypted_content") for item in _items(body)),
    "refuses-system-list": lambda body: isinstance(body.get("system"), list),
    "refuses-adaptive": lambda body: (body.get("thinking") or {}).get("type") == "adaptive",
    "refuses-thinking-back": lambda body: _has_block(body, "thinking"),
    "refuses-lone-outputs": lambda body: (
        bool(_items(body)) and all(item.get("type") == "function_call_output" for item in _items(body))
    ),
    "warm-up-unanswered": lambda body: body.get("generate") is False,
}
"""What it refuses though it should not: name to a look at the request."""

_KNOWN_TOOLS: Final = frozenset({"function", "custom", "namespace", "web_search", "local_shell"})


def without_unknown_tools(body: dict[str, Any]) -> dict[str, Any]:
    """The request as a server reads it that drops in silence what it does not know."""
    return {**body, "tools": [tool for tool in body.get("tools") or () if tool.get("type") in _KNOWN_TOOLS]}
