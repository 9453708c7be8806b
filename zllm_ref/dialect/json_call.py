"""Reads one call that is written as a JSON object between two markers, from after its opening marker to after its closing one.

Closers count outside strings only, whether they come as text or as a marker; arguments are passed on as they arrive once the
name is known, and kept until then.
"""

from __future__ import annotations

from enum import Enum

from zllm_ref.canonical.json_value import JsonObject, JsonTextError, parse_json
from zllm_ref.dialect.arguments_writer import ArgumentsWriter
from zllm_ref.dialect.call_context import CallContext
from zllm_ref.dialect.call_error import CallError
from zllm_ref.dialect.call_layout import JsonLayout
from zllm_ref.dialect.cursor import WAIT, Tag
from zllm_ref.dialect.event import Diagnostic, DiagnosticKind
from zllm_ref.dialect.json_stream import JsonStream
from zllm_ref.dialect.known_tool import KnownTool
from zllm_ref.dialect.tool_wire import CUSTOM_PARAMETER

_WHITESPACE = " \t\r\n"


class _Step(Enum):
    OPEN = "'{'"
    FIRST_KEY = "a key or '}'"
    KEY = "a key"
    COLON = "':'"
    VALUE = "a value"
    COMMA = "',' or '}'"
    CLOSING = "closing"
    DONE = "done"


