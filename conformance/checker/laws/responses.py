"""Laws of a Responses stream: four tellings of one text (deltas, done, item, final response) must agree."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from conformance.checker.joined import Joined, JsonScanner, describe, digest
from conformance.checker.laws.law import Laws, Text, at_path

_IDENTITY: Final = ("id", "type", "call_id", "name", "namespace", "phase")
_LIFECYCLE: Final = frozenset(
    f"response.{name}" for name in ("created", "queued", "in_progress", "completed", "incomplete", "failed")
)
_TERMINAL: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
_TEXT_EVENTS: Final = {
    "response.output_text.delta": ("content_index", "delta"),
    "response.output_text.done": ("content_index", "text"),
    "response.refusal.delta": ("content_index", "delta"),
    "response.refusal.done": ("content_index", "refusal"),
    "response.reasoning_text.delta": ("content_index", "delta"),
    "response.reasoning_text.done": ("content_index", "text"),
    "response.reasoning.delta": ("content_index", "delta"),
    "response.reasoning.done": ("content_index", "text"),
    "response.reasoning_summary_text.delta": ("summary_index", "delta"),
    "response.reasoning_summary_text.done": ("summary_index", "text"),
}
_LOGGED: Final = frozenset({"response.output_text.delta", "response.output_text.done"})
_CALL_EVENTS: Final = {
    "response.function_call_arguments.delta": "delta",
    "response.function_call_arguments.done": "arguments",
    "response.custom_tool_call_input.delta": "delta",
    "response.custom_tool_call_input.done": "input",
    "response.mcp_call_arguments.delta": "delta",
    "response.mcp_call_arguments.done": "arguments",
}
_FIRST_NUMBERED: Final = 1_747_267_200
"""Mid May 2025: from then on OpenAI numbers its events."""
_FIRST_LOGGED: Final = 1_754_006_400
"""August 2025: from then on its text events carry a logprobs list."""
_UNSTABLE: Final = ("encrypted_content", "fingerprint", "logprobs")
"""The fields of an item or part that differ between its tellings at the vendor itself."""
_EMPTY: Final[tuple[tuple[tuple[str, ...], str, object, str], ...]] = (
    (("function_call", "mcp_call"), "arguments", "", "RS9"),
    (("custom_tool_call",), "input", "", "RS9"),
    (("message",), "content", [], "RS8"),
    (("reasoning",), "summary", [], "RS8"),
)
"""What an item holds when it is announced: nothing yet."""
_STATUS_NEEDED: Final = frozenset({"message", "function_call"})


class _Item:
    """One item while it is open; afterwards its identity and digests only."""

    __slots__ = ("arguments", "digest", "identity", "parts", "scanner", "status", "texts")

    def __init__(self, item: Mapping[str, Any]) -> None:
        self.identity = {name: item.get(name) for name in _IDENTITY}
        self.texts: dict[tuple[str, int], Joined] = {}
        self.parts: dict[tuple[str, int], bytes] = {}
        self.arguments: Text | None = None
        self.scanner: JsonScanner | None = None
        self.status: object = None
        self.digest = b""


class ResponsesLaws(Laws):
    def __init__(self, levels: Mapping[str, str], request: Mapping[str, Any] | None = None) -> None:
        super().__init__(levels, request)
        self.terminal: dict[str, Any] | None = None
        self._next_number: int | None = None
        self._passed: int | None = None
        self._items: dict[int, _Item] = {}
        self._done: dict[int, _Item] = {}
        self._call_ids: set[str] = set()
        self._item_ids: set[str] = set()

    def observe(self, kind: str, payload: dict[str, Any]) -> None:
        if kind == "error" and not isinstance(at_path(payload, "error", "message") or payload.get("message"), str):
            self.report("T7", "error.message", "the error's message, inside error", payload)
        index = payload.get("output_index")
        if type(index) is int:
            self._observe_item_event(kind, index, payload)
        elif kind in _LIFECYCLE and isinstance(payload.get("response"), dict):
            self._observe_lifecycle(kind, payload["response"])
        self._observe_number(kind, payload.get("sequence_number"))

    def finish(self) -> None:
        """All of it is told at the terminal event; nothing waits for the end."""

    def outline(self) -> dict[str, Any]:
        return outline_of_response(self.terminal) if self.terminal is not None else {}

    def _observe_number(self, kind: str, number: object) -> None:
        """RS3. A resumed background stream begins later, with response.queued."""
        if type(number) is not int:
            if number is None and (self._next_number is not None or not self._is_older_than(_FIRST_NUMBERED)):
                self.report("RS3", "sequence_number", "a number on every event", "nothing")
            return
        if self._next_number is None:
            is_resumed = kind == "response.queued" and number > 0
            if number != 0 and not is_resumed:
                self.report("RS3", "sequence_number", "0 on the first event", number)
        elif number != self._next_number and (number != self._next_number + 1 or self._passed != self._next_number):
            self.report("RS3", "sequence_number", self._next_number, number)
        self._next_number = number + 1

    def pass_over(self, number: object) -> None:
        """An event beside the response had this number. Whether it counts among the response's own no source says: both go."""
        if type(number) is int and number == self._next_number:
            self._passed = number

    def _is_older_than(self, moment: int) -> bool:
        """Streams recorded before OpenAI introduced a field say so by their own clock."""
        created = self._constants.get("response.created_at")
        return isinstance(created, (int, float)) and 0 < created < moment

    def _observe_lifecycle(self, kind: str, response: dict[str, Any]) -> None:
        for name in ("id", "created_at", "model"):
            self.constant("RS4", f"response.{name}", response.get(name))
        if kind not in _TERMINAL:
            if response.get("output"):
                self.report("RS1", "response.output", "[] before the first item", response["output"])
            return
        self.terminal = response
        if kind != "response.failed":
            check_response_usage(self, response)
            self._compare_output(kind, response.get("output"))
        for index, item in self._done.items():
            if item.status == "incomplete" and (kind == "response.completed" or index != max(self._done)):
                allowed = "incomplete only on the last item of an incomplete response"
                self.report("RS11", f"item {index} status", allowed, f"incomplete in {kind}")

    def _compare_output(self, kind: str, output: object) -> None:
        """RS12: the output is the list of the done items; what differs names its own rule."""
        if not isinstance(output, list):
            return
        if len(output) != len(self._done):
            self.report("RS12", "response.output", f"the {len(self._done)} done items", f"{len(output)} items")
            return
        for number, (index, item) in enumerate(sorted(self._done.items())):
            final = output[number]
            if not isinstance(final, dict):
                self.report("RS12", f"response.output[{number}]", "an item", final)
            elif _digest_of(final) != item.digest:
                before = len(self.found)
                self._check_identity(item, final, f"response.output[{number}]")
                self._check_texts(item, final, f"response.output[{number}]")
                if len(self.found) == before:
                    self.report("RS12", f"response.output[{number}]", f"item {index} as it was done", json.dumps(final)[:160])

    def _observe_item_event(self, kind: str, index: int, payload: dict[str, Any]) -> None:
        if kind == "response.output_item.added":
            if isinstance(payload.get("item"), dict):
                self._open_item(index, payload["item"])
            return
        item = self._items.get(index)
        if item is None:
            return
        if kind == "response.output_item.done":
            if isinstance(payload.get("item"), dict):
                self._close_item(index, item, payload["item"])
            return
        if isinstance(payload.get("item_id"), str) and payload["item_id"] != item.identity["id"]:
            self.report("RS6", "item_id", f"{item.identity['id']}, the item at output_index {index}", payload["item_id"])
        if kind in _TEXT_EVENTS:
            self._observe_text(kind, index, item, payload)
        elif kind in _CALL_EVENTS:
            self._observe_call(kind, index, item, payload)
        elif kind in ("response.content_part.added", "response.reasoning_summary_part.added"):
            part = payload.get("part")
            for field in ("text", "refusal"):
                if isinstance(part, dict) and part.get(field):
                    self.report("RS8", f"part {index}.{field}", "empty when it is announced", part[field])
        elif kind in ("response.content_part.done", "response.reasoning_summary_part.done"):
            self._check_part(kind, index, item, payload)

    def _open_item(self, index: int, source: dict[str, Any]) -> None:
        item = self._items[index] = _Item(source)
        call_id = source.get("call_id")
        if source.get("type") in ("function_call", "custom_tool_call"):
            at = f"item {index} call_id"
            if not (isinstance(call_id, str) and call_id):
                self.report("RS16", at, "a non-empty call_id", call_id)
            elif call_id in self._call_ids:
                self.report("RS16", at, "a call_id of its own", call_id)
            elif call_id == source.get("id"):
                self.report("RS16", at, "another id than the item's", call_id)
            if isinstance(call_id, str):
                self._call_ids.add(call_id)
            if not isinstance(source.get("name"), str) or not source["name"]:
                self.report("RS6", f"item {index} name", "the tool's name", source.get("name"))
        if source.get("type") in ("message", "reasoning", "function_call") and not (
            isinstance(source.get("id"), str) and source["id"]
        ):
            self.report("RS6", f"item {index} id", "a non-empty id", source.get("id"))
        identity = source.get("id")
        if isinstance(identity, str) and identity:
            if identity in self._item_ids:
                self.report("RS6", f"item {index} id", "an id of its own", identity)
            self._item_ids.add(identity)
        for kinds, field, empty, rule in _EMPTY:
            if source.get("type") in kinds and source.get(field) != empty:
                self.report(rule, f"item {index} {field}", f"{empty!r} when it is announced", source.get(field))
        if source.get("type") == "message" and source.get("role") != "assistant":
            self.report("RS6", f"item {index} role", "assistant", source.get("role"))
        if source.get("type") in _STATUS_NEEDED and source.get("status") not in ("in_progress", "completed"):
            self.report("RS5", f"item {index} status", "in_progress or completed when it is announced", source.get("status"))
        if not isinstance(source.get("status"), (str, type(None))):
            self.report("RS5", f"item {index} status", "a word", source.get("status"))
        item.status = source.get("status")

    def _observe_text(self, kind: str, index: int, item: _Item, payload: dict[str, Any]) -> None:
        index_name, field = _TEXT_EVENTS[kind]
        number, value = payload.get(index_name), payload.get(field)
        if type(number) is not int or not isinstance(value, str):
            return
        key = ("summary" if index_name == "summary_index" else "content", number)
        if kind in _LOGGED and "logprobs" not in payload and not self._is_older_than(_FIRST_LOGGED):
            self.report("RS18", "logprobs", "a list", "nothing")
        if field == "delta":
            joined = item.texts.setdefault(key, Text())
            joined.add(value)
            assert isinstance(joined, Text)
            self.check_text(joined, value, f"item {index} {key[0]}[{number}] delta")
            return
        joined = item.texts.setdefault(key, Text())
        if not joined.equals(value):
            self.report("RS8", f"item {index} {key[0]}[{number}] done", f"the joined deltas, {joined}", describe(value))

    def _observe_call(self, kind: str, index: int, item: _Item, payload: dict[str, Any]) -> None:
        field = _CALL_EVENTS[kind]
        value = payload.get(field)
        if item.arguments is None:
            item.arguments, item.scanner = Text(), JsonScanner()
        if not isinstance(value, str):
            return
        if field == "delta":
            item.arguments.add(value)
            if item.scanner is not None:
                item.scanner.feed(value)
        elif not item.arguments.equals(value):
            self.report("RS9", f"item {index} {field} done", f"the joined deltas, {item.arguments}", describe(value))

    def _check_part(self, kind: str, index: int, item: _Item, payload: dict[str, Any]) -> None:
        name, number_name = ("summary", "summary_index") if "summary" in kind else ("content", "content_index")
        number, part = payload.get(number_name), payload.get("part")
        if type(number) is int and isinstance(part, dict):
            item.parts[(name, number)] = _digest_of(part)
            text = part.get("refusal") if part.get("type") == "refusal" else part.get("text")
            joined = item.texts.get((name, number), Joined())
            if not isinstance(text, str) or not joined.equals(text):
                got = describe(text) if isinstance(text, str) else text
                self.report("RS8", f"item {index} {name}[{number}] part", f"the joined deltas, {joined}", got)

    def _check_parts(self, item: _Item, final: dict[str, Any], at: str) -> None:
        """A part was told whole when it was done; the item must repeat it, annotations included."""
        for (name, number), told in item.parts.items():
            parts = final.get(name)
            part = parts[number] if isinstance(parts, list) and number < len(parts) else None
            if isinstance(part, dict) and _digest_of(part) != told:
                self.report("RS8", f"{at} {name}[{number}]", "the part as it was done", part)
        item.parts.clear()

    def _close_item(self, index: int, item: _Item, final: dict[str, Any]) -> None:
        at = f"item {index}"
        self._check_identity(item, final, at)
        self._check_texts(item, final, at)
        self._check_parts(item, final, at)
        status = final.get("status")
        is_called_by_program = at_path(final, "caller", "type") not in (None, "direct")
        if is_called_by_program:
            pass  # its arguments are done, its run is not: OpenAI leaves it in_progress
        elif final.get("type") in _STATUS_NEEDED and status not in ("completed", "incomplete"):
            self.report("RS11", f"{at} status", "completed or incomplete", status)
        elif status == "in_progress":
            self.report("RS11", f"{at} status", "a final status", status)
        if final.get("type") == "function_call":
            self._check_arguments(at, item, final, status)
        item.status = status
        item.digest = _digest_of(final)
        item.scanner = None
        self._done[index] = item
        del self._items[index]

    def _check_arguments(self, at: str, item: _Item, final: dict[str, Any], status: object) -> None:
        if status == "incomplete" or item.scanner is None:
            return
        error = item.scanner.finish()
        if error is None and item.scanner.kind != "{":
            error = "is no object"
        if error is not None:
            self.report("RS9", f"{at} arguments", "a JSON object", f"{item.arguments}: {error}")
        elif not isinstance(final.get("arguments"), str):
            self.report("RS9", f"{at} arguments", "a string", final.get("arguments"))

    def _check_identity(self, item: _Item, final: dict[str, Any], at: str) -> None:
        for name in _IDENTITY:
            if final.get(name) != item.identity[name]:
                self.report("RS6", f"{at} {name}", f"{item.identity[name]}, as announced", final.get(name))

    def _check_texts(self, item: _Item, final: dict[str, Any], at: str) -> None:
        """RS8 and RS9 between what was joined and what an item says, item done and final response alike."""
        told: dict[tuple[str, int], str] = {}
        for name in ("content", "summary"):
            parts = final.get(name)
            for number, part in enumerate(parts if isinstance(parts, list) else ()):
                text = at_path(part, "refusal") if at_path(part, "type") == "refusal" else at_path(part, "text")
                if isinstance(text, str):
                    told[(name, number)] = text
        for key in sorted(set(told) | set(item.texts)):
            joined, text = item.texts.get(key), told.get(key)
            if joined is None and final.get("type") == "reasoning":
                continue
            if text is None or not (joined or Joined()).equals(text):
                got = describe(text) if text is not None else "nothing"
                self.report("RS8", f"{at} {key[0]}[{key[1]}]", f"the joined deltas, {joined}", got)
        if item.arguments is not None:
            value = final.get("input" if final.get("type") == "custom_tool_call" else "arguments")
            if not isinstance(value, str) or not item.arguments.equals(value):
                told_value = describe(value) if isinstance(value, str) else value
                self.report("RS9", f"{at} arguments", f"the joined deltas, {item.arguments}", told_value)


