"""Puts a call's arguments together as they arrive, and says every piece once."""

from __future__ import annotations

import json

from zllm_ref.canonical.json_value import JsonTextError
from zllm_ref.dialect.event import ArgumentsDelta, CallFinished, ParserEvent
from zllm_ref.dialect.tool_wire import CUSTOM_PARAMETER


class ArgumentsWriter:
    """Parameters in, deltas of one JSON object out. For a custom tool: the text of its one parameter, bare."""

    def __init__(self, ordinal: int, custom: bool, events: list[ParserEvent]) -> None:
        self._ordinal = ordinal
        self._custom = custom
        self._events = events
        self._written: list[str] = []
        self._keys: set[str] = set()

    def begin_parameter(self, key: str) -> None:
        """Raises JsonTextError where the key was there before (or, for a custom tool, is not the one)."""
        if key in self._keys:
            raise JsonTextError(f"duplicate parameter {key}")
        if self._custom and key != CUSTOM_PARAMETER:
            raise JsonTextError(f"parameter of a free-form tool: got {key!r}, allowed {CUSTOM_PARAMETER!r}")
        opener = ", " if self._keys else "{"
        self._keys.add(key)
        if not self._custom:
            self._write(f"{opener}{json.dumps(key, ensure_ascii=False)}: ")

    def begin_string(self) -> None:
        if not self._custom:
            self._write('"')

    def string(self, text: str) -> None:
        self._write(text if self._custom else json.dumps(text, ensure_ascii=False)[1:-1])

    def end_string(self) -> None:
        if not self._custom:
            self._write('"')

    def value(self, text: str) -> None:
        """A whole value as canonical JSON text."""
        if self._custom:
            raise JsonTextError(f"input of a free-form tool: got {text[:40]}, allowed text")
        self._write(text)

    def json(self, text: str) -> None:
        """A piece of the object's JSON text, canonical already (the dialect writes the whole object as JSON)."""
        self._write(text)

    def finish_parameters(self) -> None:
        if not self._custom:
            self._write("}" if self._keys else "{}")
        elif not self._keys:
            raise JsonTextError(f"arguments of a free-form tool: got none, allowed {CUSTOM_PARAMETER!r}")
        self.finish()

    def finish(self) -> None:
        self._events.append(CallFinished(self._ordinal, "".join(self._written)))

    def _write(self, text: str) -> None:
        if text:
            self._written.append(text)
            self._events.append(ArgumentsDelta(self._ordinal, text))
