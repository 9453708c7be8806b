"""What the small right server can do wrong, and which scenario must see it by which rule."""

from __future__ import annotations

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
}


def _other_unary(protocol: str, unary: dict[str, Any]) -> None:
    if protocol == "chat" and unary["choices"][0]["message"]["content"]:
        unary["choices"][0]["message"]["content"] += "!"
    elif protocol == "messages" and unary["content"] and unary["content"][-1]["type"] == "text":
        unary["content"][-1]["text"] += "!"
    elif protocol == "responses" and unary["output"] and unary["output"][-1]["type"] == "message":
        unary["output"][-1]["content"][0]["text"] += "!"


UNARY_EDITS: Final[dict[str, Callable[[str, dict[str, Any]], None]]] = {"unary-differs": _other_unary}

SCENARIO_FAULTS: Final[tuple[tuple[str, str, str], ...]] = (
    ("wrong-media-type", "chat/text", "T1"),
    ("no-item-done", "responses/text", "RS11"),
    ("no-block-stop", "messages/text", "AN2"),
    ("two-ends", "chat/text", "T4"),
    ("no-request-id", "chat/text", "T11"),
    ("unary-differs", "chat/stream-equals-unary", "X1"),
    ("unary-differs", "responses/stream-equals-unary", "RS25"),
    ("unary-differs", "messages/stream-equals-unary", "AN22"),
    ("unary-differs", "messages/stream-equals-unary", "CH23"),
    ("one-burst", "chat/arrives-in-pieces", "T9"),
    ("broken-characters", "messages/unicode", "T3"),
    ("limit-called-stop", "chat/max-tokens", "CH19"),
    ("over-limit", "messages/max-tokens", "CH19"),
    ("stop-string-leaks", "chat/stop-string", "CH20"),
    ("schema-ignored", "responses/structured-output", "CH14"),
    ("reasoning-in-text", "messages/reasoning", "CH22"),
    ("logprobs-missing", "chat/logprobs", "CH21"),
    ("one-choice", "chat/several-choices", "CH8"),
    ("never-calls", "chat/tool-choice", "CH24"),
    ("calls-when-forbidden", "responses/tool-choice", "RS22"),
    ("named-tool-ignored", "messages/tool-choice", "AN20"),
    ("streamed-call-differs", "chat/tools-unary", "X1"),
    ("arguments-for-nothing", "messages/no-argument-tool", "K6"),
    ("parallel-when-forbidden", "chat/parallel-tools", "CH24"),
    ("one-id-for-all", "messages/tool-result", "AN7"),
    ("short-hits", "chat/tool-echo", "X7"),
    ("previous-response-ignored", "responses/previous-response", "RS20"),
    ("instructions-carried", "responses/previous-response", "RS20"),
    ("context-doubles", "responses/previous-response", "RS20"),
    ("forgets-stored", "responses/stored-response", "RS21"),
    ("stores-everything", "responses/stored-response", "E1"),
    ("delete-keeps", "responses/stored-response", "E1"),
    ("prompt-count-drifts", "messages/input-forms", "AN18"),
    ("prompt-count-drifts", "responses/tool-output-forms", "C6"),
    ("prompt-count-drifts", "messages/tool-output-forms", "K10"),
    ("resumes-from-start", "responses/background", "RS3"),
    ("seals-nothing", "responses/encrypted-reasoning", "RS19"),
    ("counts-without-tools", "messages/count-tokens", "AN23"),
    ("counts-without-tools", "responses/input-tokens", "X6"),
    ("never-cached", "chat/repeated-prompt", "X5"),
    ("cache-without-limit", "responses/repeated-prompt", "X5"),
    ("prompt-count-drifts", "messages/repeated-prompt", "AN13"),
    ("prompt-count-drifts", "messages/cache-counters", "AN13"),
    ("cached-text-differs", "chat/cold-equals-cached", "X8"),
    ("prompt-count-drifts", "chat/three-protocols", "X2"),
    ("malformed-json-500", "chat/malformed-json", "E1"),
    ("errors-in-band", "chat/missing-field", "E1"),
    ("errors-in-band", "chat/wrong-type", "T6"),
    ("error-differs-streamed", "messages/wrong-type", "E5"),
    ("odd-types-crash", "chat/retyped-fields", "E1"),
    ("error-code-number", "chat/empty-messages", "E3"),
    ("foreign-error-shape", "messages/empty-messages", "E2"),
    ("foreign-error-shape", "chat/empty-messages", "E7"),
    ("unknown-model-500", "responses/unknown-model", "E1"),
    ("error-code-number", "chat/context-overflow", "C12"),
    ("wrong-method-400", "chat/wrong-method", "E1"),
    ("one-models-shape", "messages/models", "K14"),
    ("head-crashes", "messages/head-root", "K13"),
    ("plain-get-crashes", "responses/websocket-upgrade", "WS1"),
    ("closes-after-turn", "responses/websocket-second-turn", "WS4"),
    ("websocket-lacks-in-progress", "responses/websocket-equals-sse", "X3"),
    ("connection-forgets", "responses/websocket-continuation", "WS8"),
    ("warm-up-speaks", "responses/websocket-warm-up", "WS10"),
    ("closes-on-error", "responses/websocket-bad-frame", "WS12"),
    ("error-without-status", "responses/websocket-bad-frame", "WS7"),
    ("lane-not-echoed", "responses/websocket-lanes", "WS6"),
    ("done-over-websocket", "responses/websocket-second-turn", "WS2"),
    ("strict-fields", "responses/unknown-fields", "C11"),
    ("strict-fields", "messages/unknown-fields", "K12"),
    ("beta-query-fails", "messages/beta-query", "AN19"),
    ("thinks-unasked", "messages/thinking-budget", "AN17"),
    ("never-cached", "messages/billing-line", "K9"),
    ("refuses-custom-tools", "responses/codex-tools", "C1"),
    ("never-calls", "responses/codex-tools", "C4"),
    ("custom-input-wrapped", "responses/custom-tool", "C3"),
    ("namespace-flattened", "responses/namespace-tools", "RS24"),
    ("steps-change-calls", "responses/split-invariance", "X4"),
    ("one-id-for-all", "chat/concurrency", "CH1"),
)
"""(wrong, scenario, rule): with this wrong, that scenario must break that rule."""