def _digest_of(item: Mapping[str, Any]) -> bytes:
    """An item without the one field that may differ between its tellings."""
    return digest(json.dumps({key: value for key, value in item.items() if key not in _UNSTABLE}, sort_keys=True))


def check_response_usage(laws: Laws, response: Mapping[str, Any]) -> None:
    """RS13, for the terminal event and for the unary answer."""
    usage = response.get("usage")
    if not isinstance(usage, dict):
        return
    laws.check_counts("RS13", "usage", usage)
    read, written = usage.get("input_tokens"), usage.get("output_tokens")
    laws.check_sum("RS13", "usage.total_tokens", usage.get("total_tokens"), read, written)
    laws.check_within("RS13", "usage cached_tokens", at_path(usage, "input_tokens_details", "cached_tokens"), read)
    laws.check_within("RS13", "usage reasoning_tokens", at_path(usage, "output_tokens_details", "reasoning_tokens"), written)


def check_item_ids(laws: Laws, output: object) -> None:
    """RS6 in a whole response: events and later requests name an item by its id."""
    seen: set[str] = set()
    for number, item in enumerate(output if isinstance(output, list) else ()):
        identity = at_path(item, "id")
        if isinstance(identity, str) and identity:
            if identity in seen:
                laws.report("RS6", f"output[{number}].id", "an id of its own", identity)
            seen.add(identity)


def outline_of_response(response: Mapping[str, Any]) -> dict[str, Any]:
    """What two answers of the same generation share: no ids, no times, no encrypted blobs."""
    values: dict[str, Any] = {
        "status": response.get("status"),
        "model": response.get("model"),
        "incomplete_details": response.get("incomplete_details"),
    }
    for name in ("input_tokens", "output_tokens", "total_tokens"):
        values[f"usage.{name}"] = at_path(response.get("usage"), name)
    output = response.get("output")
    values["num_items"] = len(output) if isinstance(output, list) else None
    for index, item in enumerate(output if isinstance(output, list) else ()):
        if isinstance(item, dict):
            shared = {key: value for key, value in item.items() if key not in ("id", "call_id", "encrypted_content")}
            values[f"output[{index}]"] = shared
    return values
