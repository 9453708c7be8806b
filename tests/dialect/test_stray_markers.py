"""A marker's id where it means nothing is left out with a remark; what was written as a call stays or is one."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from tests.dialect.conftest import BYTES, pieces_of, read, tool
from tests.fence.vocabularies import trained_vocabulary
from zllm_ref.canonical.json_value import JsonObject
from zllm_ref.canonical.message import Message, Role, ToolCall
from zllm_ref.dialect import dialect_for, text_of
from zllm_ref.dialect.definitions import DEFINITIONS
from zllm_ref.dialect.event import Diagnostic, DiagnosticKind
from zllm_ref.tokenizer import Detokenizer, MarkerPiece, TextPiece

NOTE = tool("note", text="string")
DSML = sorted(name for name in DEFINITIONS if name.startswith("dsml"))


def strays(diagnostics: list[Diagnostic]) -> list[str]:
    return [one.raw for one in diagnostics if one.kind is DiagnosticKind.STRAY_MARKER]


@pytest.mark.parametrize("name", [name for name in DEFINITIONS if DEFINITIONS[name].reasoning is not None])
def test_reasoning_opened_twice_says_so_and_goes_on(name: str) -> None:
    answer = read(name, pieces_of("a<think>b</think>c</think>d"), [NOTE], vocabulary=BYTES, thinking=True)

    assert (answer.reasoning, answer.content.strip()) == ("ab", "cd")
    assert strays(answer.diagnostics) == ["<think>", "</think>"]


def test_a_marker_of_another_family_is_left_out_wherever_it_comes(dialect_name: str) -> None:
    other = "<arg_key>" if dialect_name.startswith(("dsml", "chatml", "qwen3")) else "｜DSML｜"
    vocabulary = BYTES
    token_id = vocabulary.markers[other]

    answer = read(dialect_name, [TextPiece("a"), MarkerPiece(token_id, other), TextPiece("b")], [NOTE], vocabulary=vocabulary)

    assert answer.content == "ab"
    assert strays(answer.diagnostics) == [other]


def test_the_tags_of_a_call_that_is_none_stay_as_they_were_written(dialect_name: str) -> None:
    """A tool that is not there: nothing of the attempt is lost, also where its tags came as ids."""
    dialect = dialect_for(None, BYTES, dialect_name)
    call = ToolCall("c", "unheard_of", JsonObject((("text", "hi"),)))
    written = text_of(dialect.render_calls(Message(Role.ASSISTANT, (call,))))

    answer = read(dialect_name, pieces_of(written), [NOTE], vocabulary=BYTES)

    assert answer.calls == []
    assert answer.content == written
    assert strays(answer.diagnostics) == []


@pytest.mark.parametrize("name", DSML)
def test_dsml_without_its_block_stays_byte_for_byte_also_as_ids(name: str) -> None:
    space = " " if name == "dsml-v4.1" else ""
    invoke, value = f'<｜DSML｜{space}invoke name="note">', f'<｜DSML｜{space}parameter name="text" string="true">hi'
    text = f"{invoke}\n{value}</｜DSML｜{space}parameter>\n"

    answer = read(name, pieces_of(text), [NOTE], vocabulary=BYTES)

    assert (answer.content, answer.calls) == (text, [])
    assert answer.kinds == [DiagnosticKind.MARKUP_IN_TEXT]


@pytest.mark.parametrize("name", ["chatml-hermes", "glm-4.7"])
def test_a_value_keeps_the_tags_of_calls_and_loses_those_of_turns(name: str) -> None:
    inside = "x<tool_call>y<think>z"
    text = {
        "chatml-hermes": f'<tool_call>\n{{"name": "note", "arguments": {{"text": "{inside}"}}}}\n</tool_call>',
        "glm-4.7": f"<tool_call>note<arg_key>text</arg_key><arg_value>{inside}</arg_value></tool_call>",
    }[name]

    answer = read(name, pieces_of(text), [NOTE], vocabulary=BYTES)

    assert answer.calls == [("note", '{"text": "x<tool_call>yz"}')]


# token by token: borders of tokens run through tags, and a tag that is text around an id comes in pieces

VOCABULARY = trained_vocabulary()
CONTENTS = ("", "a", "a <", "<", "a\n", "a\n\n", "1 < 2", "</", "\n\n<", "a < b\n")


@pytest.mark.parametrize("content", CONTENTS)
def test_every_cut_into_tokens_gives_the_call_and_the_content_before_it(dialect_name: str, content: str) -> None:
    dialect = dialect_for(None, VOCABULARY, dialect_name)
    call = ToolCall("c", "note", JsonObject((("text", "1 < 2\n</p> <"),)))
    calls = text_of(dialect.render_calls(Message(Role.ASSISTANT, (call,))))
    lead = dialect.definition.calls.lead
    lead = lead if content and not calls.startswith(lead) else ""
    rng = random.Random(f"{dialect_name} {content}")

    for _ in range(12):
        ids = []
        for part in VOCABULARY.split_at_markers(content + lead + calls):
            marker = VOCABULARY.marker_id(part)
            if marker is not None:
                ids.append(marker)
                continue
            edges = sorted({0, len(part), *(rng.randrange(len(part) + 1) for _ in range(rng.randrange(5)))})
            for start, end in pairwise(edges):
                ids += VOCABULARY.encode_text(part[start:end])
        detokenizer = Detokenizer(VOCABULARY)
        pieces = [piece for token_id in ids for piece in detokenizer.push(token_id)]

        answer = read(dialect_name, pieces, [NOTE], vocabulary=VOCABULARY)

        assert answer.calls == [("note", '{"text": "1 < 2\\n</p> <"}')], VOCABULARY.decode(ids)
        assert (answer.content, answer.diagnostics) == (content, []), VOCABULARY.decode(ids)


@pytest.mark.parametrize("name", DSML)
def test_a_bracket_before_the_id_belongs_to_the_tag_and_to_nothing_else(name: str) -> None:
    """`<` is held while the id may follow, and comes out when it does not."""
    dialect = dialect_for(None, BYTES, name)
    parser = dialect.parser([NOTE])
    dsml = MarkerPiece(BYTES.markers["｜DSML｜"], "｜DSML｜")

    assert parser.push((TextPiece("a\n\n"),)) != []
    assert parser.push((TextPiece("<"),)) == []
    assert [event.text for event in parser.push((TextPiece("b"),)) if hasattr(event, "text")] == ["\n\n<b"]
    assert parser.push((TextPiece("\n\n<"),)) == []
    assert parser.push((dsml,)) == []
    block = dialect.definition.calls.block_open[-1]  # type: ignore[union-attr]
    assert parser.push((TextPiece(str(block)[:-3]),)) == []
    wrong = parser.push((TextPiece("!"),))
    assert "".join(event.text for event in wrong if hasattr(event, "text")) == f"\n\n<｜DSML｜{str(block)[:-3]}!"
