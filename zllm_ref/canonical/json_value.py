"""JSON values that survive a round trip: object pairs in order, duplicates kept, numbers as the text that was written.

A tool call's arguments travel model text → API → client → next prompt. A float (1e5 → 100000.0) or a dict (duplicate or
reordered keys) on that way changes bytes, and with them the tokens of the next prompt.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, TypeAlias

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?\Z")
MAX_DEPTH = 200


class JsonTextError(ValueError):
    """The text is not JSON; `str(error)` says where and what was expected."""


@dataclass(frozen=True, slots=True)
class JsonNumber:
    """A number as it was written: `JsonNumber("1e5")` is not `JsonNumber("100000")`."""

    text: str

    def __post_init__(self) -> None:
        if not _NUMBER.match(self.text):
            raise JsonTextError(f"number: got {self.text!r}, allowed a JSON number")


@dataclass(frozen=True, slots=True)
class JsonObject:
    """Ordered pairs; a key may occur twice, as it may in the text."""

    pairs: tuple[tuple[str, JsonValue], ...] = ()

    def get(self, key: str) -> JsonValue:
        """The last value of `key` (what every JSON reader would see), or None."""
        for name, value in reversed(self.pairs):
            if name == key:
                return value
        return None

    def keys(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.pairs)


JsonValue: TypeAlias = "str | bool | JsonNumber | JsonObject | tuple[JsonValue, ...] | None"


def parse_json(text: str) -> JsonValue:
    """The value of a whole JSON text. NaN, Infinity, trailing text and nesting beyond MAX_DEPTH raise JsonTextError."""
    try:
        return _freeze(_DECODER.decode(text), 0)
    except RecursionError:
        raise JsonTextError(f"JSON text: got nesting deeper than the reader can follow, allowed {MAX_DEPTH}") from None
    except json.JSONDecodeError as error:
        raise JsonTextError(f"JSON text at character {error.pos}: {error.msg}") from None


def parse_json_object(text: str) -> JsonObject:
    """As `parse_json`, where only an object will do (tool arguments)."""
    value = parse_json(text)
    if not isinstance(value, JsonObject):
        raise JsonTextError(f"JSON text: got {kind_of(value)}, allowed an object")
    return value


def dump_json(value: JsonValue, *, separators: tuple[str, str] = (", ", ": ")) -> str:
    """Canonical text: no ASCII escapes, pairs in order, numbers as written. Default spacing is that of `json.dumps`."""
    comma, colon = separators
    parts: list[str] = []
    _dump(value, comma, colon, parts)
    return "".join(parts)


def from_python(value: Any) -> JsonValue:
    """A plain value (as `json.loads` gives it) as a JsonValue."""
    return parse_json(json.dumps(value, ensure_ascii=False, allow_nan=False))


def to_python(value: JsonValue) -> Any:
    """A plain value for libraries that want dicts. Loses duplicates and number text: never on the way of an argument."""
    return json.loads(dump_json(value))


def kind_of(value: JsonValue) -> str:
    """The JSON name of the value's type, for error messages."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case JsonNumber():
            return "number"
        case JsonObject():
            return "object"
        case _:
            return "array"


_quote = json.JSONEncoder(ensure_ascii=False).encode


def _dump(value: JsonValue, comma: str, colon: str, parts: list[str]) -> None:
    match value:
        case None:
            parts.append("null")
        case bool():
            parts.append("true" if value else "false")
        case str():
            parts.append(_quote(value))
        case JsonNumber():
            parts.append(value.text)
        case JsonObject():
            parts.append("{")
            for index, (name, item) in enumerate(value.pairs):
                parts.append((comma if index else "") + _quote(name) + colon)
                _dump(item, comma, colon, parts)
            parts.append("}")
        case _:
            parts.append("[")
            for index, item in enumerate(value):
                parts.append(comma if index else "")
                _dump(item, comma, colon, parts)
            parts.append("]")


class _Pairs(list[tuple[str, Any]]):
    """Marks an object while the decoder still builds lists, so that an array of pairs is not taken for one."""


def _refuse_constant(text: str) -> Any:
    raise JsonTextError(f"JSON text: got {text}, allowed a JSON number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_Pairs, parse_int=JsonNumber, parse_float=JsonNumber, parse_constant=_refuse_constant
)


def _freeze(value: Any, depth: int) -> JsonValue:
    if depth > MAX_DEPTH:
        raise JsonTextError(f"JSON text: got nesting deeper than {MAX_DEPTH}, allowed {MAX_DEPTH}")
    if isinstance(value, _Pairs):
        return JsonObject(tuple((name, _freeze(item, depth + 1)) for name, item in value))
    if isinstance(value, list):
        return tuple(_freeze(item, depth + 1) for item in value)
    return value  # type: ignore[no-any-return]  # str, bool, None or JsonNumber: the decoder makes nothing else
