"""A story as a Responses stream (SSE or WebSocket) and as the unary answer."""

from __future__ import annotations

from typing import Any

from conformance.golden.story import Call, Frame, Hosted, Part, Reasoning, Refusal, Story, Text, comment


def render_stream(story: Story) -> list[Frame]:
    """All frames up to the terminal event."""
    writer = _Writer()
    frames = writer.frames
    if story.option("comments"):
        frames.append(comment("waiting"))
    if not story.option("resumed"):
        writer.emit("response.created", response=_response(story, "queued" if story.option("queued") else "in_progress", []))
    else:
        writer.number = 1
    if story.option("queued"):
        writer.emit("response.queued", response=_response(story, "queued", []))
    if not story.option("no_in_progress"):
        writer.emit("response.in_progress", response=_response(story, "in_progress", []))
    if story.option("keepalive"):
        writer.emit("keepalive")
    output: list[dict[str, Any]] = []
    for index, part in enumerate(story.parts):
        is_last = part is story.parts[-1]
        if story.end in ("failed", "error") and is_last:
            _open_only(writer, story, part, index)
            break
        output.append(_emit_item(writer, story, part, index, "incomplete" if is_last and _is_incomplete(story) else "completed"))
    if story.option("vendor_event"):
        writer.emit("golden:trace", note="vendor's own")
    if story.end == "error":
        writer.emit(
            "error", error={"type": "server_error", "code": "server_error", "message": "the engine failed", "param": None}
        )
    if story.end in ("failed", "error"):
        failed = {**_response(story, "failed", output), "error": {"code": "server_error", "message": "the engine failed"}}
        writer.emit("response.failed", response=failed)
    elif _is_incomplete(story):
        writer.emit("response.incomplete", response=_final(story, output))
    else:
        writer.emit("response.completed", response=_final(story, output))
    if story.option("done_marker"):
        frames.append(Frame(None, "[DONE]"))
    return frames


def render_unary(story: Story) -> dict[str, Any]:
    silent = _Writer()
    last = len(story.parts) - 1
    output = [
        _emit_item(silent, story, part, index, "incomplete" if index == last and _is_incomplete(story) else "completed")
        for index, part in enumerate(story.parts)
    ]
    return {**_final(story, output), "id": f"resp_{story.scope}u"}


