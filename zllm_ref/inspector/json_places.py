"""Where each value of a JSON text stands in it. Reads as far as the text is JSON: a body that was cut has places too."""

from __future__ import annotations

import contextlib
import json.decoder
import re
from collections.abc import Iterator
from dataclasses import dataclass

_SPACE = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(r"-?[0-9][0-9.eE+-]*|true|false|null")
_MOST_DEPTH = 60

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A value: `text` of a string, decoded; None of anything else. `kind`: string, object, array or scalar."""

    path: Path
    start: int
    end: int
    kind: str
    text: str | None = None


def places(text: str) -> list[Place]:
    """All values, each before its parts."""
    found: list[Place | None] = []
    with contextlib.suppress(ValueError, IndexError):  # a cut or broken body: what was read until here is right
        _value(text, _skip(text, 0), (), found)
    return [place for place in found if place is not None]


def path_text(path: Path) -> str:
    """`messages[2].content`."""
    out = ""
    for step in path:
        out += f"[{step}]" if isinstance(step, int) else f".{step}" if out else step
    return out


def _value(text: str, at: int, path: Path, found: list[Place | None]) -> int:
    if len(path) > _MOST_DEPTH:
        raise ValueError("too deep")
    head = text[at]
    if head == '"':
        value, end = _string(text, at + 1)
        found.append(Place(path, at, end, "string", value))
        return end
    if head in "{[":
        own = len(found)
        found.append(None)
        end = _members(text, at, path, found) if head == "{" else _items(text, at, path, found)
        found[own] = Place(path, at, end, "object" if head == "{" else "array")
        return end
    scalar = _SCALAR.match(text, at)
    if scalar is None:
        raise ValueError("no JSON")
    found.append(Place(path, at, scalar.end(), "scalar"))
    return scalar.end()


def _string(text: str, at: int) -> tuple[str, int]:
    """The string whose first character behind the quote is at `at`, and the place behind its end."""
    value, end = json.decoder.scanstring(text, at, True)  # type: ignore[attr-defined]
    return str(value), int(end)


def _members(text: str, at: int, path: Path, found: list[Place | None]) -> int:
    at = _skip(text, at + 1)
    while text[at] != "}":
        name, at = _string(text, at + 1)
        at = _skip(text, at)
        if text[at] != ":":
            raise ValueError("no colon")
        at = _skip(text, _value(text, _skip(text, at + 1), (*path, name), found))
        if text[at] == ",":
            at = _skip(text, at + 1)
    return at + 1


def _items(text: str, at: int, path: Path, found: list[Place | None]) -> int:
    at = _skip(text, at + 1)
    index = 0
    while text[at] != "]":
        at = _skip(text, _value(text, at, (*path, index), found))
        index += 1
        if text[at] == ",":
            at = _skip(text, at + 1)
    return at + 1


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match is not None else at


def under(all_places: list[Place], path: Path) -> Iterator[Place]:
    """The places at and below a path."""
    return (place for place in all_places if place.path[: len(path)] == path)
