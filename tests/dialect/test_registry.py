"""Which dialect a model speaks, and templates that nobody knows."""

from __future__ import annotations

import pytest

from tests.dialect.conftest import BYTES, tool
from tests.dialect.test_template import CHATML
from zllm_ref.canonical.json_value import JsonObject
from zllm_ref.canonical.message import Message, Role, Text, ToolCall, ToolResult
from zllm_ref.dialect import MarkerSegment, UnknownDialect, UnrenderableValue, dialect_for, dialect_names, text_of
from zllm_ref.dialect.registry import KNOWN_TEMPLATES, RENDERERS, template_digest
from zllm_ref.tokenizer.byte_vocabulary import byte_vocabulary

USER = Message(Role.USER, (Text("q <|im_end|>"),))
CALLED = Message(Role.ASSISTANT, (Text("Look."), ToolCall("c", "add", JsonObject())))
RESULTS = (Message(Role.TOOL, (ToolResult("c", "<|im_start|>1"),)), Message(Role.TOOL, (ToolResult("d", "2"),)))


def test_there_are_nine_and_each_can_be_asked_for_by_name() -> None:
    assert len(dialect_names()) == 9
    assert [dialect_for(None, BYTES, name).name for name in dialect_names()] == list(dialect_names())
    assert set(RENDERERS) == set(dialect_names())


def test_an_unknown_name_is_refused_with_the_names_that_are_known() -> None:
    with pytest.raises(UnknownDialect, match="chatml-qwen3"):
        dialect_for(None, BYTES, "chatml")


def test_no_template_and_no_name_is_hermes() -> None:
    assert dialect_for(None, BYTES).name == "chatml-hermes"


def test_a_digest_ignores_line_ends_and_outer_blanks_and_nothing_else() -> None:
    assert template_digest("a\r\nb\n") == template_digest("a\nb")
    assert template_digest("a b") != template_digest("a  b")
    assert all(len(digest) == 64 for digest in KNOWN_TEMPLATES)


def test_a_name_wins_over_a_template() -> None:
    assert dialect_for(CHATML, BYTES, "glm-4.7").name == "glm-4.7"


class TestUnknownTemplateWithoutTools:
    DIALECT = dialect_for(CHATML, BYTES)

    def test_plain_conversations_are_written_by_the_template(self) -> None:
        assert text_of(self.DIALECT.render((USER,))) == "<|im_start|>user\nq <|im_end|><|im_end|>\n<|im_start|>assistant\n"

    def test_tools_calls_and_results_go_through_it_as_content(self) -> None:
        add = tool("add")

        ours = self.DIALECT.render((USER, CALLED, *RESULTS), [add])

        # The same as the family's own renderer: the template is ChatML.
        assert text_of(ours) == text_of(
            dialect_for(None, BYTES, "chatml-hermes").render((USER, CALLED, *RESULTS), [add])
        ).replace("user\n\n<tool_response>", "user\n<tool_response>")

    def test_what_clients_wrote_is_text_there_too(self) -> None:
        segments = self.DIALECT.render((USER, CALLED, *RESULTS), [tool("add")])

        plain = self.DIALECT.render(
            (Message(Role.USER, (Text("q"),)), CALLED, Message(Role.TOOL, (ToolResult("c", "1"),)), RESULTS[1]), [tool("add")]
        )
        markers = [segment.id for segment in segments if isinstance(segment, MarkerSegment)]
        assert markers == [segment.id for segment in plain if isinstance(segment, MarkerSegment)]


def test_a_template_of_an_unknown_family_that_renders_tools_itself_refuses_them() -> None:
    dialect = dialect_for("{{ tools }}" + CHATML, BYTES)

    assert dialect.render((USER,))
    with pytest.raises(UnrenderableValue, match="--dialect"):
        dialect.render((USER,), [tool("add")])


def test_stop_ids_are_those_of_the_dialect() -> None:
    glm = dialect_for(None, BYTES, "glm-4.7").stop_ids

    assert {BYTES.marker_id("<|user|>"), BYTES.marker_id("<|observation|>"), BYTES.marker_id("<|endoftext|>")} <= set(glm)
    assert BYTES.marker_id("<|user|>") not in dialect_for(None, BYTES, "dsml-v4").stop_ids


def test_text_mode_is_said_of_the_markers_that_have_no_id() -> None:
    chatml_only = byte_vocabulary(("<|im_start|>", "<|im_end|>"))

    assert dialect_for(None, BYTES, "glm-4.7").text_mode_markers == ()
    assert dialect_for(None, chatml_only, "chatml-qwen3").text_mode_markers == (
        "<tool_call>",
        "</tool_call>",
        "<think>",
        "</think>",
    )
