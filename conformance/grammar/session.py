"""Responses over WebSocket: many responses on one connection, one machine a turn, turns in series within a lane.

    lane IDLE ── created ──► TURN ── terminal event ──► IDLE
               └─ error envelope ──► IDLE

A lane is a `stream_id`; without one it is the default lane. Client messages (`response.create`, `response.steer`) may be
fed too; then an answer that nobody asked for is a violation, and a server's log alone is judged without that check.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from conformance.grammar.fields import MISSING, Field, show
from conformance.grammar.machine import Machine
from conformance.grammar.violation import Violation

if TYPE_CHECKING:
    from conformance.grammar.grammar import Grammar

_TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})
_MAX_LANES = 4096


class _Lane:
    __slots__ = ("machine", "num_requests")

    def __init__(self) -> None:
        self.machine: Machine | None = None
        self.num_requests = 0


class SessionMachine:
    """One connection. `accept` takes client messages and server frames in the order in which they were seen."""

    def __init__(self, grammar: Grammar, profile: str, levels: Mapping[str, str]) -> None:
        self.grammar = grammar
        self.profile = profile
        self.event_number = 0
        self._levels = levels
        source = grammar.source
        self._client: Mapping[str, str] = source["client"]
        self._lane_path: str = source["lane"]["path"]
        self._lane_pattern = re.compile(source["lane"]["pattern"])
        self._lane_rule: str = source["lane"]["rule"]
        self._serial_rule: str = source["serial"]
        self._unasked_rule: str = source["unasked"]
        self._session_events = {
            kind: [Field(path, spec, rule, {}) for path, (spec, rule) in row["fields"].items()]
            for kind, row in source["session_events"].items()
        }
        self._lanes: dict[str | None, _Lane] = {}
        self._has_requests = False

    def accept(self, event_name: str | None, payload: dict[str, Any] | str) -> list[Violation]:
        """One message of either side. A string is a frame that was not a JSON object."""
        self.event_number += 1
        if isinstance(payload, str):
            return [self._violation("WS2", "frame", "one JSON event", show(payload))]
        kind = payload.get("type", MISSING)
        found: list[Violation] = []
        if event_name is not None:
            found.append(self._violation("WS2", "event: line", "none", show(event_name)))
        lane_name = payload.get(self._lane_path)
        is_from_client = isinstance(kind, str) and kind in self._client
        if (
            lane_name is not None
            and not is_from_client
            and not (isinstance(lane_name, str) and self._lane_pattern.match(lane_name))
        ):
            return [
                *found,
                self._violation(self._lane_rule, f"field {self._lane_path}", self._lane_pattern.pattern, show(lane_name)),
            ]
        lane_name = lane_name if isinstance(lane_name, str) else None
        lane = self._lanes.setdefault(lane_name, _Lane()) if len(self._lanes) < _MAX_LANES else _Lane()
        if is_from_client:
            self._has_requests = True
            lane.num_requests += 1  # a steer asks for a successor
            return found
        if isinstance(kind, str) and kind in self._session_events:
            found.extend(
                field.violation(payload, self.event_number, self._level(field.rule))
                for field in self._session_events[kind]
                if not field.accepts(payload)
            )
            if kind == "error":
                self._end_turn(lane)
            return found
        found.extend(self._accept_event(lane, lane_name, kind, payload))
        return found

    def finish(self) -> list[Violation]:
        """A turn that is still open when the connection has ended has lost its terminal event."""
        found: list[Violation] = []
        for lane in self._lanes.values():
            if lane.machine is not None:
                found.extend(self._renumbered(lane.machine.finish()))
        return found

    def _accept_event(self, lane: _Lane, name: str | None, kind: object, payload: dict[str, Any]) -> list[Violation]:
        found: list[Violation] = []
        if kind == "response.created" and lane.machine is not None:
            where = f"lane {name or 'default'} is TURN"
            found.append(self._violation(self._serial_rule, where, "the terminal event of the turn before", "response.created"))
            lane.machine = None
        if lane.machine is None:
            if self._has_requests and lane.num_requests == 0:
                where = f"lane {name or 'default'} is IDLE"
                found.append(self._violation(self._unasked_rule, where, "nothing before a response.create", show(kind)))
            lane.machine = Machine(self.grammar, self.profile, self._levels, event_line="none")
        found.extend(self._renumbered(lane.machine.accept(None, payload)))
        if kind in _TERMINAL:
            found.extend(self._renumbered(lane.machine.finish()))
            self._end_turn(lane)
        return found

    def _end_turn(self, lane: _Lane) -> None:
        lane.machine = None
        lane.num_requests = max(0, lane.num_requests - 1)

    def _renumbered(self, found: list[Violation]) -> list[Violation]:
        return [Violation(one.rule, self.event_number, one.at, one.expected, one.got, one.level) for one in found]

    def _level(self, rule: str) -> str:
        return self._levels.get(rule, "MUST")

    def _violation(self, rule: str, at: str, expected: str, got: str) -> Violation:
        return Violation(rule, self.event_number, at, expected, got, self._level(rule))