class _Writer:
    """Numbers the events."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.number = 0

    def emit(self, kind: str, **fields: Any) -> None:
        self.frames.append(Frame(kind, {"type": kind, "sequence_number": self.number, **fields}))
        self.number += 1


def _is_incomplete(story: Story) -> bool:
    return story.end in ("length", "context", "content_filter")


def _response(story: Story, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"resp_{story.scope}",
        "object": "response",
        "created_at": 1764457200,
        "status": status,
        "model": story.model,
        "output": output,
        "error": None,
        "incomplete_details": None,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
        "store": False,
    }


def _final(story: Story, output: list[dict[str, Any]]) -> dict[str, Any]:
    usage = {
        "input_tokens": story.prompt_tokens,
        "input_tokens_details": {"cached_tokens": story.cached_tokens},
        "output_tokens": story.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": story.reasoning_tokens},
        "total_tokens": story.prompt_tokens + story.completion_tokens,
    }
    status = "incomplete" if _is_incomplete(story) else "completed"
    details = {"length": "max_output_tokens", "context": "max_output_tokens", "content_filter": "content_filter"}
    reason = {"reason": details[story.end]} if status == "incomplete" else None
    return {**_response(story, status, output), "usage": usage, "incomplete_details": reason}


def _open_only(writer: _Writer, story: Story, part: Part, index: int) -> None:
    """An item that a failure leaves unfinished."""
    silent = _Writer()
    silent.number = writer.number
    _emit_item(silent, story, part, index, "completed")
    kept = [frame for frame in silent.frames if not str(frame.event).endswith(".done")]
    writer.frames += kept
    writer.number += len(kept)


def _emit_item(writer: _Writer, story: Story, part: Part, index: int, status: str) -> dict[str, Any]:
    if isinstance(part, (Text, Refusal)):
        return _emit_message(writer, story, part, index, status)
    if isinstance(part, Reasoning):
        return _emit_reasoning(writer, story, part, index)
    if isinstance(part, Hosted):
        return _emit_hosted(writer, story, part, index)
    return _emit_call(writer, story, part, index, status)


def _emit_message(writer: _Writer, story: Story, part: Text | Refusal, index: int, status: str) -> dict[str, Any]:
    item: dict[str, Any] = {
        "id": f"msg_{story.scope}{index}",
        "type": "message",
        "role": "assistant",
        "status": "in_progress",
        "content": [],
    }
    if isinstance(part, Text) and part.phase:
        item["phase"] = part.phase
    writer.emit("response.output_item.added", output_index=index, item=item)
    where: dict[str, Any] = {"item_id": item["id"], "output_index": index, "content_index": 0}
    if isinstance(part, Refusal):
        whole: dict[str, Any] = {"type": "refusal", "refusal": part.whole}
        writer.emit("response.content_part.added", **where, part={**whole, "refusal": ""})
        for piece in part.pieces:
            writer.emit("response.refusal.delta", **where, delta=piece)
        writer.emit("response.refusal.done", **where, refusal=part.whole)
    else:
        citation = {"type": "url_citation", "url": "https://example.com/", "title": "t", "start_index": 0, "end_index": 1}
        whole = {"type": "output_text", "text": part.whole, "annotations": [citation] * part.citations, "logprobs": []}
        writer.emit("response.content_part.added", **where, part={**whole, "text": "", "annotations": []})
        for piece in part.pieces:
            extra = {"obfuscation": "ab"} if story.option("obfuscation") else {}
            writer.emit("response.output_text.delta", **where, delta=piece, logprobs=[], **extra)
        for number in range(part.citations):
            writer.emit("response.output_text.annotation.added", **where, annotation_index=number, annotation=citation)
        writer.emit("response.output_text.done", **where, text=part.whole, logprobs=[])
    writer.emit("response.content_part.done", **where, part=whole)
    return _done(writer, index, {**item, "status": status, "content": [whole]})


def _emit_reasoning(writer: _Writer, story: Story, part: Reasoning, index: int) -> dict[str, Any]:
    item: dict[str, Any] = {"id": f"rs_{story.scope}{index}", "type": "reasoning", "summary": []}
    if part.is_encrypted:
        item["encrypted_content"] = "Zmlyc3Q="
    writer.emit("response.output_item.added", output_index=index, item=item)
    final = {**item, "summary": [{"type": "summary_text", "text": "".join(pieces)} for pieces in part.summary]}
    if part.is_encrypted:
        final["encrypted_content"] = "c2Vjb25k"
    for number, pieces in enumerate(part.summary):
        where = {"item_id": item["id"], "output_index": index, "summary_index": number}
        text = "".join(pieces)
        writer.emit("response.reasoning_summary_part.added", **where, part={"type": "summary_text", "text": ""})
        for piece in pieces:
            writer.emit("response.reasoning_summary_text.delta", **where, delta=piece)
        writer.emit("response.reasoning_summary_text.done", **where, text=text)
        writer.emit("response.reasoning_summary_part.done", **where, part={"type": "summary_text", "text": text})
    if part.pieces:
        where = {"item_id": item["id"], "output_index": index, "content_index": 0}
        whole = {"type": "reasoning_text", "text": part.whole}
        name = "response.reasoning" if story.option("open_responses_names") else "response.reasoning_text"
        writer.emit("response.content_part.added", **where, part={**whole, "text": ""})
        for piece in part.pieces:
            writer.emit(f"{name}.delta", **where, delta=piece)
        writer.emit(f"{name}.done", **where, text=part.whole)
        writer.emit("response.content_part.done", **where, part=whole)
        final["content"] = [whole]
    return _done(writer, index, final)


def _emit_call(writer: _Writer, story: Story, part: Call, index: int, status: str) -> dict[str, Any]:
    is_custom = part.kind == "custom"
    field = "input" if is_custom else "arguments"
    item: dict[str, Any] = {
        "id": f"{'ctc' if is_custom else 'fc'}_{story.scope}{index}",
        "type": "custom_tool_call" if is_custom else "function_call",
        "status": "in_progress",
        "call_id": f"call_{story.scope}{index}",
        "name": part.name,
        field: "",
    }
    if part.namespace:
        item["namespace"] = part.namespace
    writer.emit("response.output_item.added", output_index=index, item=item)
    name = "response.custom_tool_call_input" if is_custom else "response.function_call_arguments"
    where = {"item_id": item["id"], "output_index": index}
    for piece in part.pieces:
        writer.emit(f"{name}.delta", **where, delta=piece)
    writer.emit(f"{name}.done", **where, **{field: part.whole})
    return _done(writer, index, {**item, "status": status, field: part.whole})


def _emit_hosted(writer: _Writer, story: Story, part: Hosted, index: int) -> dict[str, Any]:
    item: dict[str, Any] = {"id": f"h_{story.scope}{index}", "type": part.kind, **dict(part.fields)}
    writer.emit("response.output_item.added", output_index=index, item=item)
    for kind, fields in part.events:
        where: dict[str, Any] = (
            {"output_index": index} if "shell_call_command" in kind else {"item_id": item["id"], "output_index": index}
        )
        writer.emit(kind, **where, **fields)
    return _done(writer, index, {**item, **dict(part.final)})


def _done(writer: _Writer, index: int, item: dict[str, Any]) -> dict[str, Any]:
    writer.emit("response.output_item.done", output_index=index, item=item)
    return item
