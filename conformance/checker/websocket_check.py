"""WebSocket captures: one message a line, JSON Lines.

A line is either a server's event as it came, or `{"direction": "sent" | "received", "message": {...}}` (also `data` or `text`,
and a message kept as text). Client messages are known by their type or their direction.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from conformance.checker.laws import ResponsesLaws
from conformance.grammar import SessionMachine, Violation, load_grammar
from conformance.requirements import levels_for

_CLIENT: Final = frozenset({"response.create", "response.steer"})
_TERMINAL: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})
_STEER: Final = "response.steer."
_SENT: Final = frozenset({"sent", "send", "client", "out", "outgoing", "request"})
_SIDES: Final = ("direction", "dir", "from", "side")
_BODIES: Final = ("message", "data", "event", "text", "payload")


class WebSocketCheck:
    """One connection: the session's order and, per lane, the laws of each response."""

    def __init__(self, profile: str = "default") -> None:
        machine = load_grammar("responses_websocket").start(profile)
        assert isinstance(machine, SessionMachine)
        self._machine = machine
        self._levels = levels_for(profile)
        self._laws: dict[object, ResponsesLaws] = {}
        self.violations: list[Violation] = []
        self.num_events = 0

    def observe(self, line: str) -> None:
        """One line of a capture."""
        self.num_events += 1
        try:
            value = json.loads(line)
        except ValueError:
            self.violations.extend(self._machine.accept(None, line.strip()))
            return
        if not isinstance(value, dict):
            self.violations.extend(self._machine.accept(None, line.strip()))
            return
        side = next((value[key] for key in _SIDES if isinstance(value.get(key), str)), None)
        if side is not None and "type" not in value:
            message = next((value[key] for key in _BODIES if key in value), None)
            message = _object_of(message)
            if side in _SENT and (not isinstance(message, dict) or message.get("type") not in _CLIENT):
                self._machine.expect_error()
                return
            if isinstance(message, str):
                self.observe_text(message)
                return
            value = message if isinstance(message, dict) else {}
        self._accept(value)

    def observe_text(self, text: str) -> None:
        """One frame as it was received."""
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if isinstance(value, dict):
            self._accept(value)
        else:
            self.violations.extend(self._machine.accept(None, text))

    def finish(self) -> list[Violation]:
        self.violations.extend(self._machine.finish())
        return self.violations

    def _accept(self, payload: dict[str, Any]) -> None:
        self.violations.extend(self._machine.accept(None, payload))
        kind, lane = payload.get("type"), str(payload.get("stream_id"))
        if kind in _CLIENT or not isinstance(kind, str):
            return
        laws = self._laws.get(lane)
        if kind.startswith(_STEER):
            if laws is not None:
                laws.pass_over(payload.get("sequence_number"))
            return
        if laws is None or kind == "response.created":
            laws = self._laws[lane] = ResponsesLaws(self._levels)
        if kind != "error":
            laws.event_number = self._machine.event_number
            laws.observe(kind, payload)
            self.violations.extend(laws.found)
            laws.found = []
        if kind in _TERMINAL:
            self._laws.pop(lane, None)


def _object_of(message: object) -> object:
    """A message that was kept as text, read; as it is where it is no JSON object."""
    if isinstance(message, str):
        try:
            value = json.loads(message)
        except ValueError:
            return message
        return value if isinstance(value, dict) else message
    return message


def check_websocket_file(path: Path, profile: str = "default") -> WebSocketCheck:
    """Checks a `.jsonl` capture. Raises OSError where it cannot be read."""
    check = WebSocketCheck(profile)
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.strip():
                check.observe(line)
    check.finish()
    return check
