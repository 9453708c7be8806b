"""The contract of this room: one dialect on one vocabulary, with its abilities."""

from __future__ import annotations

from collections.abc import Sequence

from zllm_ref.canonical.json_value import JsonObject, dump_json
from zllm_ref.canonical.message import CustomToolCall, Message, ToolCall
from zllm_ref.canonical.request import ReasoningSettings, Tool
from zllm_ref.dialect.call_layout import ProtocolDefinition
from zllm_ref.dialect.call_writer import write_calls
from zllm_ref.dialect.conversation import AssistantTurn, turns_of
from zllm_ref.dialect.event import CallFinished, CallStarted, Diagnostic, ParserEvent
from zllm_ref.dialect.fence_grammar import fence_grammar, tools_digest
from zllm_ref.dialect.render_job import GeneratedTurns, Renderer, RenderJob, no_generated_turns
from zllm_ref.dialect.replay import GeneratedStore, Replay
from zllm_ref.dialect.segment import MarkerSegment, Segment
from zllm_ref.dialect.tool_parser import ParseMode, ToolParser
from zllm_ref.dialect.tool_wire import CUSTOM_PARAMETER, shown_tools, wire_arguments, wire_name
from zllm_ref.dialect.unrenderable import UnrenderableValue
from zllm_ref.dialect.writer import SegmentWriter
from zllm_ref.fence.grammar import ToolGrammar
from zllm_ref.tokenizer.detokenizer import MarkerPiece, Piece, TextPiece
from zllm_ref.tokenizer.vocabulary import Vocabulary

_MOST_GRAMMARS = 16


