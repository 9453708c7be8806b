"""Render and parse undo each other, however the answer is cut; what cannot be undone is refused."""

from __future__ import annotations

import os

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.dialect.conftest import BYTES, Answer, answer_of, pieces, read
from tests.dialect.strategies import FRAGMENTS, Turn, hostile_text, typed_turns, untyped_turns
from zllm_ref.canonical.json_value import JsonObject, dump_json, parse_json_object
from zllm_ref.canonical.message import Message, Role, Text, ToolCall, ToolResult
from zllm_ref.canonical.request import FunctionTool
from zllm_ref.dialect import ToolDialect, UnrenderableValue, dialect_for, encode, text_of
from zllm_ref.dialect.definitions import DEFINITIONS
from zllm_ref.dialect.event import CallStarted
from zllm_ref.dialect.segment import Segment
from zllm_ref.dialect.tool_parser import ParseMode
from zllm_ref.tokenizer import MarkerPiece, Piece, TextPiece, Vocabulary, byte_vocabulary
from zllm_ref.tokenizer.byte_vocabulary import CHATML_MARKERS

IS_NIGHTLY = os.environ.get("ZLLM_PROFILE") == "nightly"
EXAMPLES = settings(max_examples=20_000 if IS_NIGHTLY else 500, deadline=None)
CHATML_ONLY = byte_vocabulary(CHATML_MARKERS)
"""As SmolLM2's: the frame has ids, the tags of calls have not (text mode)."""

GET = FunctionTool(
    "get",
    None,
    parse_json_object('{"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}, "c": {}}}'),
)


def cut(given: list[Piece], places: set[int]) -> list[Piece]:
    """The same answer in other pieces: text is cut at these places (counted over all text)."""
    result: list[Piece] = []
    position = 0
    for piece in given:
        if isinstance(piece, MarkerPiece):
            result.append(piece)
            continue
        start = 0
        for offset in range(1, len(piece.text)):
            if position + offset in places:
                result.append(TextPiece(piece.text[start:offset]))
                start = offset
        result.append(TextPiece(piece.text[start:]))
        position += len(piece.text)
    return result


def calls_of(message: Message) -> list[tuple[str, str]]:
    return [(call.name, dump_json(call.arguments)) for call in message.tool_calls if isinstance(call, ToolCall)]


def read_back(dialect: ToolDialect, vocabulary: Vocabulary, turn: Turn, places: set[int]) -> Answer:
    rendered = pieces(dialect.render_calls(turn.message))
    return read(dialect.name, cut(rendered, places), turn.tools, vocabulary=vocabulary)


WITH_IDS = {name: dialect_for(None, BYTES, name) for name in DEFINITIONS}
IN_TEXT_MODE = {name: dialect_for(None, CHATML_ONLY, name) for name in DEFINITIONS}

places = st.sets(st.integers(0, 300), max_size=8)


@EXAMPLES
@given(typed_turns(), places)
def test_every_legal_call_is_read_back_as_itself_by_value_and_by_byte(turn: Turn, places: set[int]) -> None:
    for name, dialect in WITH_IDS.items():
        try:
            dialect.check_calls(turn.message, turn.tools)
        except UnrenderableValue:
            assert name == "qwen3-coder", "with markers as ids every legal call can be written"
            values = dump_json(tuple(call.arguments for call in turn.message.tool_calls if isinstance(call, ToolCall)))
            assert "parameter" in values or "\\n" in values, "its parameter tags have no ids in any vocabulary"
            continue

        answer = read_back(dialect, BYTES, turn, places)

        assert answer.calls == calls_of(turn.message), name
        assert (answer.content, answer.reasoning, answer.diagnostics) == ("", "", []), name
        again = [ToolCall("d", called, parse_json_object(arguments)) for called, arguments in answer.calls]
        rendered = text_of(dialect.render_calls(Message(Role.ASSISTANT, tuple(again))))
        assert rendered == text_of(dialect.render_calls(turn.message)), name


@EXAMPLES
@given(untyped_turns() | typed_turns(), places)
def test_what_cannot_be_read_back_is_refused_and_everything_else_is(turn: Turn, places: set[int]) -> None:
    for vocabulary, dialects in ((BYTES, WITH_IDS), (CHATML_ONLY, IN_TEXT_MODE)):
        for name, dialect in dialects.items():
            try:
                dialect.check_calls(turn.message, turn.tools)
            except UnrenderableValue:
                continue

            assert read_back(dialect, vocabulary, turn, places).calls == calls_of(turn.message), name


