"""A story as a Chat Completions stream and as the unary answer."""

from __future__ import annotations

from typing import Any, Final

from conformance.golden.story import Call, Frame, Reasoning, Refusal, Story, Text, comment

_END: Final = {"stop": "stop", "stop_string": "stop", "length": "length", "context": "length", "content_filter": "content_filter"}


def render_stream(story: Story) -> list[Frame]:
    """All frames, `[DONE]` included."""
    frames: list[Frame] = []
    if story.option("comments"):
        frames.append(comment("waiting"))
    choices = range(story.option("num_choices", 1))
    bodies = [_body(story, choice) for choice in choices]
    order = [(step, choice) for step in range(max(map(len, bodies))) for choice in choices if step < len(bodies[choice])]
    has_error = story.end == "error"
    for step, choice in order:
        delta, finish, logprobs = bodies[choice][step]
        if has_error and finish is not None:
            break
        frames.append(
            Frame(None, _chunk(story, [{"index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": finish}]))
        )
        if story.option("comments") and step == 1:
            frames.append(comment("still here"))
    if has_error:
        return [
            *frames,
            Frame(
                None, {"error": {"message": "the engine failed", "type": "server_error", "param": None, "code": "engine_error"}}
            ),
        ]
    if story.option("usage"):
        frames.append(Frame(None, {**_chunk(story, []), "usage": usage_of(story)}))
    if story.option("moderation"):
        frames.append(Frame(None, {**_chunk(story, []), "moderation": {"flagged": False}}))
    return [*frames, Frame(None, "[DONE]")]


def render_unary(story: Story) -> dict[str, Any]:
    choices = []
    for choice in range(story.option("num_choices", 1)):
        parts = [part for part in story.parts if getattr(part, "choice", 0) == choice]
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
        texts = [part.whole for part in parts if isinstance(part, Text)]
        calls = [part for part in parts if isinstance(part, Call)]
        if texts:
            message["content"] = "".join(texts)
        for part in parts:
            if isinstance(part, Reasoning):
                message["reasoning_content"] = part.whole
            elif isinstance(part, Refusal):
                message["refusal"] = part.whole
        if calls:
            message["tool_calls"] = [
                {
                    "id": call_id(story, choice, number),
                    "type": call.kind,
                    call.kind: {"name": call.name, _growing(call): call.whole},
                }
                for number, call in enumerate(calls)
            ]
        choices.append({"index": choice, "message": message, "logprobs": None, "finish_reason": _finish(story, bool(calls))})
    return {
        "id": f"chatcmpl-{story.scope}u",
        "object": "chat.completion",
        "created": 1764457200,
        "model": story.model,
        "choices": choices,
        "usage": usage_of(story),
        "system_fingerprint": "fp_golden",
    }


def usage_of(story: Story) -> dict[str, Any]:
    return {
        "prompt_tokens": story.prompt_tokens,
        "completion_tokens": story.completion_tokens,
        "total_tokens": story.prompt_tokens + story.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": story.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": story.reasoning_tokens},
    }


def call_id(story: Story, choice: int, number: int) -> str:
    return f"call_{story.scope}{choice}{number}"


def _chunk(story: Story, choices: list[dict[str, Any]]) -> dict[str, Any]:
    chunk: dict[str, Any] = {
        "id": f"chatcmpl-{story.scope}",
        "object": "chat.completion.chunk",
        "created": 1764457200,
        "model": story.model,
        "system_fingerprint": "fp_golden",
        "choices": choices,
    }
    if story.option("usage"):
        chunk["usage"] = None
    if story.option("obfuscation"):
        chunk["obfuscation"] = "x" * (len(str(choices)) % 7)
    if story.option("service_tier"):
        chunk["service_tier"] = "default"
    return chunk


def _finish(story: Story, has_calls: bool) -> str:
    return "tool_calls" if has_calls and story.end == "stop" else _END.get(story.end, "stop")


def _body(story: Story, choice: int) -> list[tuple[dict[str, Any], str | None, Any]]:
    """(delta, finish_reason, logprobs) of each chunk of one choice."""
    opening: dict[str, Any] = {"role": "assistant", "content": story.option("first_content", ""), "refusal": None}
    body: list[tuple[dict[str, Any], str | None, Any]] = [(opening, None, None)]
    number = 0
    for part in story.parts:
        if getattr(part, "choice", 0) != choice:
            continue
        if isinstance(part, Text):
            body += [({"content": piece}, None, _logprobs(piece) if story.option("logprobs") else None) for piece in part.pieces]
        elif isinstance(part, Reasoning):
            body += [({story.option("reasoning_field", "reasoning_content"): piece}, None, None) for piece in part.pieces]
        elif isinstance(part, Refusal):
            body += [({"refusal": piece}, None, None) for piece in part.pieces]
        elif isinstance(part, Call):
            body += _call(story, part, choice, number)
            number += 1
    if story.option("first_joined") and len(body) > 1:
        body[:2] = [({**opening, "content": None, **body[1][0]}, None, body[1][2])]
    body.append(({}, _finish(story, number > 0), None))
    if story.option("last_joined"):
        body[-2:] = [(body[-2][0], body[-1][1], body[-2][2])]
    return body


def _call(story: Story, call: Call, choice: int, number: int) -> list[tuple[dict[str, Any], str | None, Any]]:
    first = call.pieces[0] if story.option("whole_calls") else ""
    opening = {
        "index": number,
        "id": call_id(story, choice, number),
        "type": call.kind,
        call.kind: {"name": call.name, _growing(call): first},
    }
    rest = call.pieces[1:] if story.option("whole_calls") else call.pieces
    pieces = [
        {"tool_calls": [opening]},
        *({"tool_calls": [{"index": number, call.kind: {_growing(call): piece}}]} for piece in rest),
    ]
    return [(piece, None, None) for piece in pieces]


def _growing(call: Call) -> str:
    """The field that fragments fill: a custom tool takes free text."""
    return "input" if call.kind == "custom" else "arguments"


def _logprobs(piece: str) -> dict[str, Any]:
    entry = {"token": piece, "logprob": -0.5, "bytes": list(piece.encode()), "top_logprobs": []}
    return {"content": [entry], "refusal": None}
