"""Frames of an answer and their form on the wire: server-sent events with one JSON document each.

frame   = ["event: " name LF] "data: " json LF LF      ; T2: one document an event, closed by a blank line
comment = ": " text LF LF                              ; T10: keeps a connection alive, dispatches nothing
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from typing import Any

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_DECODER = json.JSONDecoder()
# Legal in JSON strings, but many line readers (Python's `splitlines` among them) take them for the end of a line.
_LINE_BREAKERS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}

_NUMBER = re.compile("0|[1-9][0-9]*")

DONE_TEXT = "[DONE]"


@dataclass(frozen=True, slots=True)
class Frame:
    """One event: `data` is the JSON text (or Chat's terminator), `event` the SSE event name, if the protocol has one."""

    data: str
    event: str | None = None
    form: Form | None = field(default=None, compare=False, repr=False)
    """What it was filled from, where it is one of many that differ in their text only."""

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


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """A frame but for its text, serialised once: filling it in costs the quoting of the text and one concatenation.

        head text tail                  before_text None
        head number before_text text tail

    The text stands where the protocol takes any string.
    """

    head: str
    tail: str
    event: str | None = None
    before_text: str | None = None

    def fill(self, text: str, number: int | None = None) -> Frame:
        """`number` where the form has a place for one, and nowhere else."""
        if self.before_text is None:
            return Frame(self.head + quote(text) + self.tail, self.event, self)
        return Frame(f"{self.head}{number}{self.before_text}{quote(text)}{self.tail}", self.event, self)

    def fits(self, frame: Frame) -> bool:
        """What goes out is this form with some text that is not empty, read as a JSON reader would."""
        data = frame.data
        if frame.event != self.event or not data.startswith(self.head):
            return False
        place = len(self.head)
        if self.before_text is not None:
            number = _NUMBER.match(data, place)
            if number is None or not data.startswith(self.before_text, number.end()):
                return False
            place = number.end() + len(self.before_text)
        try:
            text, place = _DECODER.raw_decode(data, place)
        except ValueError:
            return False
        return isinstance(text, str) and text != "" and data[place:] == self.tail


DONE = Frame(DONE_TEXT)
KEEP_ALIVE = b": keep-alive\n\n"


def quote(text: str) -> str:
    """A JSON string literal, without any character that a line reader could take for the end of a line."""
    return on_one_line(encode_basestring(text))


def dump(value: Any) -> str:
    """Compact JSON text of a plain value, on one line. NaN and infinities raise ValueError."""
    return on_one_line(_ENCODER.encode(value))


def on_one_line(json_text: str) -> str:
    """JSON text without raw line breakers; they can only stand in strings, where an escape means the same."""
    return json_text if json_text.isascii() else json_text.translate(_LINE_BREAKERS)
