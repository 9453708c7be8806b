"""Free-form tools and namespaces: one flat name for the model, raw input and the pair for the client."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.dialect.conftest import BYTES, pieces, pieces_of
from tests.dialect.strategies import hostile_text
from zllm_ref.canonical.json_value import parse_json_object
from zllm_ref.canonical.message import CustomToolCall, Message, Role, ToolCall
from zllm_ref.canonical.request import CustomTool, FunctionTool
from zllm_ref.dialect import UnrenderableValue, dialect_for, text_of
from zllm_ref.dialect.definitions import DEFINITIONS
from zllm_ref.dialect.event import ArgumentsDelta, CallFinished, CallStarted, ParserEvent
from zllm_ref.dialect.tool_parser import ToolParser
from zllm_ref.tokenizer import Piece, TextPiece

PATCH = CustomTool("apply_patch", "Edits files.", ("lark", "start: /.+/"))
SEARCH = FunctionTool("search", None, parse_json_object('{"properties": {"q": {"type": "string"}}}'), namespace="mcp")


def events_of(name: str, given: list[Piece], tools: tuple[CustomTool | FunctionTool, ...]) -> list[ParserEvent]:
    parser = ToolParser(DEFINITIONS[name], BYTES, tools)
    return [*(event for piece in given for event in parser.push((piece,))), *parser.finish()]


def by_character(given: list[Piece]) -> list[Piece]:
    return [
        part
        for piece in given
        for part in ([TextPiece(character) for character in piece.text] if isinstance(piece, TextPiece) else [piece])
    ]


@given(hostile_text)
def test_raw_input_comes_back_raw(text: str) -> None:
    message = Message(Role.ASSISTANT, (CustomToolCall("c", "apply_patch", text),))
    for name in DEFINITIONS:
        dialect = dialect_for(None, BYTES, name)
        try:
            dialect.render((message,), (PATCH,))
        except UnrenderableValue:
            assert name == "qwen3-coder"
            continue
        segments = dialect.render_calls(message)

        events = events_of(name, by_character(pieces(segments)), (PATCH,))

        assert events[0] == CallStarted(0, "apply_patch", None, True)
        assert events[-1] == CallFinished(0, text)
        assert "".join(event.text for event in events if isinstance(event, ArgumentsDelta)) == text


def test_a_namespace_is_part_of_the_models_name_and_apart_for_the_client(dialect_name: str) -> None:
    dialect = dialect_for(None, BYTES, dialect_name)
    call = ToolCall("c", "search", parse_json_object('{"q": "x"}'), "mcp")

    text = text_of(dialect.render_calls(Message(Role.ASSISTANT, (call,))))
    events = events_of(dialect_name, pieces_of(text), (SEARCH,))

    assert "mcp.search" in text
    assert events[0] == CallStarted(0, "search", "mcp", False)


@pytest.mark.parametrize(
    "arguments", ['{"input": 1}', '{"other": "x"}', "{}", '{"input": "x", "more": 1}'], ids=["number", "key", "none", "two"]
)
def test_arguments_that_are_no_input_make_the_call_invalid(arguments: str) -> None:
    text = f'<tool_call>\n{{"name": "apply_patch", "arguments": {arguments}}}\n</tool_call>'

    events = events_of("chatml-hermes", pieces_of(text), (PATCH,))

    assert not any(isinstance(event, CallFinished) for event in events)


def test_deferred_tools_are_not_at_the_front_but_can_be_called(dialect_name: str) -> None:
    deferred = FunctionTool("later", "Comes later.", None, deferred=True)
    dialect = dialect_for(None, BYTES, dialect_name)

    prompt = text_of(dialect.render((), (SEARCH, deferred)))

    assert "Comes later." not in prompt
    assert "mcp.search" in prompt
    assert [call.name for call in dialect.fence_grammar((SEARCH, deferred)).calls] == ["mcp.search", "later"]
