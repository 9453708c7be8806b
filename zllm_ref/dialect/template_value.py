"""JSON values in the clothes that a chat template expects: dicts, lists, strings, and numbers that remember their text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from zllm_ref.canonical.json_value import JsonNumber, JsonObject, JsonValue
from zllm_ref.dialect.unrenderable import UnrenderableValue


class WrittenInt(int):
    """An integer that prints as it was written (`-0` stays `-0`)."""

    written: str

    def __str__(self) -> str:
        return self.written


class WrittenFloat(float):
    """A fraction that prints as it was written (`1e5` stays `1e5`, twenty digits stay twenty digits)."""

    written: str

    def __str__(self) -> str:
        return self.written


def to_template_value(value: JsonValue, seal: Callable[[str], str] = lambda text: text) -> Any:
    """The value for a template; `seal` is put over every string, keys included. A key that occurs twice is refused."""
    match value:
        case str():
            return seal(value)
        case JsonNumber():
            return _number(value.text)
        case JsonObject():
            result: dict[str, Any] = {}
            for key, item in value.pairs:
                if seal(key) in result:
                    raise UnrenderableValue(f"object: got the key {key!r} twice, allowed once")
                result[seal(key)] = to_template_value(item, seal)
            return result
        case tuple():
            return [to_template_value(item, seal) for item in value]
        case _:
            return value


def _number(text: str) -> WrittenInt | WrittenFloat:
    is_whole = text.lstrip("-").isdigit()
    # Beyond 4,300 digits Python refuses to read an integer; nothing computes with it, its text is what counts.
    number = WrittenInt(text if len(text) < 4000 else 0) if is_whole else WrittenFloat(text)
    number.written = text
    return number


def tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """The filter as chat templates mean it: like `json.dumps`, without ASCII or HTML escapes, pairs in their order."""
    comma, colon = separators or ((", ", ": ") if indent is None else (",", ": "))
    return _write(value, ensure_ascii, indent, comma, colon, sort_keys, 0)


def _write(value: Any, ensure_ascii: bool, indent: int | None, comma: str, colon: str, sort_keys: bool, depth: int) -> str:
    def inner(item: Any) -> str:
        return _write(item, ensure_ascii, indent, comma, colon, sort_keys, depth + 1)

    def lay_out(opener: str, items: list[str], closer: str) -> str:
        if not items:
            return opener + closer
        if indent is None:
            return opener + comma.join(items) + closer
        line = "\n" + " " * (indent * (depth + 1))
        return opener + line + (comma + line).join(items) + "\n" + " " * (indent * depth) + closer

    match value:
        case WrittenInt() | WrittenFloat():
            return value.written
        case dict():
            pairs = sorted(value.items()) if sort_keys else value.items()
            written = [json.dumps(str(key), ensure_ascii=ensure_ascii) + colon + inner(item) for key, item in pairs]
            return lay_out("{", written, "}")
        case list() | tuple():
            return lay_out("[", [inner(item) for item in value], "]")
        case _:
            return json.dumps(value, ensure_ascii=ensure_ascii)
