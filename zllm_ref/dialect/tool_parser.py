"""Reads an answer as it is generated: pieces of text and markers in, events out.

    opening ─▶ reasoning ─▶ after reasoning ─▶ text ◀──▶ calls ─▶ after calls
       └──────────────────────────────────────▶

How the answer was cut into pieces never matters: the events, deltas joined, are the same. Nothing of a tag leaks: text is held
back exactly while it could still become one, and the id of a marker that means nothing where it came is left out, with a remark.
What breaks the rules before the call's name is out becomes text again, byte for byte; after that the call stays open for ever,
with a diagnostic, and the rest of it is swallowed. What the answer's end cuts before the name is left out, with a remark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from zllm_ref.canonical.request import Tool
from zllm_ref.dialect.call_context import CallContext
from zllm_ref.dialect.call_error import CallError
from zllm_ref.dialect.call_layout import JsonLayout, ProtocolDefinition
from zllm_ref.dialect.cursor import WAIT, Cursor, Found, Tag, Wait
from zllm_ref.dialect.event import Diagnostic, DiagnosticKind, ParserEvent, ReasoningDelta, TextDelta
from zllm_ref.dialect.json_call import JsonCall
from zllm_ref.dialect.known_tool import known_tools
from zllm_ref.dialect.parser_phase import ParserPhase
from zllm_ref.dialect.parser_tags import parser_tags
from zllm_ref.dialect.tag_call import TagCall
from zllm_ref.tokenizer.detokenizer import Piece, TextPiece
from zllm_ref.tokenizer.vocabulary import Vocabulary

_BLANKS = " \t\r\n"


class ParseMode(StrEnum):
    STRICT = "strict"
    """Only what the dialect allows is a call; everything else stays text."""
    REPAIR = "repair"
    """Reads what models are known to write instead (the table in `repair`), and reports it."""


class ToolParser:
    """One answer. Mutable; make one per answer.

    `vocabulary` None: every marker is known by its spelling only (plain text in). `accepts_unknown`: also calls of tools that
    are not in `tools` (a history may hold them). `ends_reasoning_at_call`: the marker that opens a call ends reasoning that was
    left open; off by default, and only ever by the marker's id.
    """

    def __init__(
        self,
        definition: ProtocolDefinition,
        vocabulary: Vocabulary | None,
        tools: Sequence[Tool],
        *,
        starts_in_reasoning: bool = False,
        mode: ParseMode = ParseMode.STRICT,
        accepts_unknown: bool = False,
        ends_reasoning_at_call: bool = False,
    ) -> None:
        self._definition = definition
        self._layout = definition.calls
        self._repairs = mode is ParseMode.REPAIR
        self._tags = parser_tags(definition, vocabulary, repairs=self._repairs)
        self._alphabet = self._tags.table.alphabet
        self._cursor = Cursor()
        self._events: list[ParserEvent] = []
        self._context = CallContext(self._cursor, self._tags.table, known_tools(tools), accepts_unknown, self._events)
        self._reads_calls = bool(tools) or accepts_unknown
        opener = self._tags.openers[0]
        self._ends_reasoning = [opener] if ends_reasoning_at_call and opener.literal >= "\ud800" else []
        first = ParserPhase.REASONING if starts_in_reasoning else ParserPhase.OPENING
        self._phase = ParserPhase.TEXT if definition.reasoning is None else first
        self._framing_left = ""
        self._call: TagCall | JsonCall | None = None
        self._block_is_open = False
        self._has_noted_markup = False
        self._has_broken_call = False
        self._strays = self._tags.strays if self._reads_calls else frozenset(self._alphabet.codes)
        self._opener_text = ""
        self._recent_text = ""

    def push(self, pieces: Iterable[Piece]) -> list[ParserEvent]:
        """Reads pieces; the events that are certain now."""
        self._cursor.append("".join(piece.text if isinstance(piece, TextPiece) else self._code(piece.text) for piece in pieces))
        return self._run()

    def _code(self, marker: str) -> str:
        """A marker as the buffer has it; one that the dialect does not know means nothing anywhere."""
        code = self._alphabet.of_marker_text(marker)
        if code is None:
            self._leave_out("answer", marker)
        return code or ""

    def push_text(self, text: str) -> list[ParserEvent]:
        """As `push`, for a piece of text."""
        return self.push((TextPiece(text),))

    def finish(self) -> list[ParserEvent]:
        """The answer is over: what was held back comes out, unless it is of a tag, and what stayed open is named."""
        if self._call is not None and self._call.is_started and self._phase is ParserPhase.CALL:
            self._break_call("call: the answer ended inside it", DiagnosticKind.INCOMPLETE_CALL)
            return self._drain()
        if self._is_inside_opener():
            self._leave_out_opener()
            return self._drain()
        self._cursor.end()
        events = self._run()
        if self._phase is ParserPhase.REASONING:
            self._events.append(Diagnostic(DiagnosticKind.OPEN_REASONING, "reasoning: the answer ended before it was closed"))
        return events + self._drain()

    # -- the machine ------------------------------------------------------------------------------------------------------

    def _drain(self) -> list[ParserEvent]:
        events = list(self._events)
        self._events.clear()
        return events

    def _run(self) -> list[ParserEvent]:
        while self._step():
            pass
        return self._drain()

    def _step(self) -> bool:
        match self._phase:
            case ParserPhase.OPENING:
                return self._read_opening()
            case ParserPhase.REASONING:
                return self._read_reasoning()
            case ParserPhase.AFTER_REASONING:
                return self._read_after_reasoning()
            case ParserPhase.TEXT:
                return self._read_text()
            case ParserPhase.REGION:
                return self._read_region()
            case ParserPhase.CALL:
                return self._read_call()
            case ParserPhase.SKIPPING:
                return self._skip_call()
            case ParserPhase.AFTER_CALLS:
                return self._read_after_calls()

    def _read_opening(self) -> bool:
        """Reasoning that the model opens itself, at the very start of the answer; white space before it is framing."""
        reasoning = self._definition.reasoning
        assert reasoning is not None
        rest = self._cursor.rest
        space = len(rest) - len(rest.lstrip(_BLANKS))
        found = self._cursor.match([Tag(self._alphabet.code(reasoning.open_marker))], space)
        if found is WAIT or (found is None and self._cursor.is_empty):
            return False
        if found is None:
            self._phase = ParserPhase.TEXT
        else:
            self._framing_left = reasoning.after_open
            self._phase = ParserPhase.REASONING
        return True

    def _read_reasoning(self) -> bool:
        reasoning = self._definition.reasoning
        assert reasoning is not None
        if not self._read_framing():
            return False
        closer = self._tags.table.first((reasoning.close_marker,))
        tags = [closer, *self._ends_reasoning]
        if reasoning.before_close:
            tags.insert(0, Tag(reasoning.before_close + closer.literal))
        if self._ends_reasoning:
            tags.append(Tag(self._layout.lead + self._tags.openers[0].literal))
        text, found = self._cursor.until(tags, reasoning.before_close)
        if found is not None and found.tag is closer:
            text = text.removesuffix(reasoning.before_close)
        self._say_reasoning(text)
        if found is None:
            return False
        if closer.literal in found.spelling or found.tag is closer:
            self._context.note(found)
            self._framing_left = reasoning.after_close
            self._phase = ParserPhase.AFTER_REASONING
        else:
            self._events.append(Diagnostic(DiagnosticKind.OPEN_REASONING, "reasoning: a call began before it was closed"))
            self._enter_calls(Found(self._tags.openers[0], self._tags.openers[0].literal), "")
        return True

    def _read_framing(self) -> bool:
        """Leaves out what is left of a framing text, as far as it is there."""
        while self._framing_left:
            if self._cursor.is_empty:
                return False
            if self._cursor.text[self._cursor.position] != self._framing_left[0]:
                self._framing_left = ""
                break
            self._cursor.take(1)
            self._framing_left = self._framing_left[1:]
        return True

    def _read_after_reasoning(self) -> bool:
        if not self._read_framing():
            return False
        self._phase = ParserPhase.TEXT
        return True

    def _read_text(self) -> bool:
        if not self._reads_calls:
            self._say_text(self._cursor.take_to(len(self._cursor.text)))
            return False
        lead = self._layout.lead
        with_lead = self._tags.with_lead
        text, found = self._cursor.until([*with_lead, *self._tags.openers, *self._tags.closers], lead)
        if found is None:
            self._say_text(text)
            return False
        if found.tag in self._tags.closers:
            self._say_text(text)
            self._drop_closer(found)
            return True
        if found.tag in with_lead:
            found = Found(self._tags.openers[with_lead.index(found.tag)], found.spelling.removeprefix(lead))
        elif lead and text.endswith(lead):
            text = text.removesuffix(lead)
        else:
            lead = ""
        self._say_text(text)
        self._enter_calls(found, lead)
        return True

    def _enter_calls(self, found: Found, before: str) -> None:
        """An opener was read: of the block, or of the first call. From here on the raw text is kept until a call has a name."""
        self._opener_text = before + found.spelling
        self._context.note(found)
        self._cursor.record()
        if found.tag is self._tags.block_open:
            self._block_is_open = True
            self._phase = ParserPhase.REGION
        else:
            if self._tags.block_open is not None or found.tag is self._tags.second_open:
                missing = self._tags.block_open if self._tags.block_open is not None else self._tags.call_open
                spelled = self._alphabet.spell(missing.literal)
                self._events.append(Diagnostic(DiagnosticKind.REPAIRED, f"calls: got no {spelled!r} before them, read as there"))
                self._block_is_open = False
            self._begin_call(2 if found.tag is self._tags.second_open else 1)

    def _begin_call(self, opened: int) -> None:
        layout = self._layout
        self._call = JsonCall(layout, self._context) if isinstance(layout, JsonLayout) else TagCall(layout, self._context, opened)
        self._phase = ParserPhase.CALL

    def _read_region(self) -> bool:
        """Inside a block: the next call, or the block's end."""
        assert self._tags.block_close is not None
        self._cursor.skip_whitespace()
        found = self._cursor.match([self._tags.call_open, self._tags.block_close])
        if found is WAIT or (found is None and self._cursor.is_empty):
            return False
        if found is None or (found.tag is self._tags.block_close and self._context.num_calls == 0 and not self._repairs):
            seen = self._alphabet.spell(self._cursor.rest[:1]) if found is None else "its end"
            self._back_to_text(CallError(f"block of calls: got {seen!r}, allowed a call"))
            return True
        self._context.note(found)
        if found.tag is self._tags.block_close:
            self._cursor.recorded()
            self._block_is_open = False
            self._phase = ParserPhase.AFTER_CALLS
        else:
            self._begin_call(1)
        return True

    def _read_call(self) -> bool:
        call = self._call
        assert call is not None
        started = call.is_started
        try:
            progressed = call.step()
        except CallError as error:
            if call.is_started:
                self._break_call(str(error), error.kind)
                self._phase = ParserPhase.SKIPPING
            else:
                self._back_to_text(error)
            return True
        if call.is_started and not started:
            self._cursor.recorded()
        if call.is_done:
            self._call = None
            self._opener_text = ""
            self._cursor.record()
            self._phase = ParserPhase.REGION if self._block_is_open else ParserPhase.AFTER_CALLS
        return progressed

    def _skip_call(self) -> bool:
        """A broken call: everything up to its closing tag (or the block's) is left out."""
        assert self._call is not None
        closers = [self._call.last_closing_tag, *([self._tags.block_close] if self._tags.block_close else [])]
        _, found = self._cursor.until(closers)
        if found is None:
            return False
        self._opener_text = ""
        self._cursor.record()
        ends_block = found.tag is self._tags.block_close
        if ends_block:
            self._block_is_open = False
        self._call = None
        self._phase = ParserPhase.REGION if self._block_is_open else ParserPhase.AFTER_CALLS
        return True

    def _read_after_calls(self) -> bool:
        """White space after a call is framing, if another call or nothing follows; before text it is text."""
        cursor = self._cursor
        length = len(cursor.rest) - len(cursor.rest.lstrip(_BLANKS))
        if length == len(cursor.rest):
            if cursor.is_final:
                cursor.take(length)
            return False
        space = cursor.rest[:length]
        found = cursor.match([*self._tags.openers, *self._tags.closers], length)
        if isinstance(found, Wait):
            return False
        cursor.recorded()
        if found is None:
            self._phase = ParserPhase.TEXT
        elif found.tag in self._tags.openers:
            self._enter_calls(found, space)
        else:
            self._drop_closer(found)
        return True

    # -- what is said -----------------------------------------------------------------------------------------------------

    def _say_text(self, text: str) -> None:
        # What is left of a call that broke stays as it was written: only what was never part of one is left out.
        text = self._without(self._tags.silent if self._has_broken_call else self._strays, text, "text")
        if not text:
            return
        self._events.append(TextDelta(self._alphabet.expand(text)))
        recent = self._recent_text + text
        if self._reads_calls and not self._has_noted_markup:
            ends = [(recent.find(literal) + len(literal), literal) for literal in self._tags.suspicious if literal in recent]
            if ends:
                self._note_markup(min(ends)[1])  # the first that is complete, however the text was cut
        self._recent_text = recent[-40:]

    def _say_reasoning(self, text: str) -> None:
        text = self._without(self._tags.silent, text, "reasoning")
        if text:
            self._events.append(ReasoningDelta(self._alphabet.expand(text)))

    def _without(self, codes: frozenset[str], text: str, where: str) -> str:
        """The text without these markers, each with a remark."""
        if codes.isdisjoint(text):
            return text
        for code in text:
            if code in codes:
                self._leave_out(where, self._alphabet.spell(code))
        return "".join(character for character in text if character not in codes)

    def _leave_out(self, where: str, marker: str) -> None:
        message = f"{where}: got the marker {marker!r}, which means nothing here, left out"
        self._events.append(Diagnostic(DiagnosticKind.STRAY_MARKER, message, marker))

    def _note_markup(self, literal: str) -> None:
        self._has_noted_markup = True
        spelled = self._alphabet.spell(literal)
        message = f"text: got {spelled!r} outside any call, left as it is"
        self._events.append(Diagnostic(DiagnosticKind.MARKUP_IN_TEXT, message, spelled))

    def _drop_closer(self, found: Found) -> None:
        spelling = self._alphabet.spell(found.spelling)
        message = f"text: got {spelling!r}, which closes nothing, left out"
        self._events.append(Diagnostic(DiagnosticKind.REPAIRED, message, spelling))

    def _break_call(self, message: str, kind: DiagnosticKind) -> None:
        self._events.append(Diagnostic(kind, message, ordinal=self._context.num_calls - 1))

    def _is_inside_opener(self) -> bool:
        """Markup of calls was read, and no call has a name yet."""
        if self._phase in (ParserPhase.TEXT, ParserPhase.AFTER_CALLS):
            return any(code in self._cursor.rest for code in self._tags.of_openers)
        begun = self._phase is ParserPhase.REGION and (self._context.num_calls == 0 or not self._cursor.is_empty)
        return begun or self._phase is ParserPhase.CALL

    def _leave_out_opener(self) -> None:
        """The answer ended there: what there is of a call is neither a call nor text."""
        raw = self._alphabet.spell(self._opener_text + self._cursor.recorded() + self._cursor.rest)
        message = "call: the answer ended before its name, left out"
        self._events.append(Diagnostic(DiagnosticKind.INCOMPLETE_CALL, message, raw))

    def _back_to_text(self, error: CallError) -> None:
        """No call after all: what was read since its opener is text, byte for byte."""
        raw = self._opener_text + self._cursor.recorded()
        self._events.append(Diagnostic(error.kind, str(error), self._alphabet.spell(raw)))
        self._has_noted_markup = True  # this is the remark on it, and on what is left of the call
        self._has_broken_call = True
        self._say_text(raw)
        self._call, self._opener_text = None, ""
        self._block_is_open = False
        self._phase = ParserPhase.TEXT
