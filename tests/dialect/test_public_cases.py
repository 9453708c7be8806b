"""Kinds of failure that other servers' users reported, each with the right answer. The titles say what must hold."""

from __future__ import annotations

import json

import pytest

from tests.dialect.conftest import BYTES, Answer, pieces_of, read, read_every_way, tool
from zllm_ref.canonical.json_value import parse_json_object
from zllm_ref.canonical.message import Message, Role, ToolCall
from zllm_ref.dialect import dialect_for, text_of
from zllm_ref.dialect.event import DiagnosticKind
from zllm_ref.dialect.tool_parser import ParseMode
from zllm_ref.tokenizer import MarkerPiece

NOTE = tool("note", text="string")
ADD = tool("add", a="integer", b="integer")
ROOMS = tool("list_rooms")
EDIT = tool("edit", old="string", line="integer?")
OPEN, CLOSE = "\n\n<｜DSML｜tool_calls>\n", "\n</｜DSML｜tool_calls>"


def dsml(name: str, *parameters: tuple[str, str, str]) -> str:
    body = "\n".join(
        f'<｜DSML｜parameter name="{key}" string="{is_string}">{value}</｜DSML｜parameter>'
        for key, is_string, value in parameters
    )
    return f'{OPEN}<｜DSML｜invoke name="{name}">\n{body}\n</｜DSML｜invoke>{CLOSE}'


def glm(name: str, *parameters: tuple[str, str]) -> str:
    body = "".join(f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>" for key, value in parameters)
    return f"<tool_call>{name}{body}</tool_call>"


def calls_of(answer: Answer) -> list[tuple[str, str]]:
    assert answer.content == ""
    return answer.calls


class TestP01PartialCloser:
    def test_no_part_of_the_closer_leaks_into_the_arguments(self) -> None:
        chunks = [
            '\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="note">\n<｜DSML｜parameter name="text" string="true">hel',
            "lo</",
            "｜DSML｜",
            "para",
            "meter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
        ]

        answer = read("dsml-v4", chunks, [NOTE])

        assert calls_of(answer) == [("note", '{"text": "hello"}')]
        assert "<" not in answer.streamed[0]

    def test_a_tag_that_is_not_the_closer_comes_out_whole(self) -> None:
        answer = read_every_way("dsml-v4", dsml("note", ("text", "true", "hello</p>")), [NOTE])

        assert calls_of(answer) == [("note", '{"text": "hello</p>"}')]


class TestP02NumberLikeStrings:
    TICKET = tool("open_ticket", ticket="string", n="integer")

    @pytest.mark.parametrize("value", ["123_456", "0012", "1e5", "true", "null", '{"a": 1}', '"q"', "[]", "-0", " 7 "])
    def test_a_string_by_its_schema_stays_the_characters_it_is(self, value: str) -> None:
        answer = read_every_way("glm-4.7", glm("open_ticket", ("ticket", value), ("n", "7")), [self.TICKET])

        assert calls_of(answer) == [("open_ticket", f'{{"ticket": {json.dumps(value)}, "n": 7}}')]

    @pytest.mark.parametrize("value", ["123_456", "0x1F", "1_0", "07", "NaN", "Infinity", "1.", "True", "'a'"])
    def test_a_number_by_its_schema_is_json_or_the_call_is_invalid(self, value: str) -> None:
        answer = read_every_way("glm-4.7", glm("open_ticket", ("n", value), ("ticket", "t")), [self.TICKET])

        assert answer.calls == []
        assert answer.kinds == [DiagnosticKind.INVALID_CALL]
        assert answer.streamed == {0: '{"n": '}


class TestP03CloserInsideAJsonString:
    TEXT = '<tool_call>\n{"name": "save", "arguments": {"body": "first </tool_call> then \\"<tool_call>\\" {x}"}}\n</tool_call>'
    RIGHT = ("save", '{"body": "first </tool_call> then \\"<tool_call>\\" {x}"}')

    @pytest.mark.parametrize("name", ["chatml-hermes", "chatml-qwen2.5", "chatml-qwen3"])
    def test_it_is_data_by_spelling_and_by_id(self, name: str) -> None:
        answer = read_every_way(name, self.TEXT, [tool("save", body="string")])

        assert calls_of(answer) == [self.RIGHT]
        inner = [piece for piece in pieces_of(self.TEXT) if isinstance(piece, MarkerPiece)]
        assert len(inner) == 4, "the inner tags came as ids, too"


class TestP04TwoCallsInOnePiece:
    CHUNKS = (
        '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2',
        '}}\n</tool_call>\n<tool_call>\n{"name": "add", "argu',
        'ments": {"a": 3, "b": 4}}\n</tool_call>',
    )

    @pytest.mark.parametrize("chunks", [CHUNKS, ("".join(CHUNKS),)])
    def test_both_come_out_with_nothing_between(self, chunks: tuple[str, ...]) -> None:
        answer = read("chatml-hermes", chunks, [ADD])

        assert calls_of(answer) == [("add", '{"a": 1, "b": 2}'), ("add", '{"a": 3, "b": 4}')]


class TestP05NoArguments:
    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("glm-4.7", "<tool_call>list_rooms</tool_call>"),
            ("glm-4.5", "\n<tool_call>list_rooms\n</tool_call>"),
            ("dsml-v4", f'{OPEN}<｜DSML｜invoke name="list_rooms">\n\n</｜DSML｜invoke>{CLOSE}'),
            ("dsml-v4", f'{OPEN}<｜DSML｜invoke name="list_rooms">\n</｜DSML｜invoke>{CLOSE}'),
            ("chatml-hermes", '<tool_call>\n{"name": "list_rooms", "arguments": {}}\n</tool_call>'),
            ("qwen3-coder", "<tool_call>\n<function=list_rooms>\n</function>\n</tool_call>"),
        ],
    )
    def test_the_call_is_there_and_its_arguments_are_an_empty_object(self, name: str, text: str) -> None:
        answer = read_every_way(name, text, [ROOMS])

        assert calls_of(answer) == [("list_rooms", "{}")]

    def test_pieces_of_the_name_are_joined(self) -> None:
        answer = read("glm-4.7", ["<tool_call>", "list", "_rooms", "</tool_call>"], [ROOMS])

        assert calls_of(answer) == [("list_rooms", "{}")]

    def test_dsml_writes_the_blank_line(self) -> None:
        message = Message(Role.ASSISTANT, (ToolCall("c", "list_rooms", parse_json_object("{}")),))

        text = text_of(dialect_for(None, BYTES, "dsml-v4").render_calls(message))

        assert text == f'{OPEN}<｜DSML｜invoke name="list_rooms">\n\n</｜DSML｜invoke>{CLOSE}'


