"""Reads a grammar file and compiles it: paths to functions, symbols to tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

from conformance.grammar.fields import MISSING, Field, compile_path
from conformance.grammar.machine import Machine
from conformance.grammar.session import SessionMachine
from conformance.grammar.tables import EventKind, Move, Scope
from conformance.requirements import levels_for

PROTOCOLS: Final = ("chat", "responses", "messages", "responses_websocket")


@cache
def load_grammar(protocol: str) -> Grammar:
    """The compiled grammar of `protocol`. Raises ValueError with the names that exist."""
    if protocol not in PROTOCOLS:
        raise ValueError(f"protocol: got {protocol!r}, allowed {', '.join(PROTOCOLS)}")
    return Grammar(_read(protocol))


def _read(protocol: str) -> dict[str, Any]:
    text = resources.files("conformance.grammar").joinpath(f"{protocol}.json").read_text(encoding="utf-8")
    source: dict[str, Any] = json.loads(text)
    if "extends" in source:
        return {**_read(source["extends"]), **source}
    return source


class Grammar:
    """A protocol's order of events, compiled. Immutable; `start` makes a machine for one stream."""

    def __init__(self, source: Mapping[str, Any]) -> None:
        self.source = source
        self.protocol: str = source["protocol"]
        self.marker: str | None = source.get("marker")
        self.foreign_marker: str = source.get("marker_rule") or source.get("foreign_marker", "T4")
        self.event_line: str = source["event_line"]["is"]
        self.event_line_rule: str = source["event_line"]["rule"]
        self.unknown_kind: str = source["unknown_kind"]
        self.vendor_kinds = re.compile(source.get("vendor_kinds", "(?!)"))
        enums = source["enums"]
        self.scopes = {name: Scope(name, row) for name, row in source["scopes"].items()}
        for scope in self.scopes.values():
            if scope.parent:
                self.scopes[scope.parent].children.append(scope)
        self.events = {name: EventKind(name, row, self.scopes, enums) for name, row in source["events"].items()}
        for name, variant in source.get("variants", {}).items():
            self.events[name].variant = compile_path(variant["path"])
            self.events[name].variant_fields = {
                value: [Field(path, kind, rule, enums) for path, (kind, rule) in rows.items()]
                for value, rows in variant["fields"].items()
            }
        self.unary = [Field(path, kind, rule, enums) for path, (kind, rule) in source["unary"].items()]
        self._kind = source["kind"]
        self._names = dict(_names(self.events.values()))

    def kind_of(self, payload: Mapping[str, Any]) -> object:
        """The kind of an event, MISSING where it does not say."""
        if "path" in self._kind:
            return payload.get(self._kind["path"], MISSING)
        return self._kind["then"] if payload.get(self._kind["set"]) else self._kind["else"]

    def name_of(self, scope: str, symbol: str) -> str:
        """The event behind a symbol, as a report names it."""
        return self._names.get((scope, symbol)) or self._names.get((scope, symbol.partition(":")[0]), "{}").replace(
            "{}", symbol.partition(":")[2] or symbol
        )

    def start(self, profile: str = "default") -> Machine | SessionMachine:
        """A fresh machine. Profiles change levels and a few ends of stream (`openresponses` wants `[DONE]`)."""
        levels = levels_for(profile)
        unfinished = self.source.get("profiles", {}).get(profile, {}).get("unfinished", {})
        if self.protocol == "responses_websocket":
            return SessionMachine(self, profile, levels)
        return Machine(self, profile, levels, unfinished)


def _names(events: Iterable[EventKind]) -> Iterator[tuple[tuple[str, str], str]]:
    """(scope, symbol) -> event kind; `start:{type}` is kept under `start` with a place for the type."""
    for event in events:
        for scope, move in _all_moves(event.moves):
            if event.name == "chunk":
                yield (scope, move.symbol), f"a chunk with {move.symbol}" if move.symbol != "empty" else "an empty chunk"
            elif move.variable is not None:
                yield (scope, move.prefix.rstrip(":")), f"{event.name}({{}})"
            elif (scope, move.symbol) not in {("stream", "item"), ("stream", "block"), ("item", "part"), ("item", "summary")}:
                yield (scope, move.symbol), event.name


def _all_moves(moves: Iterable[Move]) -> Iterator[tuple[str, Move]]:
    for move in moves:
        if move.scope is not None:
            yield move.scope.name, move
        yield from _all_moves(move.moves)