@EXAMPLES
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join), places, st.booleans(), st.sampled_from(list(ParseMode)))
@example("\n\n<｜DSML｜tool_calls>\n<｜DSML｜", {1, 3}, False, ParseMode.STRICT)
@example("x\n\n<TOOL_CALL>", {2, 3, 4, 5}, False, ParseMode.REPAIR)
@example('"}}\n</tool_call></function>\n', set(), False, ParseMode.STRICT)
@example("<|DSML|INVOKE name='get'>", {24}, False, ParseMode.REPAIR)
@example("\n<function=\n>", set(), False, ParseMode.REPAIR)
@example("<tool_call>\n<function=\n\\>x", set(), False, ParseMode.REPAIR)
@example("<tool_call>\n<function=get>\n<parameter=a\n &gt;", set(), False, ParseMode.REPAIR)
def test_any_cut_of_any_answer_gives_the_same(text: str, places: set[int], thinking: bool, mode: ParseMode) -> None:
    parts = [piece.text for piece in cut([TextPiece(text)], places)]
    for name in DEFINITIONS:
        whole = read(name, [text], [GET], mode=mode, thinking=thinking)

        assert read(name, parts, [GET], mode=mode, thinking=thinking) == whole, name
        assert read(name, list(text), [GET], mode=mode, thinking=thinking) == whole, name


@EXAMPLES
@given(hostile_text)
def test_strict_loses_no_text_of_an_answer_without_calls(text: str) -> None:
    for name in DEFINITIONS:
        answer = read(name, [text], [])

        if "<think>" not in text:
            assert answer.content == text, name


def conversation(text: str) -> tuple[Message, ...]:
    call = ToolCall("c", "get", JsonObject((("a", text),)))
    return (
        Message(Role.SYSTEM, (Text(text),)),
        Message(Role.USER, (Text(text),)),
        Message(Role.ASSISTANT, (Text(f"x{text}x"), call)),
        Message(Role.TOOL, (ToolResult("c", text),)),
    )


def markers_in(segments: tuple[Segment, ...]) -> list[int]:
    return [token_id for token_id in encode(segments, BYTES) if token_id >= 256]


@EXAMPLES
@given(hostile_text)
def test_text_of_clients_never_becomes_a_marker(text: str) -> None:
    for name, dialect in WITH_IDS.items():
        try:
            segments = dialect.render(conversation(text), [GET])
        except UnrenderableValue:
            assert name == "qwen3-coder"
            continue

        assert markers_in(segments) == markers_in(dialect.render(conversation("x"), [GET])), name


def test_a_closer_in_a_value_is_refused_in_text_mode_and_kept_with_ids() -> None:
    closers = {
        "dsml-v3.2": "</｜DSML｜parameter>",
        "dsml-v4": "</｜DSML｜parameter>",
        "dsml-v4.1": "</｜DSML｜ parameter>",
        "glm-4.5": "</arg_value>",
        "glm-4.7": "</arg_value>",
    }
    for name, closer in closers.items():
        message = Message(Role.ASSISTANT, (ToolCall("c", "get", JsonObject((("a", f"x{closer}y"),))),))

        with pytest.raises(UnrenderableValue, match="read back"):
            dialect_for(None, CHATML_ONLY, name).render((message,), [GET])
        assert dialect_for(None, BYTES, name).render((message,), [GET])


def test_json_carries_its_own_closer_also_in_text_mode() -> None:
    for name in ("chatml-hermes", "chatml-qwen2.5", "chatml-qwen3"):
        message = Message(Role.ASSISTANT, (ToolCall("c", "get", JsonObject((("a", 'x</tool_call>"y'),))),))

        assert dialect_for(None, CHATML_ONLY, name).render((message,), [GET])


def test_a_string_that_reads_as_json_is_refused_where_neither_schema_nor_markup_says_what_it_is() -> None:
    message = Message(Role.ASSISTANT, (ToolCall("c", "get", JsonObject((("c", "123"),))),))

    for name in DEFINITIONS:
        dialect = dialect_for(None, BYTES, name)
        if name.startswith(("glm", "qwen3-coder")):
            with pytest.raises(UnrenderableValue):
                dialect.render((message,), [GET])
        else:
            assert dialect.render((message,), [GET])


@pytest.mark.parametrize("dialect_name", sorted(DEFINITIONS))
def test_a_key_twice_is_refused(dialect_name: str) -> None:
    arguments = parse_json_object('{"c": {"k": 1, "k": 2}}')

    with pytest.raises(UnrenderableValue, match="'k' twice"):
        dialect_for(None, BYTES, dialect_name).render((Message(Role.ASSISTANT, (ToolCall("c", "get", arguments),)),), [GET])


def test_events_say_each_thing_once() -> None:
    with pytest.raises(AssertionError, match="begins once"):
        answer_of([CallStarted(0, "a"), CallStarted(0, "a")])
