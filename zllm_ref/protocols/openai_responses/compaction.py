"""Compaction: a conversation too long to carry on becomes its user messages and one sealed summary.

The summary is written by the model itself, sealed so that clients carry it back unread (WS17: it starts a new chain).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from zllm_ref.canonical.event import Event, Failed, Finished, Started, TextDelta
from zllm_ref.canonical.message import Message, Role, Text
from zllm_ref.canonical.request import Request, TextFormat, ToolChoiceNone
from zllm_ref.protocols.openai_responses.request import ResponsesRequest
from zllm_ref.protocols.openai_responses.stream import Stream
from zllm_ref.protocols.sse import Frame, dump

MAX_SUMMARY_TOKENS = 2048
_INSTRUCTION = (
    "Write down what must be known to go on with this conversation without it: the task, what was decided and done, "
    "names, numbers and paths that matter, and what is still open. Write only that."
)
_LEAD = "What happened in this conversation so far:\n"


def summary_request(call: ResponsesRequest) -> ResponsesRequest:
    """The same conversation with the instruction to summarise it at its end: its beginning is found in the cache."""
    asked = Message(Role.USER, (Text(_INSTRUCTION),))
    request: Request = replace(
        call.request,
        messages=(*call.request.messages, asked),
        tool_choice=ToolChoiceNone(),
        response_format=TextFormat(),
        max_tokens=MAX_SUMMARY_TOKENS,
        logprobs=False,
        top_logprobs=0,
    )
    return replace(call, request=request, include_logprobs=False, include_encrypted=False)


class CompactionStream(Stream):
    """The answer to a `compaction_trigger`: the summary is heard in silence, and leaves as one sealed item."""

    def __init__(self, call: ResponsesRequest) -> None:
        super().__init__(call)
        self._summarised = call
        self._pieces: list[str] = []

    def on(self, event: Event) -> list[Frame]:
        if isinstance(event, TextDelta):
            self._pieces.append(event.text)
            return []
        if isinstance(event, Finished):
            return self.end_with_item(dump(_item(self._summarised, "".join(self._pieces))), event.usage)
        return super().on(event) if isinstance(event, Started | Failed) else []


def stream_of(call: ResponsesRequest) -> tuple[ResponsesRequest, Stream]:
    """What to submit for a request, and the stream that tells the answer."""
    if not call.compacts:
        return call, Stream(call)
    asked = summary_request(call)
    return asked, CompactionStream(asked)


def render_compaction(call: ResponsesRequest, response: dict[str, Any]) -> str:
    """`response` is the finished summary response; its message text is what gets sealed."""
    texts = [part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]]
    identity = call.request.request_id
    output: list[dict[str, Any]] = [
        {
            "id": f"msg_{identity}{index:04x}",
            "type": "message",
            "role": "user",
            "status": "completed",
            "content": [{"type": "input_text", "text": message.text}],
        }
        for index, message in enumerate(call.request.messages)
        if message.role is Role.USER
    ]
    output.append(_item(call, "".join(texts)))
    head = {"id": f"resp_{identity}", "object": "response.compaction", "created_at": call.created}
    return dump({**head, "output": output, "usage": response["usage"]})


def _item(call: ResponsesRequest, summary: str) -> dict[str, Any]:
    identity = f"cmp_{call.request.request_id}{len(call.request.messages):04x}"
    return {"id": identity, "type": "compaction", "encrypted_content": call.seal.seal(_LEAD + summary)}
