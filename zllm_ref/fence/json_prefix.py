"""The beginning of a JSON text in canonical spacing, byte by byte: what was read, and whether it may end or go on.

mode        reading                       then
value       the first byte of a value     string, literal, number, or one level deeper
string      inside quotes                 end of string: a key (then ": ") or a value
number      digits; ends by what follows
...
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBER_PREFIX = re.compile(rb"-?(0|[1-9][0-9]*)?((?<=[0-9])\.[0-9]*)?((?<=[0-9])[eE][+-]?[0-9]*)?\Z")
_NUMBER = re.compile(rb"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?\Z")
_LITERALS = (b"true", b"false", b"null")
_HEX = b"0123456789abcdefABCDEF"


@dataclass(frozen=True, slots=True)
class JsonPrefix:
    """`stack`: one of `{` `[` per open level. `token`: the bytes of the number, literal or escape being read."""

    text: bytes = b""
    stack: tuple[int, ...] = ()
    mode: str = "value"
    token: bytes = b""

    @property
    def is_complete(self) -> bool:
        """The text is a whole JSON value."""
        if self.stack:
            return False
        return self.mode == "done" or (self.mode == "number" and _NUMBER.match(self.token) is not None)

    @property
    def may_go_on(self) -> bool:
        return self.mode != "done"

    def after(self, byte: int) -> JsonPrefix | None:
        """None: no JSON text begins so."""
        following = self._after(byte)
        if following is None:
            return None
        stack, mode, token = following
        return JsonPrefix(self.text + bytes([byte]), stack, mode, token)

    def _after(self, byte: int) -> tuple[tuple[int, ...], str, bytes] | None:
        match self.mode:
            case "value" | "first item":
                return self._value(byte)
            case "first key" | "key":
                if byte == 0x22:
                    return self.stack, "key string", b""
                return self._closed(0x7B) if byte == 0x7D and self.mode == "first key" else None
            case "string" | "key string":
                return self._string(byte)
            case "number":
                token = self.token + bytes([byte])
                if _NUMBER_PREFIX.match(token):
                    return self.stack, "number", token
                return self._behind_value(byte) if _NUMBER.match(self.token) else None
            case "literal":
                token = self.token + bytes([byte])
                if token in _LITERALS:
                    return self.stack, "done" if not self.stack else "behind", b""
                return (self.stack, "literal", token) if any(one.startswith(token) for one in _LITERALS) else None
            case "behind":
                return self._behind_value(byte)
            case "colon":
                return (self.stack, "colon space", b"") if byte == 0x3A else None
            case "colon space":
                return (self.stack, "value", b"") if byte == 0x20 else None
            case "comma space":
                return (self.stack, "key" if self.stack[-1] == 0x7B else "value", b"") if byte == 0x20 else None
            case _:
                return None

    def _value(self, byte: int) -> tuple[tuple[int, ...], str, bytes] | None:
        if byte == 0x22:
            return self.stack, "string", b""
        if byte == 0x7B:
            return (*self.stack, byte), "first key", b""
        if byte == 0x5B:
            return (*self.stack, byte), "first item", b""
        if byte == 0x5D and self.mode == "first item":
            return self._closed(0x5B)
        if byte in b"tfn":
            return self.stack, "literal", bytes([byte])
        return (self.stack, "number", bytes([byte])) if byte in b"-0123456789" else None

    def _string(self, byte: int) -> tuple[tuple[int, ...], str, bytes] | None:
        """`token` holds an escape that is not finished."""
        if self.token:
            escape = self.token + bytes([byte])
            if len(escape) == 2:
                if byte in b'"\\/bfnrt':
                    return self.stack, self.mode, b""
                return (self.stack, self.mode, escape) if byte == 0x75 else None
            if byte not in _HEX:
                return None
            return self.stack, self.mode, b"" if len(escape) == 6 else escape
        if byte == 0x5C:
            return self.stack, self.mode, b"\\"
        if byte == 0x22:
            if self.mode == "key string":
                return self.stack, "colon", b""
            return self.stack, "behind" if self.stack else "done", b""
        return (self.stack, self.mode, b"") if byte >= 0x20 else None

    def _behind_value(self, byte: int) -> tuple[tuple[int, ...], str, bytes] | None:
        if not self.stack:
            return None
        if byte == 0x2C:
            return self.stack, "comma space", b""
        return self._closed(self.stack[-1]) if byte == (0x7D if self.stack[-1] == 0x7B else 0x5D) else None

    def _closed(self, opener: int) -> tuple[tuple[int, ...], str, bytes] | None:
        if not self.stack or self.stack[-1] != opener:
            return None
        stack = self.stack[:-1]
        return stack, "behind" if stack else "done", b""
