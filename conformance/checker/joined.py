"""What deltas add up to, in constant memory: a running digest of the text and the state of a JSON scanner."""

from __future__ import annotations

import hashlib
import re
from typing import Final

_HEAD = 48
_STRING_STOP: Final = re.compile(r'["\\\x00-\x1f]')
_PLAIN: Final = re.compile(r"[^\s{}\[\],:\"]+")
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_MAX_DEPTH = 512
_MAX_TOKEN = 4096


class Joined:
    """The text so far: its length, its digest and its first characters."""

    __slots__ = ("_hash", "has_lone_surrogate", "head", "length")

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self.length = 0
        self.head = ""
        self.has_lone_surrogate = False

    def add(self, text: str) -> None:
        if self.length < _HEAD:
            self.head = (self.head + text)[:_HEAD]
        self.length += len(text)
        try:
            self._hash.update(text.encode())
        except UnicodeEncodeError:
            self.has_lone_surrogate = True
            self._hash.update(text.encode(errors="surrogatepass"))

    def equals(self, text: str) -> bool:
        return len(text) == self.length and digest(text) == self._hash.digest()

    def digest(self) -> bytes:
        return self._hash.digest()

    def __str__(self) -> str:
        return f"{self.length} characters {self.head!r}{'…' if self.length > _HEAD else ''}"


def digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


def describe(text: str) -> str:
    """A text in the same words as a `Joined`, so that the two can be compared by eye."""
    return f"{len(text)} characters {text[:_HEAD]!r}{'…' if len(text) > _HEAD else ''}"


class JsonScanner:
    """Is what has been fed so far the start of one JSON value? `finish` says what is wrong, or nothing.

    A push-down automaton: `_expect` is what may come next, `_stack` the open brackets.
    """

    __slots__ = ("_escape", "_expect", "_in_string", "_stack", "_token", "error", "is_blank", "kind")

    def __init__(self) -> None:
        self.error: str | None = None
        self.kind: str | None = None
        """`{`, `[`, `"` or a letter: what the top value starts with."""
        self.is_blank = True
        self._stack: list[str] = []
        self._expect = "value"
        self._in_string = False
        self._escape = 0
        self._token = ""

    def feed(self, text: str) -> None:
        position, end = 0, len(text)
        while position < end and self.error is None:
            position = self._in_text(text, position) if self._in_string else self._outside(text, position)

    def finish(self) -> str | None:
        """None where a whole value was fed."""
        if self.error is None and self._token:
            self._end_token()
        if self.error is None and (self._stack or self._in_string or self._expect != "end"):
            self.error = "ends in the middle of a JSON value"
        return self.error

    def _in_text(self, text: str, position: int) -> int:
        if self._escape:
            character = text[position]
            if self._escape == 5:
                allowed = character in '"\\/bfnrtu'
                self._escape = 4 if character == "u" else 0
            else:
                allowed = character in "0123456789abcdefABCDEF"
                self._escape -= 1
            if not allowed:
                self.error = f"bad escape at {text[position : position + 10]!r}"
            return position + 1
        stop = _STRING_STOP.search(text, position)
        if stop is None:
            return len(text)
        if stop.group() == '"':
            self._in_string = False
            self._expect = "colon" if self._expect == "key_text" else "after"
            self._settle()
        elif stop.group() == "\\":
            self._escape = 5
        else:
            self.error = "a bare control character in a string"
        return stop.end()

    def _outside(self, text: str, position: int) -> int:
        plain = _PLAIN.match(text, position)
        if plain is not None:
            self.is_blank = False
            self._token += plain.group()
            if self._expect not in ("value", "value_or_end") or len(self._token) > _MAX_TOKEN:
                self.error = f"unexpected {self._token[:20]!r}"
            return plain.end()
        if self._token:
            self._end_token()
        character = text[position]
        if character in " \t\n\r":
            return position + 1
        self.is_blank = False
        expect = self._expect
        if self.error is not None:
            return position
        if character == '"' and expect in ("value", "value_or_end", "key", "key_or_end"):
            self._in_string = True
            self._expect = "key_text" if expect.startswith("key") else "text"
            self._note_kind(character)
        elif character in "{[" and expect in ("value", "value_or_end") and len(self._stack) < _MAX_DEPTH:
            self._note_kind(character)
            self._stack.append(character)
            self._expect = "key_or_end" if character == "{" else "value_or_end"
        elif character in "}]" and self._may_close(character):
            self._close()
        elif character == ":" and expect == "colon":
            self._expect = "value"
        elif character == "," and expect == "comma_or_end":
            self._expect = "key" if self._stack[-1] == "{" else "value"
        else:
            self.error = f"unexpected {character!r}"
        return position + 1

    def _end_token(self) -> None:
        token, self._token = self._token, ""
        self._note_kind(token[0])
        if token not in ("true", "false", "null") and _NUMBER.fullmatch(token) is None:
            self.error = f"unexpected {token[:20]!r}"
        self._expect = "after"
        self._settle()

    def _may_close(self, character: str) -> bool:
        opening, waiting = ("{", "key_or_end") if character == "}" else ("[", "value_or_end")
        return self._stack[-1:] == [opening] and self._expect in (waiting, "comma_or_end")

    def _close(self) -> None:
        self._stack.pop()
        self._expect = "after"
        self._settle()

    def _settle(self) -> None:
        if self._expect == "after":
            self._expect = "comma_or_end" if self._stack else "end"

    def _note_kind(self, character: str) -> None:
        if self.kind is None:
            self.kind = character
