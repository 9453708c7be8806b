"""The wire: the request as it came, the answer as it went, each frame with its time."""

from __future__ import annotations

from typing import Any

from zllm_ref.canonical.message import CustomToolCall, ToolCall
from zllm_ref.inspector.attribution import part_text
from zllm_ref.inspector.axis import Span
from zllm_ref.inspector.json_places import Place, path_text, places
from zllm_ref.inspector.record import Record
from zllm_ref.inspector.summary import milliseconds
from zllm_ref.inspector.utf16 import Utf16Places
from zllm_ref.inspector.view import View

MOST_FRAMES_A_PAGE = 5_000
FRAMES_A_PAGE = 2_000
_MOST_PARTS = 5_000
_SPOKEN = ("messages", "input", "system", "instructions")
_TEXT_KEYS = ("text", "content", "output", "arguments", "input", "thinking", "reasoning", "reasoning_content", "refusal")


def wire(record: Record, view: View | None, start: int, end: int | None) -> dict[str, Any]:
    """`view` None: nothing reached the model (a refused request)."""
    body = record.raw.decode("utf-8", "replace")
    last = min(start + MOST_FRAMES_A_PAGE, start + FRAMES_A_PAGE if end is None else end)
    frames = record.frames[start:last]
    spans = view.answer.event_tokens if view is not None else ()
    answered = (view.axis.num_prompt, view.axis.num_tokens) if view is not None else None
    return {
        "request": {
            "method": record.arrival.method,
            "path": record.arrival.path,
            "headers": [list(pair) for pair in record.arrival.headers],
            "body": body,
            "body_bytes": len(record.raw) + record.body_cut,
            "cut": record.body_cut,
        },
        "parts": _parts(body, view) if view is not None else [],
        "response": {
            "status": record.status,
            "frames": [
                {
                    "index": start + index,
                    "at_ms": milliseconds(frame.at - record.received),
                    "event": frame.event,
                    "data": frame.data,
                    "tokens": _frame_tokens(frame.event_number, spans, answered if record.transport == "unary" else None),
                }
                for index, frame in enumerate(frames)
            ],
            "num_frames": record.num_frames,
            "cut": record.frames_cut,
        },
    }


def _frame_tokens(number: int | None, spans: tuple[Span, ...], whole: Span | None) -> list[int] | None:
    if number is None:
        return list(whole) if whole is not None else None
    span = spans[number] if number < len(spans) else None
    return list(span) if span is not None and span[0] < span[1] else None


class _Finder:
    """Finds the parts of the conversation in the order in which the body says them."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._waiting: list[tuple[int, int, str]] = [
            (message, index, part_text(part)) for message, one in enumerate(view.messages) for index, part in enumerate(one.parts)
        ]
        self._spans = [view.part_bytes(message) for message in range(len(view.messages))]
        self._first = 0

    def text(self, text: str) -> tuple[int, list[int] | None] | None:
        """Message and tokens of a text; None: it is not in the conversation."""
        if not text.strip():
            return None
        for place in [*range(self._first, len(self._waiting)), *range(self._first)]:
            message, index, whole = self._waiting[place]
            at = whole.find(text)
            if at < 0 and not self._is_same_call(message, index, text):
                continue
            self._first = max(self._first, place)
            span = self._spans[message][index]
            if span is None:
                whole_message = self._view.message_tokens[message]
                return message, list(whole_message) if whole_message is not None else None
            is_call = isinstance(self._view.messages[message].parts[index], ToolCall | CustomToolCall)
            if not is_call and (at > 0 or (at == 0 and len(text) < len(whole))):
                begin = span[0] + len(whole[:at].encode("utf-8", "replace"))
                inner = (min(begin, span[1]), min(begin + len(text.encode("utf-8", "replace")), span[1]))
                span = inner if inner[0] < inner[1] else span
            return message, list(self._view.axis.tokens_of(span))
        return None

    def _is_same_call(self, message: int, index: int, text: str) -> bool:
        """Arguments that were written with other spaces are the same arguments."""
        part = self._view.messages[message].parts[index]
        return isinstance(part, ToolCall) and _squeezed(text) == _squeezed(part_text(part))


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _parts(body: str, view: View) -> list[dict[str, Any]]:
    """Places of the body that reached the prompt: texts of messages, the messages around them, the tools."""
    all_places = places(body)
    units = Utf16Places(body)
    finder = _Finder(view)
    found: list[dict[str, Any]] = []
    holders: list[tuple[Place, dict[str, Any]]] = []
    for place in all_places:
        if not place.path or len(found) >= _MOST_PARTS:
            continue
        root = place.path[0]
        if root == "tools" and len(place.path) == 2 and isinstance(place.path[1], int):
            tools = view.tool_tokens
            span = tools[place.path[1]] if place.path[1] < len(tools) else None
            found.append(_part(place, units, list(span) if span is not None else None, None))
            continue
        if root not in _SPOKEN:
            continue
        entry = _part(place, units, None, None)
        if len(place.path) == 2 and isinstance(place.path[1], int) and place.kind == "object":
            holders.append((place, entry))
            found.append(entry)
            continue
        if place.kind == "string" and place.text is not None and (place.path[-1] in (*_TEXT_KEYS, *_SPOKEN)):
            hit = finder.text(place.text)
        elif place.kind == "object" and place.path[-1] == "input" and len(place.path) > 1:
            hit = finder.text(body[place.start : place.end])
        else:
            continue
        if hit is not None:
            entry["message"], entry["tokens"] = hit
            found.append(entry)
            _widen(holders, place, hit, view)
    return [entry for entry in found if entry["tokens"] is not None]


def _widen(holders: list[tuple[Place, dict[str, Any]]], place: Place, hit: tuple[int, list[int] | None], view: View) -> None:
    """The element that holds the text has the tokens of its whole message, or of several."""
    if not holders or holders[-1][0].path != place.path[:2]:
        return
    entry, whole = holders[-1][1], view.message_tokens[hit[0]]
    if whole is None:
        return
    if entry["tokens"] is None:
        entry["tokens"], entry["message"] = list(whole), hit[0]
    else:
        entry["tokens"] = [min(entry["tokens"][0], whole[0]), max(entry["tokens"][1], whole[1])]


def _part(place: Place, units: Utf16Places, tokens: list[int] | None, message: int | None) -> dict[str, Any]:
    return {"path": path_text(place.path), "utf16": units.span(place.start, place.end), "tokens": tokens, "message": message}
