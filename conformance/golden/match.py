"""The closed list of matchers that an exchange golden may hold instead of a value. README.md says the same in words.

    {"$any": true}          anything, present
    {"$type": "string"}     string, integer, number, boolean, object, array or null; several joined by |
    {"$id": "name"}         a non-empty string: one name one value, two names two values, within a case
    {"$time": true}         seconds since 1970, whole or not
    {"$model": true}        the model that was asked
    {"$at_least": 0}        a whole number not below

All else is literal. An object matches an object with the same keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MATCHERS: Final = ("$any", "$type", "$id", "$time", "$model", "$at_least")
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


class Matcher:
    """One case: remembers which value each id name stands for."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._ids: dict[str, str] = {}

    def filled(self, value: Any) -> Any:
        """What is to be sent: matchers in it stand for the model, and for ids that were seen before."""
        if isinstance(value, dict) and len(value) == 1 and "$id" in value:
            return self._ids[value["$id"]]
        if value == {"$model": True}:
            return self._model
        if isinstance(value, dict):
            return {key: self.filled(inner) for key, inner in value.items()}
        return [self.filled(inner) for inner in value] if isinstance(value, list) else value

    def difference(self, expected: Any, got: Any, at: str = "") -> str | None:
        """Where and how `got` differs, or None where it matches."""
        if isinstance(expected, dict) and len(expected) == 1 and next(iter(expected)) in MATCHERS:
            name, argument = next(iter(expected.items()))
            return None if self._matches(name, argument, got) else f"{at or 'value'}: got {got!r}, allowed {expected}"
        if isinstance(expected, dict):
            return self._object(expected, got, at)
        if isinstance(expected, list):
            if not isinstance(got, list) or len(got) != len(expected):
                return f"{at}: got {got!r:.200}, allowed a list of {len(expected)}"
            pairs = zip(expected, got, strict=True)
            told = (self.difference(one, other, f"{at}[{number}]") for number, (one, other) in enumerate(pairs))
            return next(filter(None, told), None)
        is_same = type(expected) is type(got) and expected == got
        return None if is_same else f"{at or 'value'}: got {got!r:.200}, allowed {expected!r:.200}"

    def _object(self, expected: dict[str, Any], got: Any, at: str) -> str | None:
        if not isinstance(got, dict):
            return f"{at}: got {got!r:.200}, allowed an object"
        if expected.keys() != got.keys():
            return (
                f"{at or 'object'}: got also {sorted(got.keys() - expected.keys())}, lacks {sorted(expected.keys() - got.keys())}"
            )
        return next(
            (told for key in expected if (told := self.difference(expected[key], got[key], f"{at}.{key}".lstrip(".")))), None
        )

    def _matches(self, name: str, argument: Any, got: Any) -> bool:
        if name == "$any":
            return True
        if name == "$type":
            return any(type(got) in _TYPES[kind] for kind in argument.split("|"))
        if name == "$time":
            return type(got) in (int, float) and got > 1_500_000_000
        if name == "$model":
            return bool(got == self._model)
        if name == "$at_least":
            return type(got) is int and got >= argument
        if not isinstance(got, str) or not got:
            return False
        if argument in self._ids:
            return self._ids[argument] == got
        if got in self._ids.values():
            return False
        self._ids[argument] = got
        return True


_ID_KEYS: Final = frozenset({"id", "item_id", "call_id", "tool_use_id", "tool_call_id", "cache_id", "response_id"})
_TIMES: Final = frozenset({"created", "created_at", "completed_at"})
_OPAQUE: Final = frozenset({"signature", "encrypted_content", "obfuscation", "system_fingerprint"})


class Generaliser:
    """Puts matchers where a value is the run's and not the rule's: ids, times, the model, token counts, seals."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._names: dict[str, str] = {}

    def known(self, value: Any, key: str = "") -> Any:
        """A client's message: its ids are the server's, as far as it has seen them; all else is its own."""
        if isinstance(value, dict):
            return {name: self.known(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.known(inner, key) for inner in value]
        if isinstance(value, str) and value in self._names:
            return {"$id": self._names[value]}
        return {"$model": True} if key == "model" and value == self._model else value

    def generalise(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: self.generalise(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.generalise(inner, key) for inner in value]
        if isinstance(value, str) and value and (key in _ID_KEYS or value in self._names):
            name = self._names.setdefault(value, f"id{len(self._names) + 1}")
            return {"$id": name}
        if key in _TIMES and type(value) in (int, float):
            return {"$time": True}
        if key == "model" and value == self._model:
            return {"$model": True}
        if (key in _OPAQUE or key == "message") and isinstance(value, str):
            return {"$type": "string"}
        if key.endswith("_tokens") and key != "max_output_tokens" and type(value) is int:
            return {"$at_least": 0 if "cache" in key else min(value, 1)}
        return value
