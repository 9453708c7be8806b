"""The output item that is being written: what it looks like when added, while it grows, and when done.

A row a kind: names of its events and of its text field. Message text and raw reasoning are parts of `content`, summaries are
parts of `summary`, calls have no parts: their text is a field of the item itself. A message may hold several parts, text and
refusals, one after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from zllm_ref.canonical.event import ToolCallStarted
from zllm_ref.protocols.openai_responses.request import ResponsesRequest
from zllm_ref.protocols.sse import Form, Frame, dump, quote


@dataclass(frozen=True, slots=True)
class Growth:
    """How the text of a kind of item travels. `part` None: the text is a field of the item. RS18: `has_logprobs`."""

    delta_event: str
    done_event: str
    text_field: str
    part: str | None = None
    part_events: tuple[str, str] = ("", "")
    index_field: str = ""
    has_logprobs: bool = False


TEXT = Growth(
    "response.output_text.delta",
    "response.output_text.done",
    "text",
    "output_text",
    ("response.content_part.added", "response.content_part.done"),
    "content_index",
    has_logprobs=True,
)
REFUSAL = Growth(
    "response.refusal.delta",
    "response.refusal.done",
    "refusal",
    "refusal",
    ("response.content_part.added", "response.content_part.done"),
    "content_index",
)
RAW_REASONING = Growth(
    "response.reasoning_text.delta",
    "response.reasoning_text.done",
    "text",
    "reasoning_text",
    ("response.content_part.added", "response.content_part.done"),
    "content_index",
)
SUMMARY = Growth(
    "response.reasoning_summary_text.delta",
    "response.reasoning_summary_text.done",
    "text",
    "summary_text",
    ("response.reasoning_summary_part.added", "response.reasoning_summary_part.done"),
    "summary_index",
)
FUNCTION = Growth("response.function_call_arguments.delta", "response.function_call_arguments.done", "arguments")
CUSTOM = Growth("response.custom_tool_call_input.delta", "response.custom_tool_call_input.done", "input")

GROWTHS = (TEXT, REFUSAL, RAW_REASONING, SUMMARY, FUNCTION, CUSTOM)


class OpenItem:
    """`constant` are the fields that never change (RS6); the text is kept in pieces and joined once."""

    def __init__(
        self, call: ResponsesRequest, kind: str, index: int, identity: str, constant: dict[str, Any], growth: Growth
    ) -> None:
        self.kind = kind
        self.index = index
        self._call = call
        self._identity = identity
        self._constant = constant
        self._item_place = f'"item_id":{quote(identity)},"output_index":{index}'
        self._closed_parts: list[dict[str, Any]] = []
        self._start(growth)

    def _start(self, growth: Growth) -> None:
        self._growth = growth
        self._pieces: list[str] = []
        self._logprobs: list[Any] = []
        self._place = self._item_place + (f',"{growth.index_field}":{len(self._closed_parts)}' if growth.part else "")
        head = f'{{"type":"{growth.delta_event}","sequence_number":'
        tail = ',"logprobs":[]}' if growth.has_logprobs else "}"  # RS18
        self._form = Form(head, tail, growth.delta_event, f',{self._place},"delta":')

    def next_part(self, growth: Growth) -> None:
        """The open part is closed, and another begins."""
        self._closed_parts.append(self._part("".join(self._pieces), self._logprobs))
        self._start(growth)

    def grows_by(self, growth: Growth) -> bool:
        return self._growth is growth

    @property
    def is_empty(self) -> bool:
        return not self._pieces

    def initial(self) -> str:
        """The item as added: in progress, every accumulator empty."""
        return dump(self._item("in_progress", None))

    def part_added(self) -> Iterator[tuple[str, str]]:
        if self._growth.part:
            yield self._growth.part_events[0], f'{self._place},"part":{dump(self._part("", []))}'

    def delta(self, text: str, number: int, logprobs: list[Any] | None) -> Frame:
        """The delta event with this sequence number. `logprobs` of an item that has any, where they are asked for."""
        self._pieces.append(text)
        form = self._form
        if logprobs is None:
            return form.fill(text, number)
        self._logprobs.extend(logprobs)
        return Frame(f'{form.head}{number}{form.before_text}{quote(text)},"logprobs":{dump(logprobs)}}}', form.event)

    def part_done(self) -> Iterator[tuple[str, str]]:
        """RS8, RS9: the done events repeat what the deltas joined to."""
        text = "".join(self._pieces)
        body = f'{self._place},"{self._growth.text_field}":{quote(text)}'
        if self._growth.has_logprobs:
            body += f',"logprobs":{dump(self._logprobs)}'
        if self.kind in ("function_call", "custom_tool_call"):
            body += f',"name":{quote(self._constant["name"])}'
        yield self._growth.done_event, body
        if self._growth.part:
            yield self._growth.part_events[1], f'{self._place},"part":{dump(self._part(text, self._logprobs))}'

    def final(self, status: str) -> str:
        """The item as done: the one that the response lists, and the only one that some clients act on."""
        return dump(self._item(status, "".join(self._pieces)))

    def _part(self, text: str, logprobs: list[Any]) -> dict[str, Any]:
        part: dict[str, Any] = {"type": self._growth.part, self._growth.text_field: text}
        if self._growth.has_logprobs:
            part |= {"annotations": [], "logprobs": logprobs}
        return part

    def _item(self, status: str, text: str | None) -> dict[str, Any]:
        item: dict[str, Any] = {"id": self._identity, "type": self.kind}
        if self.kind == "reasoning":
            parts = [] if text is None else [self._part(text, [])]
            shown = self._growth is SUMMARY
            item["summary"] = parts if shown else []
            if not shown:
                item["content"] = parts
            if self._call.include_encrypted and text is not None:
                item["encrypted_content"] = self._call.seal.seal(text)  # RS19: the done item carries it
            return item
        item["status"] = status
        if self.kind == "message":
            parts = [] if text is None else [*self._closed_parts, self._part(text, self._logprobs)]
            return item | {"role": "assistant", "content": parts}
        return item | self._constant | {self._growth.text_field: text or ""}


def message_item(call: ResponsesRequest, index: int, growth: Growth = TEXT) -> OpenItem:
    return OpenItem(call, "message", index, _identity("msg", call, index), {}, growth)


def reasoning_item(call: ResponsesRequest, index: int) -> OpenItem:
    growth = SUMMARY if call.summarise else RAW_REASONING
    return OpenItem(call, "reasoning", index, _identity("rs", call, index), {}, growth)


def call_item(call: ResponsesRequest, index: int, event: ToolCallStarted) -> OpenItem:
    """RS16: the item's own id is not the call's; RS24: short name and namespace, never one flattened name."""
    constant: dict[str, Any] = {"call_id": event.call_id, "name": event.name}
    if event.namespace is not None:
        constant["namespace"] = event.namespace
    kind, prefix, growth = ("custom_tool_call", "ctc", CUSTOM) if event.custom else ("function_call", "fc", FUNCTION)
    return OpenItem(call, kind, index, _identity(prefix, call, index), constant, growth)


def _identity(prefix: str, call: ResponsesRequest, index: int) -> str:
    """Unique across responses, since the request's id is; the same on every event of the item (RS6)."""
    return f"{prefix}_{call.request.request_id}{index:04x}"
