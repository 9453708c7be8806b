"""Reading an answer in tests: any cut, any vocabulary, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from zllm_ref.canonical.json_value import from_python
from zllm_ref.canonical.request import FunctionTool, Tool
from zllm_ref.dialect.definitions import DEFINITIONS
from zllm_ref.dialect.event import (
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    Diagnostic,
    DiagnosticKind,
    ParserEvent,
    ReasoningDelta,
    TextDelta,
)
from zllm_ref.dialect.segment import MarkerSegment, Segment
from zllm_ref.dialect.tool_parser import ParseMode, ToolParser
from zllm_ref.tokenizer import Detokenizer, MarkerPiece, Piece, TextPiece, Vocabulary, byte_vocabulary

BYTES = byte_vocabulary()


def tool(name: str, **types: str) -> FunctionTool:
    """A tool whose parameters have these JSON types; a type that ends in "?" is optional."""
    properties = {key: {"type": kind.rstrip("?")} if kind != "any" else {} for key, kind in types.items()}
    required = [key for key, kind in types.items() if not kind.endswith("?")]
    return FunctionTool(name, None, from_python({"type": "object", "properties": properties, "required": required}))  # type: ignore[arg-type]


@dataclass
class Answer:
    """What a client would hold at the end, and the way there."""

    reasoning: str = ""
    content: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    """Finished calls only: name and arguments."""
    streamed: dict[int, str] = field(default_factory=dict)
    """Deltas by call, joined, of unfinished calls, too."""
    names: dict[int, str] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)

    @property
    def kinds(self) -> list[DiagnosticKind]:
        return [diagnostic.kind for diagnostic in self.diagnostics]


def answer_of(events: Sequence[ParserEvent]) -> Answer:
    answer = Answer()
    for event in events:
        match event:
            case ReasoningDelta():
                answer.reasoning += event.text
            case TextDelta():
                answer.content += event.text
            case CallStarted():
                assert event.ordinal not in answer.names, "a call begins once"
                assert event.ordinal == len(answer.names), "ordinals count up"
                answer.names[event.ordinal] = event.name
                answer.streamed[event.ordinal] = ""
            case ArgumentsDelta():
                assert event.text, "a delta says something"
                answer.streamed[event.ordinal] += event.text
            case CallFinished():
                assert answer.streamed[event.ordinal] == event.arguments, "deltas are the arguments"
                answer.calls.append((answer.names[event.ordinal], event.arguments))
            case Diagnostic():
                answer.diagnostics.append(event)
    return answer


def read(
    name: str,
    pieces: Sequence[Piece | str],
    tools: Sequence[Tool],
    *,
    vocabulary: Vocabulary | None = None,
    mode: ParseMode = ParseMode.STRICT,
    thinking: bool = False,
    accepts_unknown: bool = False,
    ends_reasoning_at_call: bool = False,
) -> Answer:
    """The answer that these pieces are; `vocabulary` None: markers by their spelling."""
    parser = ToolParser(
        DEFINITIONS[name],
        vocabulary,
        tools,
        starts_in_reasoning=thinking,
        mode=mode,
        accepts_unknown=accepts_unknown,
        ends_reasoning_at_call=ends_reasoning_at_call,
    )
    events: list[ParserEvent] = []
    for piece in pieces:
        events += parser.push((TextPiece(piece) if isinstance(piece, str) else piece,))
    return answer_of([*events, *parser.finish()])


def pieces_of(text: str, vocabulary: Vocabulary = BYTES) -> list[Piece]:
    """The text as a model with this vocabulary would generate it, markers as markers."""
    detokenizer = Detokenizer(vocabulary)
    pieces = [piece for token_id in vocabulary.encode_with_markers(text) for piece in detokenizer.push(token_id)]
    return [*pieces, *detokenizer.finish()]


def read_every_way(name: str, text: str, tools: Sequence[Tool], **options: object) -> Answer:
    """The answer, after seeing that it is the same whole, by character, in threes, and with markers as ids."""
    whole = read(name, [text], tools, **options)  # type: ignore[arg-type]
    for size in (1, 2, 3, 7):
        cut = read(name, [text[place : place + size] for place in range(0, len(text), size)], tools, **options)  # type: ignore[arg-type]
        assert cut == whole, f"pieces of {size}"
    by_id = read(name, pieces_of(text), tools, vocabulary=BYTES, **options)  # type: ignore[arg-type]
    expected = (without_strays(whole.reasoning, by_id), without_strays(whole.content, by_id), whole.calls)
    assert (by_id.reasoning, by_id.content, by_id.calls) == expected, "markers as ids"
    return whole


def without_strays(text: str, by_id: Answer) -> str:
    """The text without the markers that were left out because their ids meant nothing there: spelled, they are text."""
    for diagnostic in by_id.diagnostics:
        if diagnostic.kind is DiagnosticKind.STRAY_MARKER:
            text = text.replace(diagnostic.raw, "")
    return text


@pytest.fixture(params=sorted(DEFINITIONS))
def dialect_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def pieces(segments: tuple[Segment, ...]) -> list[Piece]:
    return [
        MarkerPiece(segment.id, segment.text) if isinstance(segment, MarkerSegment) else TextPiece(segment.text)
        for segment in segments
    ]
