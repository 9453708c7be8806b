"""A grammar's rows, compiled: states, scopes, moves, event kinds. Built once, read by every machine, never changed."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any

from conformance.grammar.fields import Field, Getter, compile_condition, compile_path


class State:
    """A row of a scope's table."""

    __slots__ = ("_cache", "_wild", "accepts", "excuses", "name", "otherwise", "rules", "unfinished")

    def __init__(self, name: str, source: Mapping[str, Any]) -> None:
        self.name = name
        self.accepts: dict[str, str] = source["accepts"]
        self.otherwise: str = source["otherwise"]
        self.rules: dict[str, str] = source.get("rules", {})
        self.unfinished: str | None = source.get("unfinished")
        self.excuses: bool = source.get("excuses", False)
        self._wild = [(pattern, target) for pattern, target in self.accepts.items() if "*" in pattern]
        self._cache: dict[str, str | None] = {}

    def target(self, symbol: str) -> str | None:
        """The next state, or None where the table has no such move."""
        found = self.accepts.get(symbol)
        if found is not None or not self._wild:
            return found
        if symbol not in self._cache:
            hit = next((target for pattern, target in self._wild if fnmatch.fnmatchcase(symbol, pattern)), None)
            if len(self._cache) > 256:
                self._cache.clear()
            self._cache[symbol] = hit
        return self._cache[symbol]

    def rule(self, symbol: str) -> str:
        """Which rule an illegal move breaks."""
        if symbol in self.rules:
            return self.rules[symbol]
        return next((rule for pattern, rule in self.rules.items() if fnmatch.fnmatchcase(symbol, pattern)), self.otherwise)


class Scope:
    """One kind of machine: its states, its key, and how its instances relate to each other and to their parent."""

    __slots__ = (
        "children",
        "exempt",
        "final",
        "has_key",
        "implicit_close",
        "in_order",
        "keeps",
        "key",
        "may_stay_open",
        "name",
        "needs_closed",
        "numbering_rule",
        "overlap_level",
        "overlap_rule",
        "parent",
        "resync",
        "sequential",
        "start",
        "states",
        "wrong_key_rule",
    )  # fmt: skip

    def __init__(self, name: str, source: Mapping[str, Any]) -> None:
        self.name = name
        self.key = [_compile_key(path) for path in source["key"]]
        self.has_key = bool(self.key)
        self.parent: str | None = source.get("within")
        self.start: str = source["start"]
        self.states = {state: State(state, row) for state, row in source["states"].items()}
        numbering = source.get("numbering", {})
        self.numbering_rule: str = numbering.get("rule", "")
        self.in_order: bool = numbering.get("order") == "in_order"
        sequential = source.get("sequential", {})
        self.sequential = bool(sequential)
        self.implicit_close: bool = sequential.get("opening_closes_previous", False)
        self.overlap_rule: str = sequential.get("overlap", "")
        self.overlap_level: str | None = sequential.get("level")
        self.wrong_key_rule: str = sequential.get("wrong_key", "")
        self.exempt = frozenset(sequential.get("except", ()))
        self.keeps = frozenset(source.get("keeps", ()))
        self.may_stay_open = frozenset(source.get("may_stay_open", ()))
        self.final = frozenset({"CLOSED"} | self.keeps)
        self.children: list[Scope] = []
        self.needs_closed: dict[str, list[tuple[str, str, frozenset[str]]]] = {}
        for symbol, needs in source.get("needs_closed", {}).items():
            rows = needs if isinstance(needs, list) else [needs]
            self.needs_closed[symbol] = [(row["scope"], row["rule"], frozenset(row.get("except", ()))) for row in rows]
        targets: dict[str, set[str]] = {}
        for state in self.states.values():
            for symbol, target in state.accepts.items():
                targets.setdefault(symbol, set()).add(target)
        self.resync = {symbol: next(iter(found)) for symbol, found in targets.items() if len(found) == 1}
        """After an illegal move: where that symbol always leads, so that one fault is not reported twice."""


class Move:
    """One step in one scope (`scope`), or the same steps for every element of a list (`each`)."""

    __slots__ = ("conditions", "each", "fields", "moves", "otherwise", "prefix", "scope", "symbol", "variable")

    def __init__(self, source: Mapping[str, Any], scopes: Mapping[str, Scope], enums: Mapping[str, Any]) -> None:
        self.conditions = [compile_condition(*source[key]) for key in ("if", "and", "and2") if key in source]
        self.otherwise: bool = source.get("otherwise", False)
        self.each: Getter | None = compile_path(source["each"]) if "each" in source else None
        self.fields = [Field(path, kind, rule, enums) for path, (kind, rule) in source.get("fields", {}).items()]
        self.moves = [Move(inner, scopes, enums) for inner in source.get("moves", ())]
        self.scope: Scope | None = scopes[source["scope"]] if "scope" in source else None
        self.symbol: str = source.get("symbol", "")
        self.prefix, _, variable = self.symbol.partition("{")
        self.variable: Getter | None = compile_path(variable.rstrip("}")) if variable else None


class EventKind:
    """One kind of event: what it must carry, which moves it makes, which further fields a variant of it must carry."""

    __slots__ = ("fields", "moves", "name", "profiles", "variant", "variant_fields")

    def __init__(self, name: str, source: Mapping[str, Any], scopes: Mapping[str, Scope], enums: Mapping[str, Any]) -> None:
        self.name = name
        self.fields = [Field(path, kind, rule, enums) for path, (kind, rule) in source["fields"].items()]
        self.moves = [Move(move, scopes, enums) for move in source.get("moves", ())]
        self.profiles = frozenset(source.get("profiles", ()))
        self.variant: Getter | None = None
        self.variant_fields: dict[str, list[Field]] = {}


def _compile_key(path: str) -> tuple[int, str]:
    """`^index` reads the enclosing element of an `each`; plain paths read the innermost."""
    return (len(path) - len(path.lstrip("^")), path.lstrip("^"))