class TestP06OuterWhitespace:
    OLD = "    if x:\n        return 1\n"

    def test_coder_takes_one_line_break_on_each_side_and_no_more(self) -> None:
        text = (
            f"<tool_call>\n<function=edit>\n<parameter=old>\n{self.OLD}\n</parameter>\n"
            "<parameter=line>\n 4 \n</parameter>\n</function>\n</tool_call>"
        )

        answer = read_every_way("qwen3-coder", text, [EDIT])

        assert calls_of(answer) == [("edit", json.dumps({"old": self.OLD, "line": 4}))]

    @pytest.mark.parametrize("value", [OLD, "\u00a0x\u00a0", " ", "\n", "\n\n", "\t\u2003"])
    def test_glm_keeps_every_blank(self, value: str) -> None:
        answer = read_every_way("glm-4.7", glm("edit", ("old", value)), [EDIT])

        assert calls_of(answer) == [("edit", json.dumps({"old": value}, ensure_ascii=False))]


class TestP11TypeAttribute:
    SET = tool("set", flag="boolean", label="string")

    def test_the_schema_wins_over_the_attribute_with_a_remark(self) -> None:
        answer = read_every_way("dsml-v4", dsml("set", ("flag", "true", "true"), ("label", "false", "12")), [self.SET])

        assert calls_of(answer) == [("set", '{"flag": true, "label": "12"}')]
        assert answer.kinds == [DiagnosticKind.TYPE_MISMATCH, DiagnosticKind.TYPE_MISMATCH]

    def test_a_value_that_the_schema_cannot_mean_is_invalid(self) -> None:
        answer = read_every_way("dsml-v4", dsml("set", ("flag", "true", "yes")), [self.SET])

        assert answer.calls == []
        assert DiagnosticKind.INVALID_CALL in answer.kinds

    def test_where_the_schema_says_nothing_the_attribute_decides(self) -> None:
        text = dsml("f", ("a", "true", "12"), ("b", "false", "12"))

        assert calls_of(read_every_way("dsml-v4", text, [tool("f", a="any", b="any")])) == [("f", '{"a": "12", "b": 12}')]