class JsonCall:
    """One call. `step` until `is_done`; raises CallError where the dialect's rules are broken."""

    def __init__(self, layout: JsonLayout, context: CallContext) -> None:
        self._context = context
        self._cursor = context.cursor
        self._closing = context.table.first(layout.call_close)
        self._step = _Step.OPEN
        self._stream: JsonStream | None = None
        self._key = ""
        self._read: set[str] = set()
        self._waiting = ""
        """Canonical text of arguments that came before the name."""
        self._whole = ""
        """Canonical text of the key or name that is being read."""
        self._double_encoded = False
        self.tool: KnownTool | None = None
        self._arguments: ArgumentsWriter | None = None

    @property
    def is_done(self) -> bool:
        return self._step is _Step.DONE

    @property
    def is_started(self) -> bool:
        return self._arguments is not None

    @property
    def last_closing_tag(self) -> Tag:
        return self._closing

    def step(self) -> bool:
        if self._step is _Step.DONE:
            return False
        if self._stream is not None:
            return self._read_value(self._stream)
        if self._step is _Step.CLOSING:
            return self._read_closing()
        self._cursor.skip_whitespace()
        if self._cursor.is_empty:
            return False
        return self._read_structure(self._cursor.text[self._cursor.position])

    def _read_structure(self, character: str) -> bool:
        step = self._step
        if step is _Step.OPEN and character == "{":
            self._step = _Step.FIRST_KEY
        elif step in (_Step.FIRST_KEY, _Step.KEY) and character == '"':
            self._stream = self._new_stream()
            return True
        elif step is _Step.COLON and character == ":":
            self._step = _Step.VALUE
        elif step is _Step.VALUE:
            self._begin_value(character)
            return True
        elif step is _Step.COMMA and character == ",":
            self._step = _Step.KEY
        elif step in (_Step.COMMA, _Step.FIRST_KEY) and character == "}":
            self._need_both()
            self._step = _Step.CLOSING
        else:
            seen = self._context.alphabet.spell(self._cursor.rest[:1])
            raise CallError(f"call: got {seen!r}, allowed {step.value}")
        self._cursor.take(1)
        return True

    def _new_stream(self) -> JsonStream:
        return JsonStream(self._context.alphabet.expand)

    def _begin_value(self, character: str) -> None:
        if self._key == "arguments" and character != "{":
            if not (self._context.repairs and character == '"'):
                raise CallError(f"arguments of a call: got {self._cursor.rest[:1]!r}, allowed a JSON object")
            self._double_encoded = True
        if self._key == "name" and character != '"':
            raise CallError(f"name of a called tool: got {self._cursor.rest[:1]!r}, allowed a string")
        self._stream = self._new_stream()

    def _read_value(self, stream: JsonStream) -> bool:
        problem: JsonTextError | None = None
        try:
            stream.feed(self._cursor.text, self._cursor.position)
        except JsonTextError as error:
            problem = error
        self._cursor.take_to(stream.at)
        text = stream.take()  # what was legal is said, also where it then breaks
        if self._step is _Step.VALUE and self._key == "arguments":
            self._pass_on(text)
        else:
            self._whole += text
        if problem is not None:
            raise CallError(str(problem))
        if not stream.is_done:
            return False
        self._stream = None
        whole, self._whole = self._whole, ""
        if self._step is not _Step.VALUE:
            self._finish_key(whole)
        else:
            self._finish_value(whole)
        return True

    def _finish_key(self, text: str) -> None:
        key = parse_json(text)
        assert isinstance(key, str)
        if self._context.repairs and key == "parameters":
            self._repaired("call: got the key 'parameters', read as 'arguments'")
            key = "arguments"
        if key not in ("name", "arguments") or key in self._read:
            raise CallError(f"key of a call: got {key!r}, allowed 'name' and 'arguments', each once")
        self._read.add(key)
        self._key = key
        self._step = _Step.COLON

    def _finish_value(self, text: str) -> None:
        if self._key == "name":
            name = parse_json(text)
            assert isinstance(name, str)
            self.tool, self._arguments = self._context.start_call(name)
            self._pass_on("")
        elif self._double_encoded:
            self._unwrap()
        self._step = _Step.COMMA

    def _unwrap(self) -> None:
        """Repair: arguments that were written as a string of JSON."""
        inner = parse_json(self._waiting)
        assert isinstance(inner, str)
        self._waiting = ""
        stream = self._new_stream()
        try:
            end = stream.feed(inner)
        except JsonTextError as error:
            raise CallError(f"arguments of a call: {error}") from None
        if not stream.is_done or inner[end:].strip() or not inner.lstrip().startswith("{"):
            raise CallError(f"arguments of a call: got {inner[:40]!r}, allowed a JSON object")
        self._repaired("arguments: got a string of JSON, read as the object in it")
        self._double_encoded = False
        self._pass_on(stream.take())

    def _repaired(self, message: str) -> None:
        self._context.events.append(Diagnostic(DiagnosticKind.REPAIRED, message))

    def _pass_on(self, text: str) -> None:
        """Canonical text of the arguments, as far as it may be said already."""
        self._waiting += text
        if self._arguments is None or self.tool is None or self.tool.custom or self._double_encoded:
            return
        self._arguments.json(self._waiting)
        self._waiting = ""

    def _need_both(self) -> None:
        for key in ("name", "arguments"):
            if key not in self._read:
                raise CallError(f"call: got no {key!r}, allowed one of each of 'name' and 'arguments'")

    def _read_closing(self) -> bool:
        self._cursor.skip_whitespace()
        found = self._cursor.match([self._closing])
        if found is WAIT or (found is None and self._cursor.is_empty):
            return False
        if found is None:
            seen = self._context.alphabet.spell(self._cursor.rest[:1])
            raise CallError(f"after a call: got {seen!r}, allowed {self._context.alphabet.spell(self._closing.literal)!r}")
        self._context.note(found)
        assert self._arguments is not None
        assert self.tool is not None
        if self.tool.custom:
            self._finish_custom(self._arguments)
        self._arguments.finish()
        self._step = _Step.DONE
        return True

    def _finish_custom(self, arguments: ArgumentsWriter) -> None:
        value = parse_json(self._waiting)
        text = value.get(CUSTOM_PARAMETER) if isinstance(value, JsonObject) and len(value.pairs) == 1 else None
        if not isinstance(text, str):
            raise CallError(f"arguments of a free-form tool: got {self._waiting[:40]}, allowed one string {CUSTOM_PARAMETER!r}")
        arguments.string(text)
