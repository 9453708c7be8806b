"""The first place at which two JSON values differ.

`null` and an absent key are one value here: no official SDK tells them apart, and whether a field must be there is the
grammar's to say, not a comparison's.
"""

from __future__ import annotations

from typing import Any, Final

from conformance.grammar.fields import show

_AROUND: Final = 24


def first_difference(expected: Any, got: Any, at: str = "") -> tuple[str, str, str] | None:
    """(path, expected, got) of the first difference, or None. Texts are shown from shortly before they part."""
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in dict.fromkeys([*expected, *got]):
            found = first_difference(expected.get(key), got.get(key), f"{at}.{key}".lstrip("."))
            if found is not None:
                return found
        return None
    if isinstance(expected, list) and isinstance(got, list):
        for number, (one, other) in enumerate(zip(expected, got, strict=False)):
            found = first_difference(one, other, f"{at}[{number}]")
            if found is not None:
                return found
        return None if len(expected) == len(got) else (at, f"{len(expected)} entries", f"{len(got)} entries")
    if isinstance(expected, str) and isinstance(got, str) and expected != got:
        place = _where_they_part(expected, got)
        return f"{at} from character {place}" if place else at, _piece(expected, place), _piece(got, place)
    is_same = expected == got and isinstance(expected, bool) == isinstance(got, bool)
    return None if is_same else (at, _told(expected), _told(got))


def _where_they_part(one: str, other: str) -> int:
    shorter = min(len(one), len(other))
    return next((place for place in range(shorter) if one[place] != other[place]), shorter)


def _piece(text: str, place: int) -> str:
    start = max(0, place - _AROUND)
    piece = text[start : place + _AROUND]
    return f"{'…' if start else ''}{piece!r}{'…' if len(text) > place + _AROUND else ''} ({len(text)} characters)"


def _told(value: object) -> str:
    return "nothing" if value is None else show(value)