class TestP12NearDsml:
    BODY = '<｜DSML｜parameter name="text" string="true">hi</｜DSML｜parameter>'
    NO_BLOCK = f'<｜DSML｜invoke name="note">\n{BODY}\n</｜DSML｜invoke>'
    OLD_WORD = f"\n\n<｜DSML｜function_calls>\n{NO_BLOCK}\n</｜DSML｜function_calls>"
    CUT = f'{OPEN}<｜DSML｜invoke name="note">\n<｜DSML｜parameter name="text" string="true">hi'

    @pytest.mark.parametrize("text", [NO_BLOCK, OLD_WORD])
    def test_strict_leaves_it_in_the_content_byte_for_byte_and_says_so(self, text: str) -> None:
        answer = read_every_way("dsml-v4", text, [NOTE])

        assert (answer.content, answer.calls) == (text, [])
        assert answer.kinds == [DiagnosticKind.MARKUP_IN_TEXT]

    @pytest.mark.parametrize("text", [NO_BLOCK, OLD_WORD])
    def test_repair_reads_the_call_and_says_so(self, text: str) -> None:
        answer = read_every_way("dsml-v4", text, [NOTE], mode=ParseMode.REPAIR)

        assert calls_of(answer) == [("note", '{"text": "hi"}')]
        assert DiagnosticKind.REPAIRED in answer.kinds

    @pytest.mark.parametrize("mode", list(ParseMode))
    def test_a_call_that_was_cut_off_never_finishes(self, mode: ParseMode) -> None:
        answer = read_every_way("dsml-v4", self.CUT, [NOTE], mode=mode)

        assert (answer.content, answer.calls) == ("", [])
        assert answer.streamed == {0: '{"text": "hi'}
        assert answer.kinds == [DiagnosticKind.INCOMPLETE_CALL]
        assert answer.diagnostics[0].ordinal == 0


class TestP13CallInsideReasoning:
    CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'

    @pytest.mark.parametrize("name", ["chatml-hermes", "chatml-qwen3"])
    def test_an_open_reasoning_swallows_it(self, name: str) -> None:
        text = f"I should add.\n{self.CALL}"

        answer = read_every_way(name, text, [ADD], thinking=True)

        assert (answer.reasoning, answer.content, answer.calls) == (text, "", [])
        assert answer.kinds == [DiagnosticKind.OPEN_REASONING]

    @pytest.mark.parametrize("name", ["chatml-hermes", "chatml-qwen3"])
    def test_a_quoted_tag_is_reasoning_and_the_call_after_it_is_a_call(self, name: str) -> None:
        text = f"I could write <tool_call> now.\n</think>\n\n{self.CALL}"

        answer = read_every_way(name, text, [ADD], thinking=True)

        assert answer.reasoning == "I could write <tool_call> now."
        assert calls_of(answer) == [("add", '{"a": 1, "b": 2}')]

    def test_on_request_the_marker_ends_reasoning_but_its_spelling_never_does(self) -> None:
        text = f"I should add.\n{self.CALL}"

        by_id = read("chatml-qwen3", pieces_of(text), [ADD], vocabulary=BYTES, thinking=True, ends_reasoning_at_call=True)
        by_text = read("chatml-qwen3", [text], [ADD], thinking=True, ends_reasoning_at_call=True)

        assert (by_id.reasoning, by_id.calls) == ("I should add.", [("add", '{"a": 1, "b": 2}')])
        assert (by_text.reasoning, by_text.calls) == (text, [])


class TestP14Entities:
    HTML = "a &lt;b&gt; &amp;amp; &quot;c&quot;"

    @pytest.mark.parametrize("mode", list(ParseMode))
    def test_nothing_is_unescaped(self, mode: ParseMode) -> None:
        render = tool("render", html="string")
        right = [("render", json.dumps({"html": self.HTML}))]

        assert calls_of(read_every_way("glm-4.7", glm("render", ("html", self.HTML)), [render], mode=mode)) == right
        assert calls_of(read_every_way("dsml-v4", dsml("render", ("html", "true", self.HTML)), [render], mode=mode)) == right

    @pytest.mark.parametrize("name", ["glm-4.5", "glm-4.7", "dsml-v3.2", "dsml-v4", "dsml-v4.1", "qwen3-coder"])
    def test_nothing_is_escaped(self, name: str) -> None:
        arguments = parse_json_object('{"html": "a <b> & \\"c\\""}')
        message = Message(Role.ASSISTANT, (ToolCall("c", "render", arguments),))

        assert 'a <b> & "c"' in text_of(dialect_for(None, BYTES, name).render_calls(message))