class ToolDialect:
    """Render, parse and fence of one family and revision. Share one between all requests: it remembers, but never changes."""

    def __init__(self, definition: ProtocolDefinition, renderer: Renderer, vocabulary: Vocabulary) -> None:
        self.definition = definition
        self._renderer = renderer
        self._vocabulary = vocabulary
        self._grammars: dict[str, ToolGrammar] = {}

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def renderer(self) -> Renderer:
        """How prompts are written: for whoever only looks at them."""
        return self._renderer

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Every id that ends a turn: the vocabulary's own and the dialect's (GLM: the next speaker)."""
        ids = (self._vocabulary.marker_id(name) for name in self.definition.end_markers)
        return tuple(sorted({*self._vocabulary.stop_ids, *(token_id for token_id in ids if token_id is not None)}))

    @property
    def text_mode_markers(self) -> tuple[str, ...]:
        """Markers of calls and reasoning that this vocabulary has no id for: they are read and written as text."""
        framed = [*self.definition.calls.framings]
        if self.definition.reasoning is not None:
            framed += [self.definition.reasoning.open, self.definition.reasoning.close]
        names = dict.fromkeys(piece.name for framing in framed for piece in framing if not isinstance(piece, str))
        return tuple(name for name in names if self._vocabulary.marker_id(name) is None)

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        reasoning: ReasoningSettings | None = None,
        keep_reasoning: bool = False,
        add_generation_prompt: bool = True,
        generated: GeneratedTurns = no_generated_turns,
    ) -> tuple[Segment, ...]:
        """The prompt. Raises UnrenderableValue where a past call would be read back as another one.

        `generated` finds the ids of own answers (`Replay.find`); only what it does not find is written anew, and checked.
        """
        turns = turns_of(messages)
        for turn in turns:
            if isinstance(turn, AssistantTurn) and turn.calls:
                found = generated(turn.message)
                if found is None or (found.num_reasoning is None and not keep_reasoning):
                    self.check_calls(turn.message, tools)
        job = RenderJob(
            tuple(messages),
            turns,
            shown_tools(tuple(tools)),
            reasoning or ReasoningSettings(),
            keep_reasoning,
            add_generation_prompt,
            generated,
        )
        writer = SegmentWriter(self._vocabulary)
        self._renderer.render(writer, job)
        return writer.segments

    def render_calls(self, message: Message) -> tuple[Segment, ...]:
        """The calls of one message alone, as the model would have written them without any content."""
        writer = SegmentWriter(self._vocabulary)
        write_calls(writer, self.definition.calls, message.tool_calls, has_content=False)
        return writer.segments

    def starts_in_reasoning(self, reasoning: ReasoningSettings | None = None) -> bool:
        """The generation prompt leaves reasoning open: the first generated id is a thought."""
        layout = self.definition.reasoning
        tail = self._renderer.prompt_tail(reasoning or ReasoningSettings())
        return layout is not None and layout.open_marker in tail and layout.close_marker not in tail

    def parser(
        self,
        tools: Sequence[Tool] = (),
        *,
        starts_in_reasoning: bool = False,
        mode: ParseMode = ParseMode.STRICT,
        ends_reasoning_at_call: bool = False,
    ) -> ToolParser:
        """A parser for one answer. Without tools nothing is ever read as a call."""
        return ToolParser(
            self.definition,
            self._vocabulary,
            tools,
            starts_in_reasoning=starts_in_reasoning,
            mode=mode,
            ends_reasoning_at_call=ends_reasoning_at_call,
        )

    def fence_grammar(self, tools: Sequence[Tool]) -> ToolGrammar:
        """What a fenced model may write to call these tools; made once for the same ones."""
        digest = tools_digest(self.definition, tools)
        found = self._grammars.get(digest)
        if found is None:
            found = fence_grammar(self.definition, tools, digest)
            while len(self._grammars) >= _MOST_GRAMMARS:
                self._grammars.pop(next(iter(self._grammars)), None)
            self._grammars[digest] = found
        return found

    def replay(self, store: GeneratedStore, identity: str = "") -> Replay:
        """Own answers, remembered in `store`."""
        return Replay(store, self.definition, self._vocabulary, identity)

    def check_calls(self, message: Message, tools: Sequence[Tool]) -> None:
        """The calls, written and read again, are the calls: otherwise UnrenderableValue is raised here, nothing is changed."""
        writer = SegmentWriter(self._vocabulary)
        write_calls(writer, self.definition.calls, message.tool_calls, has_content=False)
        parser = ToolParser(self.definition, self._vocabulary, tools, accepts_unknown=True)
        if self.definition.reasoning is not None:
            parser = ToolParser(self.definition, self._vocabulary, tools, accepts_unknown=True, starts_in_reasoning=True)
            parser.push((self._marker_piece(self.definition.reasoning.close_marker.name),))
        events = [*parser.push(_pieces_of(writer.segments)), *parser.finish()]
        wrong = _first_difference(message.tool_calls, events)
        if wrong is not None:
            raise UnrenderableValue(f"dialect {self.name}: {wrong}")

    def _marker_piece(self, name: str) -> Piece:
        token_id = self._vocabulary.marker_id(name)
        return TextPiece(name) if token_id is None else MarkerPiece(token_id, name)


def _pieces_of(segments: Sequence[Segment]) -> list[Piece]:
    """Segments as a detokenizer would say them."""
    return [
        MarkerPiece(segment.id, segment.text) if isinstance(segment, MarkerSegment) else TextPiece(segment.text)
        for segment in segments
    ]


def _first_difference(calls: Sequence[ToolCall | CustomToolCall], events: Sequence[ParserEvent]) -> str | None:
    """What the written calls would be read as, if not as themselves."""
    started = [event for event in events if isinstance(event, CallStarted)]
    finished = {event.ordinal: event.arguments for event in events if isinstance(event, CallFinished)}
    remarks = "; ".join(event.message for event in events if isinstance(event, Diagnostic))
    for index, call in enumerate(calls):
        if index >= len(started) or index not in finished:
            return f"call of {wire_name(call)!r} cannot be written so that it is read back: {remarks or 'its end is not found'}"
        found = started[index]
        name = f"{found.namespace}.{found.name}" if found.namespace else found.name
        if name != wire_name(call):
            return f"name of a call: got {wire_name(call)!r}, which would be read back as {name!r}"
        wanted = _text_of_arguments(found.custom, wire_arguments(call))
        if finished[index] != wanted:
            got, read = wanted[:120], finished[index][:120]
            return f"arguments of the call of {wire_name(call)!r}: got {got}, which would be read back as {read}"
    if len(started) != len(calls):
        return f"calls: got {len(calls)}, which would be read back as {len(started)}"
    return None


def _text_of_arguments(custom: bool, arguments: JsonObject) -> str:
    """The arguments as the parser says them: raw input for a free-form tool, canonical JSON for every other."""
    value = arguments.get(CUSTOM_PARAMETER)
    return value if custom and isinstance(value, str) else dump_json(arguments)
