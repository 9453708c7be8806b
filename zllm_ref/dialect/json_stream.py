"""Reads a JSON value piece by piece and writes it again at once in canonical spacing.

What was written is never taken back: it is a prefix of `dump_json(parse_json(text))` at every moment, for every legal text.
Stricter than Python's reader: no key twice, no lone surrogate, no NaN; the tool call with such a value is invalid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from zllm_ref.canonical.json_value import MAX_DEPTH, JsonNumber, JsonTextError

_WHITESPACE = " \t\n\r"
_PLAIN = re.compile(r'[^"\\\x00-\x1f\ud800-\udfff]+')
_ATOM = re.compile(r"[-+.0-9A-Za-z]+")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_ATOMS = frozenset({"true", "false", "null"})


class JsonStream:
    """`feed` until `is_done`; canonical text comes out of `take`. `expand` spells a marker that stands in a string."""

    def __init__(self, expand: Callable[[str], str] = lambda text: text) -> None:
        self._expand = expand
        self._written: list[str] = []
        self._closers: list[str] = []
        self._keys: list[set[str]] = []
        self._awaits = "value"
        self._key: list[str] | None = None
        self._escape = ""
        self._high = ""
        self._atom = ""
        self._at = 0

    @property
    def at(self) -> int:
        """Where the latest `feed` stopped or failed, in the text that it was given."""
        return self._at

    @property
    def is_done(self) -> bool:
        return self._awaits == "nothing"

    def take(self) -> str:
        """The canonical text since the last take."""
        text = "".join(self._written)
        self._written.clear()
        return text

    def feed(self, text: str, position: int = 0) -> int:
        """Reads from `position` on; the position after what was read: the end, or the first character after the value.

        Raises JsonTextError at the first character that no legal value could have there.
        """
        self._at = position
        while position < len(text) and not self.is_done:
            self._at = position
            if self._awaits == "string":
                position = self._read_string(text, position)
            elif self._awaits == "atom":
                position = self._read_atom(text, position)
            elif text[position] in _WHITESPACE:
                position += 1
            else:
                position = self._read_structure(text, position)
        self._at = position
        return position

    def _read_structure(self, text: str, position: int) -> int:
        character = text[position]
        awaits = self._awaits
        if awaits == "colon":
            self._need(character == ":", character, "':'")
            self._written.append(": ")
            self._awaits = "value"
        elif awaits == "comma":
            if character == self._closers[-1]:
                self._close(character)
            else:
                self._need(character == ",", character, f"',' or '{self._closers[-1]}'")
                self._written.append(", ")
                self._awaits = "key" if self._closers[-1] == "}" else "value"
        elif awaits in ("key", "key or end"):
            if character == "}" and awaits == "key or end":
                self._close(character)
            else:
                self._need(character == '"', character, "a key in quotes")
                self._key = []
                self._awaits = "string"
        elif character == "]" and awaits == "value or end":
            self._close(character)
        elif character in "{[":
            self._open("}" if character == "{" else "]", character)
        elif character == '"':
            self._written.append('"')
            self._awaits = "string"
        else:
            self._need(bool(_ATOM.match(character)), character, "a value")
            self._awaits = "atom"
            return position
        return position + 1

    def _open(self, closer: str, character: str) -> None:
        if len(self._closers) >= MAX_DEPTH:
            raise JsonTextError(f"JSON text: got nesting deeper than {MAX_DEPTH}, allowed {MAX_DEPTH}")
        self._closers.append(closer)
        self._keys.append(set())
        self._written.append(character)
        self._awaits = "key or end" if closer == "}" else "value or end"

    def _close(self, character: str) -> None:
        self._closers.pop()
        self._keys.pop()
        self._written.append(character)
        self._end_value()

    def _end_value(self) -> None:
        self._awaits = "comma" if self._closers else "nothing"

    def _read_string(self, text: str, position: int) -> int:
        if self._escape:
            return self._read_escape(text, position)
        plain = _PLAIN.match(text, position)
        if plain:
            self._add(plain.group())
            return plain.end()
        character = text[position]
        if character == '"':
            self._add("")
            self._end_string()
        elif character == "\\":
            self._escape = "\\"
        elif character >= "\ud800":
            self._add(self._expand(character))
        else:
            raise JsonTextError(f"JSON string: got the bare control character {character!r}, allowed its escape")
        return position + 1

    def _read_escape(self, text: str, position: int) -> int:
        self._escape += text[position]
        escape = self._escape
        if len(escape) == 2 and escape[1] != "u":
            self._need(escape[1] in _ESCAPES, escape, "a JSON escape")
            self._escape = ""
            self._add(_ESCAPES[escape[1]])
        elif len(escape) > 2:
            self._need(escape[-1] in "0123456789abcdefABCDEF", escape, "four hexadecimal digits")
            if len(escape) == 6:
                self._escape = ""
                self._add_code(chr(int(escape[2:], 16)))
        return position + 1

    def _add_code(self, character: str) -> None:
        if "\ud800" <= character <= "\udbff":
            self._refuse_lone_surrogate()
            self._high = character
        elif "\udc00" <= character <= "\udfff":
            self._need(bool(self._high), f"{character!a}", "a pair of surrogates")
            pair, self._high = self._high + character, ""
            self._add(pair.encode("utf-16", "surrogatepass").decode("utf-16"))
        else:
            self._add(character)

    def _refuse_lone_surrogate(self) -> None:
        self._need(not self._high, f"{self._high!a}", "a pair of surrogates")

    def _add(self, text: str) -> None:
        self._refuse_lone_surrogate()
        if self._key is not None:
            self._key.append(text)
        else:
            self._written.append(json.dumps(text, ensure_ascii=False)[1:-1])

    def _end_string(self) -> None:
        if self._key is None:
            self._written.append('"')
            self._end_value()
            return
        key = "".join(self._key)
        self._key = None
        if key in self._keys[-1]:
            raise JsonTextError(f"duplicate parameter {key}: got it twice in one object, allowed once")
        self._keys[-1].add(key)
        self._written.append(json.dumps(key, ensure_ascii=False))
        self._awaits = "colon"

    def _read_atom(self, text: str, position: int) -> int:
        match = _ATOM.match(text, position)
        if match:
            self._atom += match.group()
            if match.end() == len(text):
                return match.end()
            position = match.end()
        atom, self._atom = self._atom, ""
        if atom not in _ATOMS:
            JsonNumber(atom)  # raises JsonTextError on anything else
        self._written.append(atom)
        self._end_value()
        return position

    @staticmethod
    def _need(claim: bool, got: str, allowed: str) -> None:
        if not claim:
            raise JsonTextError(f"JSON text: got {got!r}, allowed {allowed}")
