"""Fields that an event must carry, compiled from `path: [type, rule]`.

Types: string, non_empty_string, integer, number, boolean, object, array, null, any, absent, `=literal`, `enum:NAME`,
joined by `|`. A field whose parent is missing is not reported again: the parent has its own line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from conformance.grammar.violation import Violation

MISSING: Final = type("Missing", (), {"__repr__": lambda self: "nothing"})()
ORPHAN: Final = type("Orphan", (), {})()
"""The value of a field whose parent is not an object."""

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "non_empty_string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
    "any": (str, int, float, bool, dict, list, type(None)),
    "absent": (type(MISSING),),
}

Getter = Callable[[Any], Any]


def compile_path(path: str) -> Getter:
    """A function that reads `a.b.c`; MISSING where the last key is absent, ORPHAN where an earlier one is no object."""
    keys = path.split(".")
    last = keys[-1]
    if len(keys) == 1:
        return lambda value: value.get(last, MISSING)
    first = keys[0]
    if len(keys) == 2:

        def two(value: Any) -> Any:
            inner = value.get(first)
            return inner.get(last, MISSING) if type(inner) is dict else ORPHAN

        return two
    front = keys[:-1]

    def deep(value: Any) -> Any:
        for key in front:
            value = value.get(key)
            if type(value) is not dict:
                return ORPHAN
        return value.get(last, MISSING)

    return deep


class Field:
    """One compiled requirement on one field."""

    __slots__ = ("allowed", "expected", "get", "non_empty", "path", "rule", "values")

    def __init__(self, path: str, kind: str, rule: str, enums: Mapping[str, Sequence[str]]) -> None:
        self.path = path
        self.rule = rule
        self.expected = kind
        self.get = compile_path(path)
        self.values: frozenset[str] | None = None
        self.non_empty = "non_empty_string" in kind
        allowed: set[type] = {type(ORPHAN)}
        for name in kind.split("|"):
            if name.startswith("="):
                self.values = frozenset({name[1:]})
                allowed.add(str)
            elif name.startswith("enum:"):
                self.values = frozenset(enums[name[5:]])
                self.expected = self.expected.replace(name, " or ".join(sorted(self.values)))
                allowed.add(str)
            else:
                allowed.update(_TYPES[name])
        self.allowed = frozenset(allowed)

    def accepts(self, payload: dict[str, Any]) -> bool:
        value = self.get(payload)
        kind = type(value)
        if kind not in self.allowed:
            return False
        if kind is str:
            return not (self.non_empty and not value) and (self.values is None or value in self.values)
        return True

    def violation(self, payload: dict[str, Any], event: int, level: str, where: str = "") -> Violation:
        return Violation(self.rule, event, f"field {where}{self.path}", self.expected, show(self.get(payload)), level)


def compile_condition(path: str, test: str) -> Callable[[Any], bool]:
    """A test on one field: `set` = there and not null, `unset` the opposite, `non_empty` / `empty` for strings and lists."""
    *front, last = path.split(".")
    read: Getter
    if not front:

        def read(value: Any) -> Any:
            return value.get(last)

    else:
        first = front[0]

        def read(value: Any) -> Any:
            inner = value.get(first)
            return inner.get(last) if type(inner) is dict else None

    if len(front) > 1:
        raise ValueError(f"condition {path!r}: got {len(path.split('.'))} keys, allowed one or two")
    tests: dict[str, Callable[[Any], bool]] = {
        "set": lambda value: read(value) is not None,
        "unset": lambda value: read(value) is None,
        "non_empty": lambda value: bool(found := read(value)) and type(found) in (str, list),
        "empty": lambda value: read(value) == [],
    }
    return tests[test]


def show(value: object, limit: int = 120) -> str:
    """A value as a report shows it: short, one line, JSON-like."""
    if value is MISSING or value is ORPHAN:
        return "nothing"
    text = "null" if value is None else repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
