"""Faults in WebSocket captures: a connection with two lanes, three turns, one error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from conformance.golden.render_responses import render_stream
from conformance.golden.story import Call, Story, Text

Lines: TypeAlias = list[Any]


def websocket_lines() -> Lines:
    """A right capture: what was sent and what was received, in order."""

    def turn(scope: str, part: Any, lane: str | None = None) -> Lines:
        extra = {"stream_id": lane} if lane else {}
        sent = {"direction": "sent", "message": {"type": "response.create", "input": "hi", **extra}}
        events = [{**frame.data, **extra} for frame in render_stream(Story((part,), scope=scope)) if isinstance(frame.data, dict)]
        return [sent, *({"direction": "received", "message": event} for event in events)]

    error = {
        "type": "error",
        "status": 400,
        "error": {"type": "invalid_request_error", "message": "m", "code": "invalid_value", "param": "input"},
    }
    return [
        *turn("w1", Text(("Hel", "lo"))),
        *turn("w2", Call("now", ("{}",))),
        {"direction": "sent", "message": {"type": "response.create", "input": 7}},
        {"direction": "received", "message": error},
        *turn("w3", Text(("Lane.",)), "lane-1"),
    ]


def _message(lines: Lines, kind: str, number: int = 0) -> int:
    places = [
        place for place, line in enumerate(lines) if isinstance(line.get("message"), dict) and line["message"]["type"] == kind
    ]
    return places[number]


def _insert_text(text: str) -> Callable[[Lines], None]:
    return lambda lines: lines.insert(3, {"direction": "received", "text": text})


def _lose_terminal(lines: Lines) -> None:
    del lines[_message(lines, "response.completed", -1)]


def _overlap(lines: Lines) -> None:
    lines.insert(_message(lines, "response.completed"), lines.pop(_message(lines, "response.created", 1)))


def _bad_lane(lines: Lines) -> None:
    lines[_message(lines, "response.created", 2)]["message"]["stream_id"] = "no spaces!"


def _error_field(name: str, value: Any) -> Callable[[Lines], None]:
    def edit(lines: Lines) -> None:
        lines[_message(lines, "error")]["message"][name] = value

    return edit


def _unasked(lines: Lines) -> None:
    del lines[_message(lines, "response.create", -1)]


def _skip_number(lines: Lines) -> None:
    lines[_message(lines, "response.completed", 1)]["message"]["sequence_number"] = 99


def _steer_without(lines: Lines) -> None:
    lines.insert(2, {"direction": "received", "message": {"type": "response.steer.accepted"}})


WEBSOCKET_FAULTS: Final[list[tuple[str, tuple[str, ...], Callable[[Lines], None]]]] = [
    ("[DONE] as a frame", ("WS2",), _insert_text("[DONE]")),
    ("an SSE line as a frame", ("WS2",), _insert_text('data: {"type":"response.created"}')),
    ("a list as a frame", ("WS2",), _insert_text("[1]")),
    ("the last turn never ends", ("RS2", "WS3"), _lose_terminal),
    ("the second response begins inside the first", ("WS5",), _overlap),
    ("a lane name with spaces", ("WS6",), _bad_lane),
    ("an error without status", ("WS7",), _error_field("status", None)),
    ("an error without its object", ("WS7",), _error_field("error", "no")),
    ("an answer that nobody asked for", ("WS3",), _unasked),
    ("a number is skipped", ("RS3",), _skip_number),
    ("a request that nobody answers", ("WS3",), lambda lines: lines.__delitem__(_message(lines, "error"))),
    ("a steer event without its steer", ("WS15",), _steer_without),
]
