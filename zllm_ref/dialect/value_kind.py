"""What a tool's schema says about a parameter's value: a string, something else, or either.

Dialects without escapes write strings bare. Whether `123` is a string or a number is then the schema's word, never a guess.
"""

from __future__ import annotations

from enum import StrEnum

from zllm_ref.canonical.json_value import JsonObject, JsonValue

_MAX_REFERENCES = 32


class ValueKind(StrEnum):
    STRING = "string"
    OTHER = "other"
    EITHER = "either"
    """Union, untyped or unknown: what reads as JSON is that value, everything else is a string of these characters."""


def parameter_kinds(parameters: JsonObject) -> dict[str, ValueKind]:
    """The kind of every declared property."""
    properties = parameters.get("properties")
    if not isinstance(properties, JsonObject):
        return {}
    return {name: value_kind(schema, parameters) for name, schema in properties.pairs}


def value_kind(schema: JsonValue, root: JsonObject) -> ValueKind:
    """The kind of values that `schema` accepts; references are looked up in `root`."""
    return _KIND[_possible(schema, root, 0)]


_STRINGS, _OTHERS = frozenset({"string"}), frozenset({"other"})
_KIND = {
    _STRINGS: ValueKind.STRING,
    _OTHERS: ValueKind.OTHER,
    _STRINGS | _OTHERS: ValueKind.EITHER,
    frozenset(): ValueKind.EITHER,
}


def _possible(schema: JsonValue, root: JsonObject, depth: int) -> frozenset[str]:
    """Which of {"string", "other"} the schema can accept."""
    both = _STRINGS | _OTHERS
    if not isinstance(schema, JsonObject) or depth > _MAX_REFERENCES:
        return both
    possible = both
    reference = schema.get("$ref")
    if isinstance(reference, str):
        possible &= _possible(_look_up(reference, root), root, depth + 1)
    kinds = schema.get("type")
    if isinstance(kinds, str):
        possible &= _STRINGS if kinds == "string" else _OTHERS
    elif isinstance(kinds, tuple) and kinds:
        possible &= frozenset("string" if kind == "string" else "other" for kind in kinds)
    if "const" in schema.keys():  # noqa: SIM118 - JsonObject is no dict
        possible &= _kind_of_values((schema.get("const"),))
    allowed = schema.get("enum")
    if isinstance(allowed, tuple) and allowed:
        possible &= _kind_of_values(allowed)
    for keyword in ("anyOf", "oneOf"):
        branches = schema.get(keyword)
        if isinstance(branches, tuple) and branches:
            possible &= frozenset().union(*(_possible(branch, root, depth + 1) for branch in branches))
    everywhere = schema.get("allOf")
    if isinstance(everywhere, tuple):
        for branch in everywhere:
            possible &= _possible(branch, root, depth + 1)
    return possible


def _kind_of_values(values: tuple[JsonValue, ...]) -> frozenset[str]:
    return frozenset("string" if isinstance(value, str) else "other" for value in values)


def _look_up(reference: str, root: JsonObject) -> JsonValue:
    if not reference.startswith("#"):
        return None
    value: JsonValue = root
    for step in reference.lstrip("#/").split("/") if reference != "#" else ():
        if not isinstance(value, JsonObject):
            return None
        value = value.get(step.replace("~1", "/").replace("~0", "~"))
    return value
