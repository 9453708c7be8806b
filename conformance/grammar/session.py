"""Responses over WebSocket: many responses on one connection, one machine a turn, turns in series within a lane.

    lane IDLE ── created ──► TURN ── terminal event ──► IDLE
               └─ error envelope ──► IDLE

A lane is a `stream_id`; without one it is the default lane. Client messages (`response.create`, `response.steer`) may be
fed too; then an answer that nobody asked for is a violation, and a request that nobody answered. A server's log alone is judged
without those checks. An error that nobody caused may come at any time: a connection has a lifetime.
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
    """`num_requests` wait or run. Steering that was accepted (`num_accepted`) is owed a successor once the response has ended."""

    __slots__ = ("machine", "num_accepted", "num_owed", "num_requests", "response_id")

    def __init__(self) -> None:
        self.machine: Machine | None = None
        self.num_requests = 0
        self.response_id: object = None
        self.num_accepted = 0
        self.num_owed = 0


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
        self._unanswered_rule: str = source["unanswered"]
        self._steering_rule: str = source["steering"]
        self._session_events = {
            kind: [Field(path, spec, rule, {}) for path, (spec, rule) in row["fields"].items()]
            for kind, row in source["session_events"].items()
        }
        self._lanes: dict[str | None, _Lane] = {}
        self._has_requests = False
        self._num_unreadable = 0
        self._num_steers = 0

    def expect_error(self) -> None:
        """The client sent what no server can read: the error that follows belongs to no lane."""
        self.event_number += 1
        self._num_unreadable += 1

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
        if is_from_client:
            self._accept_from_client(kind, lane_name)
            return found
        lane_name = lane_name if isinstance(lane_name, str) else None
        lane = self._lanes.setdefault(lane_name, _Lane()) if len(self._lanes) < _MAX_LANES else _Lane()
        if isinstance(kind, str) and kind in self._session_events:
            found.extend(
                field.violation(payload, self.event_number, self._level(field.rule))
                for field in self._session_events[kind]
                if not field.accepts(payload)
            )
            if kind == "error":
                self._accept_error(lane, lane_name)
            else:
                found.extend(self._accept_steering(kind, payload))
            return found
        found.extend(self._accept_event(lane, lane_name, kind, payload))
        return found

    def finish(self) -> list[Violation]:
        """A turn that is still open when the connection has ended has lost its terminal event; a request may have no answer."""
        found: list[Violation] = []
        for name, lane in self._lanes.items():
            where = f"lane {name or 'default'}"
            if lane.machine is not None:
                found.extend(self._renumbered(lane.machine.finish()))
            elif lane.num_requests:
                got = f"{lane.num_requests} requests without one"
                found.append(self._violation(self._unanswered_rule, where, "an answer or an error to each request", got))
            if lane.num_owed:
                found.append(self._violation(self._steering_rule, where, "the successor of the steered response", "nothing"))
        if self._num_unreadable:
            expected = "an error for a message that cannot be read"
            found.append(self._violation(self._unanswered_rule, "connection", expected, "nothing"))
        if self._num_steers > 0:
            expected = "response.steer.accepted or response.steer.failed for each response.steer"
            found.append(self._violation(self._steering_rule, "connection", expected, f"{self._num_steers} without one"))
        return found

    def _accept_from_client(self, kind: object, lane_name: object) -> None:
        self._has_requests = True
        if self._client[str(kind)] == "steer":
            self._num_steers += 1
        elif lane_name is not None and not (isinstance(lane_name, str) and self._lane_pattern.match(lane_name)):
            self._num_unreadable += 1
        elif len(self._lanes) < _MAX_LANES:
            self._lanes.setdefault(lane_name, _Lane()).num_requests += 1

    def _accept_error(self, lane: _Lane, name: str | None) -> None:
        if name is None and self._num_unreadable:
            self._num_unreadable -= 1
        else:
            lane.num_accepted = lane.num_owed = 0
            self._end_turn(lane)

    def _accept_steering(self, kind: str, payload: dict[str, Any]) -> list[Violation]:
        """accepted and failed answer a steer; pending, and a failure after the acceptance, take the successor back."""
        steer = payload.get("steer")
        identity = steer.get("previous_response_id") if isinstance(steer, dict) else None
        lane = next((one for one in self._lanes.values() if one.response_id == identity and identity is not None), None)
        lane = lane or _Lane()
        if kind == "response.steer.pending":
            return self._accept_pending(lane, payload.get("required_input"))
        if kind == "response.steer.failed" and lane.num_accepted + lane.num_owed > 0:
            lane.num_accepted, lane.num_owed = max(0, lane.num_accepted - 1), max(0, lane.num_owed - 1)
            return []
        if kind == "response.steer.accepted":
            lane.num_accepted += lane.machine is not None
            lane.num_owed += lane.machine is None
        self._num_steers -= 1
        if self._has_requests and self._num_steers < 0:
            self._num_steers = 0
            return [self._violation(self._steering_rule, kind, "one answer to each response.steer", "one more")]
        return []

    def _accept_pending(self, lane: _Lane, stubs: object) -> list[Violation]:
        found: list[Violation] = []
        if lane.machine is not None:
            found.append(self._violation(self._steering_rule, "pending", "after the response has ended", "within it"))
        elif lane.num_owed == 0 and self._has_requests:
            found.append(self._violation(self._steering_rule, "pending", "once for each accepted steering", "one more"))
        lane.num_owed = max(0, lane.num_owed - 1)
        for stub in stubs if isinstance(stubs, list) else ():
            is_whole = isinstance(stub, dict) and isinstance(stub.get("type"), str)
            if not is_whole or (stub["type"].endswith("call_output") and not isinstance(stub.get("call_id"), str)):
                expected = "stubs with a type, and the call_id of an output"
                found.append(self._violation(self._steering_rule, "required_input", expected, show(stub)))
        return found

    def _accept_event(self, lane: _Lane, name: str | None, kind: object, payload: dict[str, Any]) -> list[Violation]:
        found: list[Violation] = []
        if kind == "response.created" and lane.machine is not None:
            where = f"lane {name or 'default'} is TURN"
            found.append(self._violation(self._serial_rule, where, "the terminal event of the turn before", "response.created"))
            lane.machine = None
        if lane.machine is None:
            if lane.num_owed and lane.num_requests == 0:
                lane.num_requests = 1
            if self._has_requests and lane.num_requests == 0:
                where = f"lane {name or 'default'} is IDLE"
                found.append(self._violation(self._unasked_rule, where, "nothing before a response.create", show(kind)))
            lane.machine = Machine(self.grammar, self.profile, self._levels, event_line="none")
        if kind == "response.created":
            response = payload.get("response")
            lane.response_id = response.get("id") if isinstance(response, dict) else None
            lane.num_owed = 0
        found.extend(self._renumbered(lane.machine.accept(None, payload)))
        if kind in _TERMINAL:
            found.extend(self._renumbered(lane.machine.finish()))
            self._end_turn(lane)
        return found

    def _end_turn(self, lane: _Lane) -> None:
        lane.machine = None
        lane.num_accepted, lane.num_owed = 0, lane.num_accepted
        lane.num_requests = max(0, lane.num_requests - 1)

    def _renumbered(self, found: list[Violation]) -> list[Violation]:
        return [Violation(one.rule, self.event_number, one.at, one.expected, one.got, one.level) for one in found]

    def _level(self, rule: str) -> str:
        return self._levels.get(rule, "MUST")

    def _violation(self, rule: str, at: str, expected: str, got: str) -> Violation:
        return Violation(rule, self.event_number, at, expected, got, self._level(rule))
