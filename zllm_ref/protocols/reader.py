"""Typed reading of a request body. Every refusal names the path of the field, what was there, and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.json_value import JsonNumber, JsonObject, JsonValue, dump_json, kind_of

_SHOWN_CHARACTERS = 60
_MAX_DIGITS = 40


class Reader:
    """An object of the body together with its path. A field that is null counts as absent; a field said twice is refused."""

    __slots__ = ("path", "value")

    def __init__(self, value: JsonValue, path: str = "") -> None:
        if not isinstance(value, JsonObject):
            raise wrong_type(path, value, "an object")
        keys = value.keys()
        if len(set(keys)) != len(keys):
            name = next(key for index, key in enumerate(keys) if key in keys[:index])
            raise ApiError(
                ErrorKind.INVALID_VALUE,
                f"'{join(path, name)}': got the same field twice, allowed once",
                param=join(path, name),
            )
        self.value = value
        self.path = path

    def at(self, name: str) -> str:
        return join(self.path, name)

    def has(self, name: str) -> bool:
        return self.value.get(name) is not None

    def raw(self, name: str) -> JsonValue:
        return self.value.get(name)

    def require(self, name: str) -> JsonValue:
        """The value of a field that must be there. Raises ApiError(MISSING_FIELD)."""
        value = self.value.get(name)
        if value is None:
            raise ApiError(
                ErrorKind.MISSING_FIELD, f"'{self.at(name)}': got nothing, this field is required", param=self.at(name)
            )
        return value

    def string(self, name: str, *, allowed: Sequence[str] | None = None) -> str | None:
        value = self.value.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise wrong_type(self.at(name), value, "a string")
        if allowed is not None and value not in allowed:
            raise invalid(self.at(name), value, "one of " + ", ".join(allowed))
        return value

    def required_string(self, name: str, *, allowed: Sequence[str] | None = None) -> str:
        self.require(name)
        value = self.string(name, allowed=allowed)
        assert value is not None
        return value

    def boolean(self, name: str, *, default: bool = False) -> bool:
        value = self.value.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise wrong_type(self.at(name), value, "true or false")
        return value

    def integer(self, name: str, *, low: int, high: int) -> int | None:
        """A whole number in [low, high]; `1.0` is one too, as every JSON reader without an integer type has it."""
        value = self.value.get(name)
        if value is None:
            return None
        return integer_of(value, self.at(name), low=low, high=high)

    def number(self, name: str, *, low: float, high: float) -> float | None:
        value = self.value.get(name)
        if value is None:
            return None
        return number_of(value, self.at(name), low=low, high=high)

    def array(self, name: str) -> tuple[JsonValue, ...] | None:
        value = self.value.get(name)
        if value is None:
            return None
        if not isinstance(value, tuple):
            raise wrong_type(self.at(name), value, "an array")
        return value

    def object(self, name: str) -> Reader | None:
        value = self.value.get(name)
        return None if value is None else Reader(value, self.at(name))

    def objects(self, name: str) -> Iterator[Reader]:
        """The elements of an array of objects, each knowing its path `name[index]`; nothing when the field is absent."""
        for index, item in enumerate(self.array(name) or ()):
            yield Reader(item, f"{self.at(name)}[{index}]")

    def strings(self, name: str) -> tuple[str, ...] | None:
        values = self.array(name)
        if values is None:
            return None
        for index, value in enumerate(values):
            if not isinstance(value, str):
                raise wrong_type(f"{self.at(name)}[{index}]", value, "a string")
        return tuple(value for value in values if isinstance(value, str))


def join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def integer_of(value: JsonValue, path: str, *, low: int, high: int) -> int:
    allowed = f"a whole number from {low} to {high}"
    if not isinstance(value, JsonNumber):
        raise wrong_type(path, value, "a whole number")
    if len(value.text) <= _MAX_DIGITS and value.text.lstrip("-").isdigit():
        number = int(value.text)  # never through a float, which would change a seed beyond 2**53
    else:
        inexact = float(value.text)
        if not (math.isfinite(inexact) and inexact.is_integer()):
            raise invalid(path, value, allowed)
        number = int(inexact)
    if not low <= number <= high:
        raise invalid(path, value, allowed)
    return number


def number_of(value: JsonValue, path: str, *, low: float, high: float) -> float:
    if not isinstance(value, JsonNumber):
        raise wrong_type(path, value, "a number")
    number = float(value.text)  # a text of digits beyond every float becomes inf, and is out of range
    if not (math.isfinite(number) and low <= number <= high):
        raise invalid(path, value, f"a number from {low:g} to {high:g}")
    return number


def wrong_type(path: str, value: JsonValue, allowed: str) -> ApiError:
    where = path or "body"
    return ApiError(
        ErrorKind.INVALID_VALUE, f"'{where}': got {kind_of(value)}, allowed {allowed}", param=path or None, code="invalid_type"
    )


def invalid(path: str, value: JsonValue, allowed: str) -> ApiError:
    return ApiError(ErrorKind.INVALID_VALUE, f"'{path}': got {shown(value)}, allowed {allowed}", param=path)


def unsupported(path: str, what: str, because: str) -> ApiError:
    """A documented thing that this server does not do: always said, never ignored."""
    return ApiError(ErrorKind.UNSUPPORTED, f"'{path}': {what} is not supported here: {because}", param=path)


def shown(value: JsonValue) -> str:
    """The value as an error message shows it: cut, so that a message never grows with the body."""
    if isinstance(value, JsonObject | tuple):
        return kind_of(value)
    text = dump_json(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
