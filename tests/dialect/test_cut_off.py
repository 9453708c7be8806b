"""An answer that ends anywhere in its calls: nothing of a marker is said, and what was said is a beginning of what was meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dialect.conftest import BYTES, Answer, answer_of, pieces, pieces_of, read, tool
from tests.dialect.strategies import Turn, typed_turns
from zllm_ref.canonical.json_value import dump_json, parse_json_object
from zllm_ref.canonical.message import Message, Role, Text, ToolCall
from zllm_ref.dialect import UnrenderableValue, dialect_for, text_of
from zllm_ref.dialect.definitions import DEFINITIONS
from zllm_ref.dialect.event import CallFinished, CallStarted, DiagnosticKind, ParserEvent
from zllm_ref.dialect.tool_parser import ParseMode, ToolParser
from zllm_ref.tokenizer import MarkerPiece, Piece, TextPiece

NOTE = tool("note", text="string", times="integer?")
CALLS = (
    ToolCall("a", "note", parse_json_object('{"text": "hi\\n<b> there", "times": 12}')),
    ToolCall("b", "note", parse_json_object('{"text": "bye"}')),
)


def by_character(given: list[Piece]) -> list[Piece]:
    parts: list[Piece] = []
    for piece in given:
        parts += [TextPiece(one) for one in piece.text] if isinstance(piece, TextPiece) else [piece]
    return parts


def answers_at_every_cut(name: str, given: list[Piece], tools: tuple[object, ...], mode: ParseMode) -> list[tuple[int, Answer]]:
    """By the number of pieces read; the whole answer last."""
    found = []
    for length in range(len(given) + 1):
        parser = ToolParser(DEFINITIONS[name], BYTES, tools, mode=mode)  # type: ignore[arg-type]
        events: list[ParserEvent] = parser.push(given[:length])
        found.append((length, answer_of([*events, *parser.finish()])))
    return found


@pytest.mark.parametrize("mode", list(ParseMode))
@pytest.mark.parametrize("content", ["", "Let me see."])
def test_wherever_an_answer_is_cut_no_piece_of_a_tag_is_in_its_content_or_its_arguments(
    dialect_name: str, content: str, mode: ParseMode
) -> None:
    dialect = dialect_for(None, BYTES, dialect_name)
    calls = text_of(dialect.render_calls(Message(Role.ASSISTANT, CALLS)))
    lead = dialect.definition.calls.lead
    before = content + (lead if content and not calls.startswith(lead) else "")
    given = by_character(pieces_of(before + calls))
    first_marker = next(index for index, piece in enumerate(given) if isinstance(piece, MarkerPiece))
    whole = [dump_json(call.arguments) for call in CALLS]

    for length, answer in answers_at_every_cut(dialect_name, given, (NOTE,), mode):
        if length > first_marker:
            assert answer.content == content, (length, answer.content)
        else:  # no marker yet: it is text, and may be all there is
            assert "".join(piece.text for piece in given[:length]).startswith(answer.content)
        for ordinal, streamed in answer.streamed.items():
            assert whole[ordinal].startswith(streamed), (length, streamed)
        if length > first_marker and len(answer.names) < len(CALLS) and len(answer.calls) == len(answer.names) == 0:
            assert answer.kinds == [DiagnosticKind.INCOMPLETE_CALL], (length, answer.diagnostics)
        assert [arguments for _, arguments in answer.calls] == whole[: len(answer.calls)]


@given(typed_turns(), st.integers(0, 1 << 20))
def test_wherever_any_answer_is_cut_what_was_said_is_a_beginning_of_what_was_meant(turn: Turn, place: int) -> None:
    meant = [dump_json(part.arguments) for part in turn.message.parts if isinstance(part, ToolCall)]
    for name in DEFINITIONS:
        dialect = dialect_for(None, BYTES, name)
        try:
            dialect.render((turn.message,), turn.tools)
        except UnrenderableValue:
            continue
        given = by_character(pieces(dialect.render_calls(turn.message)))
        first_marker = next(index for index, piece in enumerate(given) if isinstance(piece, MarkerPiece))
        length = first_marker + 1 + place % (len(given) - first_marker)
        parser = ToolParser(DEFINITIONS[name], BYTES, turn.tools)

        answer = answer_of([*parser.push(given[:length]), *parser.finish()])

        assert answer.content == "", name
        assert all(meant[ordinal].startswith(text) for ordinal, text in answer.streamed.items()), name
        assert [arguments for _, arguments in answer.calls] == meant[: len(answer.calls)], name


def test_a_call_that_is_cut_before_its_name_is_left_out_with_a_remark_that_has_it(dialect_name: str) -> None:
    dialect = dialect_for(None, BYTES, dialect_name)
    written = text_of(dialect.render_calls(Message(Role.ASSISTANT, CALLS[:1])))
    beginning = written[: written.index("note") + 2]

    answer = read(dialect_name, pieces_of("Yes." + beginning), [NOTE], vocabulary=BYTES)

    assert (answer.content.strip(), answer.names, answer.kinds) == ("Yes.", {}, [DiagnosticKind.INCOMPLETE_CALL])
    assert answer.diagnostics[0].raw.strip() == beginning.strip()


def test_what_only_looks_like_a_beginning_stays_text(dialect_name: str) -> None:
    for text in ("1 <", "a\n\n<", "</", "<tool", "x\n"):
        assert read(dialect_name, pieces_of(text), [NOTE], vocabulary=BYTES).content == text


def test_a_second_call_that_is_cut_takes_nothing_from_the_first(dialect_name: str) -> None:
    dialect = dialect_for(None, BYTES, dialect_name)
    message = Message(Role.ASSISTANT, (Text(""), *CALLS))
    given = by_character(pieces(dialect.render_calls(message)))
    parser = ToolParser(DEFINITIONS[dialect_name], BYTES, (NOTE,))
    length = 0
    events: list[ParserEvent] = []
    while not any(isinstance(event, CallFinished) for event in events):
        events += parser.push((given[length],))
        length += 1
    while sum(isinstance(event, CallStarted) for event in events) != 2:
        cut_off = ToolParser(DEFINITIONS[dialect_name], BYTES, (NOTE,))
        answer = answer_of([*cut_off.push(given[:length]), *cut_off.finish()])
        assert (answer.content, len(answer.calls)) == ("", 1)
        events += parser.push((given[length],))
        length += 1
