"""A story as an Anthropic Messages stream and as the unary answer."""

from __future__ import annotations

import json
from typing import Any, Final

from conformance.golden.story import Call, Frame, Hosted, Part, Reasoning, Refusal, Story, Text, comment

_END: Final = {
    "stop": "end_turn",
    "stop_string": "stop_sequence",
    "length": "max_tokens",
    "context": "model_context_window_exceeded",
    "refusal": "refusal",
    "content_filter": "refusal",
    "pause": "pause_turn",
}


def render_stream(story: Story) -> list[Frame]:
    """All frames up to message_stop."""
    pings = story.option("pings", ())
    frames: list[Frame] = []
    if story.option("whole_message"):
        message = {**_message(story), "content": _content(story), "stop_reason": _stop_reason(story)}
        return [_frame("message_start", message=message), _frame("message_stop")]
    if story.option("comments"):
        frames.append(comment("waiting"))
    message = {
        **_message(story),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(story, min(1, story.completion_tokens)),
    }
    frames.append(_frame("message_start", message=message))
    frames += [_frame("ping")] * ("start" in pings)
    for index, part in enumerate(story.parts):
        frames.append(_frame("content_block_start", index=index, content_block=_start(story, part, index)))
        frames += [_frame("ping")] * ("block" in pings)
        for delta in _deltas(part, index):
            frames.append(_frame("content_block_delta", index=index, delta=delta))
            frames += [_frame("ping")] * ("delta" in pings)
        if story.end == "error" and part is story.parts[-1]:
            return [*frames, _frame("error", error={"type": "overloaded_error", "message": "Overloaded"})]
        frames.append(_frame("content_block_stop", index=index))
    frames += [_frame("ping")] * ("end" in pings)
    delta = {"stop_reason": _stop_reason(story), "stop_sequence": _stop_sequence(story)}
    if story.option("two_message_deltas"):
        half = {"output_tokens": max(1, story.completion_tokens // 2)}
        frames.append(_frame("message_delta", delta={"stop_reason": None, "stop_sequence": None}, usage=half))
    usage = (
        _usage(story, story.completion_tokens) if not story.option("short_usage") else {"output_tokens": story.completion_tokens}
    )
    return [*frames, _frame("message_delta", delta=delta, usage=usage), _frame("message_stop")]


def render_unary(story: Story) -> dict[str, Any]:
    return {
        **_message(story),
        "id": f"msg_{story.scope}u",
        "content": _content(story),
        "stop_reason": _stop_reason(story),
        "stop_sequence": _stop_sequence(story),
        "usage": _usage(story, story.completion_tokens),
    }


def _frame(kind: str, **fields: Any) -> Frame:
    return Frame(kind, {"type": kind, **fields})


def _message(story: Story) -> dict[str, Any]:
    return {
        "id": f"msg_{story.scope}",
        "type": "message",
        "role": "assistant",
        "model": story.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(story, 0),
    }


def _usage(story: Story, output_tokens: int) -> dict[str, Any]:
    return {
        "input_tokens": story.prompt_tokens - story.cached_tokens - story.written_tokens,
        "cache_creation_input_tokens": story.written_tokens,
        "cache_read_input_tokens": story.cached_tokens,
        "output_tokens": output_tokens,
    }


def _stop_reason(story: Story) -> str:
    has_call = any(isinstance(part, Call) and part.kind == "function" for part in story.parts)
    return "tool_use" if has_call and story.end == "stop" else _END.get(story.end, "end_turn")


def _stop_sequence(story: Story) -> str | None:
    return "###" if story.end == "stop_string" else None


def _call_id(story: Story, index: int) -> str:
    return f"toolu_{story.scope}{index}"


def _start(story: Story, part: Part, index: int) -> dict[str, Any]:
    if isinstance(part, (Text, Refusal)):
        citations: dict[str, Any] = {"citations": []} if isinstance(part, Text) and part.citations else {}
        return {"type": "text", "text": "", **citations}
    if isinstance(part, Reasoning):
        if part.is_redacted:
            return {"type": "redacted_thinking", "data": part.signature}
        return {"type": "thinking", "thinking": "", "signature": ""}
    if isinstance(part, Hosted):
        return {"type": part.kind, **dict(part.fields)}
    kind = "tool_use" if part.kind == "function" else part.kind
    return {"type": kind, "id": _call_id(story, index), "name": part.name, "input": {}}


def _deltas(part: Part, index: int) -> list[dict[str, Any]]:
    if isinstance(part, (Text, Refusal)):
        number = part.citations if isinstance(part, Text) else 0
        citation = {
            "type": "char_location",
            "cited_text": "fact",
            "document_index": 0,
            "start_char_index": 0,
            "end_char_index": 4,
        }
        return [
            *({"type": "citations_delta", "citation": citation} for _ in range(number)),
            *({"type": "text_delta", "text": piece} for piece in part.pieces),
        ]
    if isinstance(part, Reasoning):
        if part.is_redacted:
            return []
        thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in part.pieces]
        return [*thoughts, {"type": "signature_delta", "signature": part.signature}]
    if isinstance(part, Hosted):
        return [dict(delta) for _, delta in part.events]
    return [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *part.pieces)]


def _content(story: Story) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for index, part in enumerate(story.parts):
        block = _start(story, part, index)
        if isinstance(part, (Text, Refusal)):
            block["text"] = part.whole
        elif isinstance(part, Reasoning) and not part.is_redacted:
            block.update(thinking=part.whole, signature=part.signature)
        elif isinstance(part, Call):
            block["input"] = json.loads(part.whole or "{}") if not part.is_cut else part.whole
        elif isinstance(part, Hosted):
            block.update(dict(part.final))
        blocks.append(block)
    return blocks