class TestP15DuplicateParameter:
    MOVE = tool("move", x="integer", y="integer")

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("glm-4.7", glm("move", ("x", "1"), ("x", "2"), ("y", "3"))),
            ("dsml-v4", dsml("move", ("x", "false", "1"), ("x", "false", "2"))),
            ("chatml-hermes", '<tool_call>\n{"name": "move", "arguments": {"x": 1, "x": 2, "y": 3}}\n</tool_call>'),
            (
                "qwen3-coder",
                "<tool_call>\n<function=move>\n<parameter=x>\n1\n</parameter>\n"
                "<parameter=x>\n2\n</parameter>\n</function>\n</tool_call>",
            ),
        ],
    )
    def test_the_call_is_invalid_and_the_second_value_is_never_said(self, name: str, text: str) -> None:
        answer = read_every_way(name, text, [self.MOVE])

        assert (answer.content, answer.calls) == ("", [])
        assert answer.kinds == [DiagnosticKind.INVALID_CALL]
        assert "duplicate parameter x" in answer.diagnostics[0].message
        assert answer.streamed[0].startswith('{"x": 1')
        assert "2" not in answer.streamed[0]


@pytest.mark.parametrize("name", ["chatml-qwen3", "glm-4.5", "glm-4.7", "dsml-v4"])
def test_reasoning_that_the_model_opens_itself_is_reasoning_only_at_the_start(name: str) -> None:
    for space in ("", "\n", "\n\n"):
        opened = read_every_way(name, f"{space}<think>why</think>so", [NOTE])
        assert (opened.reasoning, opened.content) == ("why", "so")

    later = read_every_way(name, "Write <think> first.", [NOTE])
    assert (later.reasoning, later.content) == ("", "Write <think> first.")

    assert read_every_way(name, "\n\n<thin", [NOTE]).content == "\n\n<thin"


def written(name: str, *calls: tuple[str, str]) -> str:
    message = Message(Role.ASSISTANT, tuple(ToolCall("c", called, parse_json_object(text)) for called, text in calls))
    return text_of(dialect_for(None, BYTES, name).render_calls(message))


class TestUnknownTools:
    def test_a_call_of_no_tool_of_the_request_is_text_byte_for_byte(self, dialect_name: str) -> None:
        text = f"Well.{written(dialect_name, ('other', '{}'))}"

        answer = read_every_way(dialect_name, text, [ROOMS])

        assert (answer.content, answer.calls) == (text, [])
        assert answer.kinds[0] is DiagnosticKind.UNKNOWN_TOOL

    def test_a_known_call_before_it_stays_a_call(self, dialect_name: str) -> None:
        text = written(dialect_name, ("list_rooms", "{}"), ("other", "{}"))

        answer = read_every_way(dialect_name, text, [ROOMS])

        assert answer.calls == [("list_rooms", "{}")]
        assert "other" in answer.content
        assert text.endswith(answer.content)

    def test_without_tools_nothing_is_a_call(self, dialect_name: str) -> None:
        text = written(dialect_name, ("list_rooms", "{}"))

        answer = read_every_way(dialect_name, text, [])

        assert (answer.content, answer.calls, answer.diagnostics) == (text, [], [])


class TestAfterCalls:
    @pytest.mark.parametrize("end", ["", "\n", "\n\n  "])
    def test_blanks_at_the_end_are_framing(self, dialect_name: str, end: str) -> None:
        answer = read_every_way(dialect_name, written(dialect_name, ("list_rooms", "{}")) + end, [ROOMS])

        assert (answer.content, answer.calls) == ("", [("list_rooms", "{}")])

    def test_text_is_content_with_the_blanks_before_it(self, dialect_name: str) -> None:
        answer = read_every_way(dialect_name, written(dialect_name, ("list_rooms", "{}")) + "\n Done.", [ROOMS])

        assert (answer.content, answer.calls) == ("\n Done.", [("list_rooms", "{}")])
