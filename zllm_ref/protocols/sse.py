"""Frames of an answer and their form on the wire: server-sent events with one JSON document each.

frame   = ["event: " name LF] "data: " json LF LF      ; T2: one document an event, closed by a blank line
comment = ": " text LF LF                              ; T10: keeps a connection alive, dispatches nothing
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
# Legal in JSON strings, but many line readers (Python's `splitlines` among them) take them for the end of a line.
_LINE_BREAKERS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}

DONE_TEXT = "[DONE]"


@dataclass(frozen=True, slots=True)
class Frame:
    """One event: `data` is the JSON text (or Chat's terminator), `event` the SSE event name, if the protocol has one."""

    data: str
    event: str | None = None

    @property
    def is_done(self) -> bool:
        return self.data == DONE_TEXT

    @property
    def payload(self) -> Any:
        """The document as a reader sees it: parsed from the bytes that go out, so that a check of it is a check of them."""
        return json.loads(self.data)

    def encode(self) -> bytes:
        if self.event is None:
            return b"data: " + self.data.encode() + b"\n\n"
        return b"event: " + self.event.encode() + b"\ndata: " + self.data.encode() + b"\n\n"


DONE = Frame(DONE_TEXT)
KEEP_ALIVE = b": keep-alive\n\n"


def quote(text: str) -> str:
    """A JSON string literal, without any character that a line reader could take for the end of a line."""
    return on_one_line(_ENCODER.encode(text))


def dump(value: Any) -> str:
    """Compact JSON text of a plain value, on one line. NaN and infinities raise ValueError."""
    return on_one_line(_ENCODER.encode(value))


def on_one_line(json_text: str) -> str:
    """JSON text without raw line breakers; they can only stand in strings, where an escape means the same."""
    return json_text if json_text.isascii() else json_text.translate(_LINE_BREAKERS)
