"""Walks one stream through a grammar.

Each frame: 1. the `event:` line, 2. the kind, 3. the fields it must carry, 4. its moves, scope by scope. An illegal move is
reported once and the machine goes where that symbol always leads, so that one fault makes one report, not a cascade.

Memory: one small entry for each *open* instance and one counter for each parent; closed ones leave only the counter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from conformance.grammar.fields import MISSING, show
from conformance.grammar.tables import Move, Scope
from conformance.grammar.violation import Violation

if TYPE_CHECKING:
    from conformance.grammar.grammar import Grammar

DONE_MARKER: Final = "[DONE]"
Key = tuple[int, ...]


class Machine:
    """One stream. `accept` takes the frames in order, `finish` says what is missing at the end."""

    def __init__(
        self,
        grammar: Grammar,
        profile: str,
        levels: Mapping[str, str],
        unfinished: Mapping[str, Mapping[str, str]] | None = None,
        event_line: str | None = None,
    ) -> None:
        self.grammar = grammar
        self.profile = profile
        self.event_number = 0
        self.num_changes = 0
        """Counts what has moved an instance: a frame that leaves it as it was left the whole stream where it stood."""
        self._levels = levels
        self._unfinished = unfinished or {}
        self._event_line = event_line or grammar.event_line
        self._instances: dict[str, dict[Key, str]] = {name: {} for name in grammar.scopes}
        self._next: dict[str, dict[Key, int]] = {name: {} for name in grammar.scopes}
        self._current: dict[str, dict[Key, Key]] = {name: {} for name in grammar.scopes}
        self._reported: set[tuple[str, Key, str]] = set()
        for scope in grammar.scopes.values():
            if not scope.has_key:
                self._instances[scope.name][()] = scope.start

    @property
    def state(self) -> str:
        """The state of the stream as a whole."""
        return self._instances["stream"][()]

    @property
    def num_open(self) -> int:
        """How many instances the machine remembers; what its memory is proportional to."""
        return sum(len(instances) for instances in self._instances.values())

    def accept(self, event_name: str | None, payload: dict[str, Any] | str) -> list[Violation]:
        """One frame: the name on its `event:` line (None without one) and its JSON object, or the text `[DONE]`."""
        self.event_number += 1
        found: list[Violation] = []
        grammar = self.grammar
        kind: object
        if isinstance(payload, str):
            if payload != DONE_MARKER:
                return [self._violation("T2", "data", "a JSON object", show(payload))]
            if grammar.marker is None:
                return [
                    self._violation(grammar.foreign_marker, f"stream is {self.state}", "no [DONE] in this protocol", DONE_MARKER)
                ]
            kind, payload = DONE_MARKER, {}
        else:
            kind = grammar.kind_of(payload)
            if self._event_line == "same_as_kind":
                if event_name != kind:
                    found.append(self._violation(grammar.event_line_rule, "event: line", show(kind), show(event_name or MISSING)))
            elif event_name is not None:
                found.append(self._violation(grammar.event_line_rule, "event: line", "none", show(event_name)))
        if not isinstance(kind, str):
            found.append(self._violation(grammar.unknown_kind, "field type", "the kind of the event", show(kind)))
            return found
        event = grammar.events.get(kind)
        if event is None or (event.profiles and self.profile not in event.profiles):
            if grammar.vendor_kinds.match(kind) is None:
                found.append(
                    self._violation(grammar.unknown_kind, "kind of event", "a known kind, or a vendor's prefix", show(kind))
                )
            return found
        for field in event.fields:
            if not field.accepts(payload):
                found.append(field.violation(payload, self.event_number, self._level(field.rule)))
        if event.variant is not None:
            for field in event.variant_fields.get(event.variant(payload), ()):
                if not field.accepts(payload):
                    found.append(field.violation(payload, self.event_number, self._level(field.rule)))
        self._walk(event.moves, [payload], found)
        return [one for one in found if one.level != "OFF"] if found else found

    def repeat(self) -> None:
        """Counts a frame that is known to be legal here and to move nothing: one that has just been accepted, again."""
        self.event_number += 1

    def finish(self) -> list[Violation]:
        """What is missing now that the stream has ended."""
        return [one for one in self._missing() if one.level != "OFF"]

    def _missing(self) -> list[Violation]:
        found: list[Violation] = []
        stream = self.grammar.scopes["stream"].states[self.state]
        rule = self._unfinished.get("stream", {}).get(stream.name, stream.unfinished)
        if rule is not None:
            found.append(self._violation(rule, f"stream is {stream.name}", self._allowed("stream", stream.name), "end of stream"))
            if stream.unfinished is not None:
                return found
        if stream.excuses:
            return found
        for scope in self.grammar.scopes.values():
            if not scope.has_key:
                continue
            for key, state in self._instances[scope.name].items():
                open_rule = scope.states[state].unfinished
                is_reported = (scope.name, key, open_rule or "") in self._reported
                if open_rule is not None and state not in scope.may_stay_open and not is_reported:
                    where = f"{scope.name}{list(key)} is {state}"
                    found.append(self._violation(open_rule, where, self._allowed(scope.name, state), "end of stream"))
            if not scope.in_order:
                found.extend(self._check_numbers(scope))
        return found

    def _walk(self, moves: Iterable[Move], stack: list[dict[str, Any]], found: list[Violation], where: str = "") -> bool:
        """Makes the moves of one frame. True where one applied."""
        payload = stack[-1]
        moved = False
        failed: Scope | None = None
        for move in moves:
            for condition in move.conditions:
                if not condition(payload):
                    break
            else:
                if move.each is not None:
                    if failed is not None:
                        continue
                    elements = move.each(payload)
                    for number, element in enumerate(elements if type(elements) is list else ()):
                        self._walk_element(move, element, number, stack, found, where)
                    continue
                if move.otherwise and moved:
                    continue
                moved = True
                scope = move.scope
                assert scope is not None
                if failed is not None and scope.parent == failed.name:
                    continue
                symbol = move.symbol if move.variable is None else f"{move.prefix}{move.variable(payload)}"
                if not self._step(scope, symbol, self._key(scope, stack) if scope.has_key else (), found):
                    failed = scope
        return moved

    def _walk_element(
        self, move: Move, element: object, number: int, stack: list[dict[str, Any]], found: list[Violation], where: str
    ) -> None:
        if not isinstance(element, dict):
            found.append(self._violation("T2", f"{where}element {number}", "an object", show(element)))
            return
        place = f"{where}[{number}]."
        for field in move.fields:
            if not field.accepts(element):
                found.append(field.violation(element, self.event_number, self._level(field.rule), place))
        stack.append(element)
        self._walk(move.moves, stack, found, place)
        stack.pop()

    def _key(self, scope: Scope, stack: list[dict[str, Any]]) -> Key:
        """The instance that the frame names. Where it names none (reported as a field), the one that is open."""
        if not scope.has_key:
            return ()
        key: list[int] = []
        for ups, name in scope.key:
            value = stack[-1 - ups].get(name)
            if type(value) is not int:
                parent = tuple(key)
                current = self._current[scope.name].get(parent)
                value = current[-1] if current else self._next[scope.name].get(parent, 0)
            key.append(value)
        return tuple(key)

    def _step(self, scope: Scope, symbol: str, key: Key, found: list[Violation]) -> bool:
        """One move of one instance. False where the table has no such move."""
        instances = self._instances[scope.name]
        state = instances.get(key)
        if state is None:
            is_closed = scope.in_order and key[-1] < self._next[scope.name].get(key[:-1], 0)
            state = "CLOSED" if is_closed else scope.start
        row = scope.states[state]
        target = row.target(symbol)
        if target is None:
            self._reject(scope, symbol, key, state, found)
            resync = scope.resync.get(symbol)
            if resync is not None and row.accepts and not (state == scope.start and scope.in_order):
                self._enter(scope, key, state, resync)
            return False
        if symbol in scope.needs_closed:
            self._check_children(scope, symbol, key, state, found)
        if state == scope.start and scope.has_key:
            self._open(scope, key, found)
        if target != state:
            self._enter(scope, key, state, target)
        return True

    def _reject(self, scope: Scope, symbol: str, key: Key, state: str, found: list[Violation]) -> None:
        row = scope.states[state]
        rule = row.rule(symbol)
        current = self._current[scope.name].get(key[:-1]) if scope.has_key else None
        where = f"{scope.name}{list(key)} is {state}" if scope.has_key else f"{scope.name} is {state}"
        allowed = self._allowed(scope.name, state)
        if state == scope.start and scope.wrong_key_rule and current is not None and symbol not in row.rules:
            rule = scope.wrong_key_rule
            allowed = f"the open {scope.name}{list(current)}"
        found.append(self._violation(rule, where, allowed, self._name(scope.name, symbol)))

    def _open(self, scope: Scope, key: Key, found: list[Violation]) -> None:
        """Numbering and overlap: what must hold when an instance appears."""
        self.num_changes += 1
        parent = key[:-1]
        expected = self._next[scope.name].get(parent, 0)
        if scope.in_order:
            if key[-1] != expected:
                where = f"{scope.name}{list(key)} opens"
                found.append(self._violation(scope.numbering_rule, where, f"index {expected}", f"index {key[-1]}"))
            self._next[scope.name][parent] = max(expected, key[-1] + 1)
        if not scope.sequential:
            return
        current = self._current[scope.name].get(parent)
        if current is not None:
            if scope.implicit_close:
                self._instances[scope.name].pop(current, None)
            elif self._instances[scope.name].get(current) not in scope.exempt:
                where = f"{scope.name}{list(current)} is {self._instances[scope.name].get(current)}"
                found.append(
                    self._violation(
                        scope.overlap_rule,
                        where,
                        f"its end before {scope.name}{list(key)} opens",
                        f"{scope.name}{list(key)} opened",
                        scope.overlap_level,
                    )
                )
        self._current[scope.name][parent] = key

    def _enter(self, scope: Scope, key: Key, state: str, target: str) -> None:
        self.num_changes += 1
        if target != "CLOSED":
            self._instances[scope.name][key] = target
            if target in scope.keeps:
                for child in scope.children:
                    self._forget(child, key)
            return
        self._instances[scope.name].pop(key, None)
        if self._current[scope.name].get(key[:-1]) == key:
            del self._current[scope.name][key[:-1]]
        for child in scope.children:
            self._forget(child, key)

    def _forget(self, scope: Scope, parent: Key) -> None:
        """A closed parent takes its children's records with it."""
        self._next[scope.name].pop(parent, None)
        self._current[scope.name].pop(parent, None)
        instances = self._instances[scope.name]
        for key in [key for key in instances if key[: len(parent)] == parent]:
            del instances[key]

    def _check_children(self, scope: Scope, symbol: str, key: Key, state: str, found: list[Violation]) -> None:
        for name, rule, excepted in scope.needs_closed[symbol]:
            if state in excepted:
                continue
            child = self.grammar.scopes[name]
            for child_key, child_state in self._instances[name].items():
                if child_key[: len(key)] != key or child_state in child.final or child_state in child.may_stay_open:
                    continue
                where = f"{name}{list(child_key)} is {child_state}"
                found.append(self._violation(rule, where, self._allowed(name, child_state), self._name(scope.name, symbol)))
                self._reported.add((name, child_key, rule))

    def _check_numbers(self, scope: Scope) -> list[Violation]:
        numbers = sorted(key[-1] for key in self._instances[scope.name])
        if numbers == list(range(len(numbers))):
            return []
        allowed = f"{scope.name} numbers {list(range(len(numbers)))}"
        return [self._violation(scope.numbering_rule, f"{scope.name}s of the stream", allowed, str(numbers))]

    def _allowed(self, scope: str, state: str) -> str:
        names = [self._name(scope, symbol) for symbol in self.grammar.scopes[scope].states[state].accepts]
        return ", ".join(dict.fromkeys(names)) or "nothing more"

    def _name(self, scope: str, symbol: str) -> str:
        return self.grammar.name_of(scope, symbol)

    def _level(self, rule: str) -> str:
        return self._levels.get(rule, "MUST")

    def _violation(self, rule: str, at: str, expected: str, got: str, level: str | None = None) -> Violation:
        return Violation(
            rule, self.event_number, at, expected, got, level if level and self._level(rule) != "OFF" else self._level(rule)
        )
