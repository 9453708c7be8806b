"""Reads one call that is written as tags, from after its opening tag to after its closing tag.

name ─▶ body ─▶ key ─▶ (type) ─▶ value ─▶ body … ─▶ closing ─▶ done
         └──────────────────────────────────▶
"""

from __future__ import annotations

from enum import Enum

from zllm_ref.canonical.json_value import JsonObject, JsonTextError, JsonValue, dump_json, parse_json
from zllm_ref.dialect.arguments_writer import ArgumentsWriter
from zllm_ref.dialect.call_context import CallContext
from zllm_ref.dialect.call_error import CallError
from zllm_ref.dialect.call_layout import TagLayout
from zllm_ref.dialect.cursor import WAIT, Found, Tag
from zllm_ref.dialect.event import Diagnostic, DiagnosticKind
from zllm_ref.dialect.known_tool import KnownTool
from zllm_ref.dialect.value_kind import ValueKind


class _Step(Enum):
    OPENING = "opening"
    NAME = "name"
    BODY = "body"
    KEY = "key"
    AFTER_KEY = "after key"
    VALUE_LEAD = "value lead"
    VALUE = "value"
    CLOSING = "closing"
    DONE = "done"


class TagCall:
    """One call. `step` until `is_done`; raises CallError where the dialect's rules are broken."""

    def __init__(self, layout: TagLayout, context: CallContext, opened: int) -> None:
        self._layout = layout
        self._context = context
        self._cursor = context.cursor
        # The outer parser has read the first `opened` lines of the opening tag.
        self._opening = list(context.table.lines(layout.call_open))[opened:]
        self._parameter_open = context.table.first(layout.parameter_open)
        self._closing = list(context.table.lines(layout.call_close))
        self._key_closers = [
            (context.table.lines(layout.string_key_close), True),
            (context.table.lines(layout.key_close), False),
        ]
        value_close = context.alphabet.of_framing(layout.value_close)
        self._value_tail = "\n" if value_close.startswith("\n") else ""
        self._value_closer = context.table.first(layout.value_close)
        self._value_lead = "\n" if layout.key_close[-1:] == (">\n",) else ""
        self._interrupters = ("\n", *(('">',) if layout.marks_strings else ()), *context.alphabet.codes)
        self._step = _Step.OPENING
        self._name = ""
        self._key = ""
        self._after_key: list[Tag] = []
        self._claims_string: bool | None = None
        self._streams = False
        self._value: list[str] = []
        self.tool: KnownTool | None = None
        self._arguments: ArgumentsWriter | None = None

    @property
    def is_done(self) -> bool:
        return self._step is _Step.DONE

    @property
    def is_started(self) -> bool:
        """The name is out: the call can no longer become text."""
        return self._arguments is not None

    @property
    def last_closing_tag(self) -> Tag:
        return self._context.table.lines(self._layout.call_close)[-1]

    def step(self) -> bool:
        """One step; False: more text is needed."""
        match self._step:
            case _Step.OPENING:
                return self._expect(self._opening, _Step.NAME)
            case _Step.NAME:
                return self._read_name()
            case _Step.BODY:
                return self._read_body()
            case _Step.KEY:
                return self._read_key()
            case _Step.AFTER_KEY:
                return self._expect(self._after_key, _Step.VALUE_LEAD)
            case _Step.VALUE_LEAD:
                return self._read_value_lead()
            case _Step.VALUE:
                return self._read_value()
            case _Step.CLOSING:
                return self._read_closing()
            case _Step.DONE:
                return False

    def _expect(self, tags: list[Tag], then: _Step) -> bool:
        """Reads tags that must follow, white space between them left out."""
        if not tags:
            self._step = then
            return True
        self._cursor.skip_whitespace()
        found = self._cursor.match(tags[:1])
        if found is WAIT or (found is None and self._cursor.is_empty):
            return False
        if found is None:
            raise CallError(f"call: got {self._seen()!r}, allowed {self._spell(tags[0])!r}")
        self._context.note(found)
        tags.pop(0)
        return True

    def _read_name(self) -> bool:
        if self._layout.name_close:
            text, found = self._read_line([self._context.table.first((self._layout.name_close,))], "name of a called tool")
            self._name += text
            if found is None:
                return False
        elif not self._read_bare_name():
            return False
        self.tool, self._arguments = self._context.start_call(self._name.strip() if self._context.repairs else self._name)
        self._step = _Step.BODY
        return True

    def _read_bare_name(self) -> bool:
        """A name that ends where a parameter or the closing tag begins; both are left for the next step."""
        enders = {self._parameter_open.literal[0], self._closing[0].literal[0]} | set("<\\&" if self._context.repairs else "")
        text, position = self._cursor.text, self._cursor.position
        while position < len(text) and text[position] not in enders:
            if "\n" in self._name and text[position] not in " \t\r\n":
                self._cursor.take_to(position)
                raise CallError(f"name of a called tool: got the two lines {self._name[:80]!r}…, allowed one")
            self._name += text[position]
            position += 1
        self._cursor.take_to(position)
        if position == len(text):
            return False
        self._name = self._name.strip()
        return True

    def _read_line(self, closers: list[Tag], what: str) -> tuple[str, Found | None]:
        """Text up to one of the closers, which neither a line break nor another tag may interrupt."""
        own = {closer.literal for closer in closers}
        interrupters = [Tag(text) for text in self._interrupters if text not in own]
        text, found = self._cursor.until([*closers, *interrupters])
        if found is not None and found.tag in interrupters:
            got = self._context.alphabet.spell(found.spelling)
            raise CallError(f"{what}: got {got!r} in it, allowed one line, closed by {self._spell(closers[0])!r}")
        return text, found if found is None else self._context.note(found)

    def _read_body(self) -> bool:
        self._cursor.skip_whitespace()
        found = self._cursor.match([self._parameter_open, self._closing[0]])
        if found is WAIT or (found is None and self._cursor.is_empty):
            return False
        if found is None:
            raise CallError(
                f"body of a call: got {self._seen()!r}, allowed {self._spell(self._parameter_open)!r} "
                f"or {self._spell(self._closing[0])!r}"
            )
        self._context.note(found)
        if found.tag is self._parameter_open:
            self._key, self._step = "", _Step.KEY
        else:
            self._closing.pop(0)
            self._step = _Step.CLOSING
        return True

    def _read_key(self) -> bool:
        firsts = [tags[0] for tags, _ in self._key_closers]
        text, found = self._read_line(firsts, "name of a parameter")
        self._key += text
        if found is None:
            return False
        if self._context.repairs:
            self._key = self._key.strip()
        tags, claims = next((tags, claims) for tags, claims in self._key_closers if tags[0] is found.tag)
        self._claims_string = claims if self._layout.marks_strings else None
        self._after_key = list(tags[1:])
        self._begin_value()
        self._step = _Step.AFTER_KEY
        return True

    def _begin_value(self) -> None:
        assert self.tool is not None
        assert self._arguments is not None
        try:
            self._arguments.begin_parameter(self._key)
        except JsonTextError as error:
            raise CallError(str(error)) from None
        kind = self.tool.kind_of(self._key)
        claims = self._claims_string
        if kind is ValueKind.EITHER and claims is not None:
            kind = ValueKind.STRING if claims else ValueKind.OTHER
        elif claims is not None and claims != (kind is ValueKind.STRING):
            says = "a string" if claims else "no string"
            message = f"parameter {self._key}: got markup that says {says}, the schema says otherwise and wins"
            self._context.events.append(Diagnostic(DiagnosticKind.TYPE_MISMATCH, message))
        self._kind = kind
        self._streams = kind is ValueKind.STRING
        self._value = []
        if self._streams:
            self._arguments.begin_string()

    def _read_value_lead(self) -> bool:
        """The framing line break before a value, if the dialect has one, once."""
        if self._value_lead:
            if self._cursor.is_empty and not self._cursor.is_final:
                return False
            if self._cursor.rest.startswith(self._value_lead):
                self._cursor.take(len(self._value_lead))
        self._step = _Step.VALUE
        return True

    def _read_value(self) -> bool:
        assert self._arguments is not None
        closers = [self._value_closer]
        if self._value_tail:
            closers.insert(0, Tag(self._value_tail + self._value_closer.literal))
        text, found = self._cursor.until(closers, self._value_tail)
        if found is not None and self._value_tail and found.tag is self._value_closer and text.endswith(self._value_tail):
            text = text.removesuffix(self._value_tail)
        text = self._context.alphabet.expand(text)
        if self._streams:
            self._arguments.string(text)
        else:
            self._value.append(text)
        if found is None:
            return False
        self._context.note(found)
        if self._streams:
            self._arguments.end_string()
        else:
            self._finish_value("".join(self._value))
        self._step = _Step.BODY
        return True

    def _finish_value(self, text: str) -> None:
        assert self._arguments is not None
        read = self._read_json(text)
        if read is not None:
            self._arguments.value(read)
        elif self._kind is ValueKind.EITHER:
            self._arguments.begin_string()
            self._arguments.string(text)
            self._arguments.end_string()

    def _read_json(self, text: str) -> str | None:
        """The canonical text of a value that is no string; None: either kind is allowed, and this is a string."""
        scalar = _PYTHON_SCALARS.get(text.strip()) if self._layout.python_scalars else None
        try:
            value = parse_json(scalar or text)
            _refuse_duplicates(value)
        except JsonTextError as error:
            if self._kind is ValueKind.EITHER:
                return None
            raise CallError(f"parameter {self._key}: {error}") from None
        return dump_json(value)

    def _read_closing(self) -> bool:
        if self._closing:
            return self._expect(self._closing, _Step.CLOSING)
        assert self._arguments is not None
        try:
            self._arguments.finish_parameters()
        except JsonTextError as error:
            raise CallError(str(error)) from None
        self._step = _Step.DONE
        return True

    def _seen(self) -> str:
        return self._context.alphabet.spell(self._cursor.rest[:1])

    def _spell(self, tag: Tag) -> str:
        return self._context.alphabet.spell(tag.literal)


_PYTHON_SCALARS = {"True": "true", "False": "false", "None": "null"}


def _refuse_duplicates(value: JsonValue) -> None:
    match value:
        case JsonObject():
            keys = value.keys()
            if len(set(keys)) != len(keys):
                twice = next(key for key in keys if keys.count(key) > 1)
                raise JsonTextError(f"duplicate parameter {twice}")
            for _, item in value.pairs:
                _refuse_duplicates(item)
        case tuple():
            for item in value:
                _refuse_duplicates(item)
        case _:
            return
