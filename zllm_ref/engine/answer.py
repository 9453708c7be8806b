"""Ids of one choice, one after another, into canonical events. Words only.

    id ─ Detokenizer ─▶ pieces ─ ToolParser ─▶ reasoning, text, calls ─ stop strings (text only) ─▶ events

Text is never cut inside a character (T3); what might begin a stop string is held back until it is known (CH20); markers never
leak into text (CH16). Log probabilities travel with the text that their tokens spell (CH21).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence

from zllm_ref.canonical.event import (
    Event,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    TokenLogprob,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from zllm_ref.canonical.json_value import parse_json_object
from zllm_ref.canonical.message import CustomToolCall, Message, Part, Reasoning, Role, Text, ToolCall
from zllm_ref.canonical.request import Protocol
from zllm_ref.dialect import ToolParser
from zllm_ref.dialect import event as parsed
from zllm_ref.engine.call_check import CallCheck
from zllm_ref.engine.content_logprobs import ContentLogprobs
from zllm_ref.engine.stop_strings import StopStringScanner
from zllm_ref.tokenizer.detokenizer import Detokenizer, Piece, TextPiece
from zllm_ref.tokenizer.vocabulary import Vocabulary

_log = logging.getLogger(__name__)


class ChoiceAnswer:
    """One choice's answer. `call_scope` (protocol, request id) makes the ids of its calls.

    `known_markers`: those that the parser reads; every other marker is dropped, whatever made the model say it (CH20).
    `refusal_after`: the text beyond so many characters is a refusal. `check`: judges a call before its end is sent.
    `logs` False: an answer that was read before is read again, and what was wrong with it was said then.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        parser: ToolParser,
        stop: Sequence[str],
        choice: int,
        call_scope: tuple[Protocol, str],
        known_markers: frozenset[str] = frozenset(),
        refusal_after: int | None = None,
        check: CallCheck | None = None,
        logs: bool = True,
    ) -> None:
        self._check = check
        self._logs = logs
        self._refusal_after = refusal_after
        self._text_length = 0
        self._known_markers = known_markers
        self._vocabulary = vocabulary
        self._detokenizer = Detokenizer(vocabulary)
        self._parser = parser
        self._scanner = StopStringScanner(stop)
        self._choice = choice
        self._call_scope = call_scope
        self._logprobs = ContentLogprobs()
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._started: dict[int, ToolCallStarted] = {}
        self._finished: dict[int, str] = {}
        self.ids: list[int] = []
        """Every id that was pushed."""
        self.reasoning_tokens = 0

    @property
    def stop_string(self) -> str | None:
        return self._scanner.found

    @property
    def has_calls(self) -> bool:
        """Calls were finished, and none broke off: a client may carry them out."""
        return bool(self._finished) and len(self._started) == len(self._finished)

    @property
    def has_refused(self) -> bool:
        """The refusal has begun."""
        return self._refusal_after is not None and self._text_length > self._refusal_after

    @property
    def is_whole(self) -> bool:
        """Nothing was cut: no stop string, no call that broke off."""
        return self._scanner.found is None and len(self._started) == len(self._finished)

    def push(self, token_id: int, logprob: TokenLogprob | None = None) -> list[Event]:
        """The events that this token makes certain. `stop_string` is set when the answer must end."""
        self.ids.append(token_id)
        pieces = self._read(self._detokenizer.push(token_id))
        if logprob is not None:
            self._spell(token_id, pieces, logprob)
        found = self._parser.push(pieces)
        if found and isinstance(found[-1], parsed.ReasoningDelta):
            self.reasoning_tokens += 1
        return self._events(found)

    def finish(self) -> list[Event]:
        """What is still held back, at the end of the answer."""
        pieces = self._read(self._detokenizer.finish())
        self._logprobs.complete("".join(piece.text for piece in pieces))
        found = [*self._parser.push(pieces), *self._parser.finish()]
        return [*self._events(found), *self._text_delta(self._scanner.finish())]

    def message(self) -> Message:
        """The answer as the client sees it, and will send it back."""
        parts: list[Part] = []
        if self._reasoning:
            parts.append(Reasoning("".join(self._reasoning)))
        if self._text:
            parts.append(Text("".join(self._text)))
        for ordinal, arguments in sorted(self._finished.items()):
            started = self._started[ordinal]
            if started.custom:
                parts.append(CustomToolCall(started.call_id, started.name, arguments, started.namespace))
            else:
                call = ToolCall(started.call_id, started.name, parse_json_object(arguments), started.namespace)
                parts.append(call)
        return Message(Role.ASSISTANT, tuple(parts))

    def _read(self, pieces: Iterable[Piece]) -> list[Piece]:
        return [piece for piece in pieces if isinstance(piece, TextPiece) or piece.text in self._known_markers]

    def _spell(self, token_id: int, pieces: Sequence[Piece], logprob: TokenLogprob) -> None:
        """Notes which text the token completed. A marker that is dropped spells nothing, and has no entry."""
        if self._vocabulary.marker_text(token_id) is None:
            self._logprobs.push("".join(piece.text for piece in pieces), logprob)
            return
        self._logprobs.complete("".join(piece.text for piece in pieces if isinstance(piece, TextPiece)))
        spelled = "".join(piece.text for piece in pieces if not isinstance(piece, TextPiece))
        if spelled:
            self._logprobs.push(spelled, logprob, is_marker=True)

    def _events(self, found: Iterable[parsed.ParserEvent]) -> list[Event]:
        events: list[Event] = []
        for event in found:
            if self._scanner.found is not None:
                break  # nothing after a stop string exists
            if isinstance(event, parsed.TextDelta):
                events += self._text_delta(self._scanner.push(event.text))
                continue
            if not isinstance(event, parsed.Diagnostic):
                events += self._text_delta(self._scanner.finish())  # a stop string does not reach across a call
                self._logprobs.skip()
            events += self._other(event)
        return events

    def _other(self, event: parsed.ParserEvent) -> list[Event]:
        choice = self._choice
        match event:
            case parsed.ReasoningDelta():
                self._reasoning.append(event.text)
                return [ReasoningDelta(event.text, choice)]
            case parsed.CallStarted():
                call_id = tool_call_id(self._call_scope, choice, event.ordinal, event.name)
                started = ToolCallStarted(event.ordinal, call_id, event.name, event.namespace, event.custom, choice)
                self._started[event.ordinal] = started
                return [started]
            case parsed.ArgumentsDelta():
                return [ToolArgumentsDelta(event.ordinal, event.text, choice)]
            case parsed.CallFinished():
                started = self._started[event.ordinal]
                wrong = self._check.problem_of(started.namespace, started.name, event.arguments) if self._check else None
                if wrong is not None:
                    self._remark(f"call of {started.name} is invalid: {wrong}")
                    return []
                self._finished[event.ordinal] = event.arguments
                return [ToolCallFinished(event.ordinal, event.arguments, choice)]
            case parsed.Diagnostic():
                self._remark(f"parser {event.kind}: {event.message}")
                return []
        return []

    def _remark(self, text: str) -> None:
        if self._logs:
            _log.info("request=%s %s", self._call_scope[1], text)

    def _text_delta(self, text: str) -> list[Event]:
        if not text:
            return []
        plain = text if self._refusal_after is None else text[: max(0, self._refusal_after - self._text_length)]
        self._text.append(text)
        self._text_length += len(text)
        events: list[Event] = [TextDelta(plain, self._choice, self._logprobs.take(plain))] if plain else []
        refused = text[len(plain) :]
        return [*events, RefusalDelta(refused, self._choice, self._logprobs.take(refused))] if refused else events


def tool_call_id(scope: tuple[Protocol, str], choice: int, ordinal: int, name: str) -> str:
    """Unique within the answer and across requests: a hash of the request's scope, the call's place and the tool's name."""
    protocol, request_id = scope
    text = "\x1f".join((request_id, str(choice), str(ordinal), name))
    prefix = "toolu_" if protocol is Protocol.MESSAGES else "call_"
    return prefix + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]
