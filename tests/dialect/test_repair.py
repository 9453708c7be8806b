"""Repair mode, row by row; what strict mode says to the same text; and what neither may do."""

from __future__ import annotations

import pytest

from tests.dialect.conftest import BYTES, read_every_way, tool
from zllm_ref.canonical.json_value import JsonObject, dump_json, parse_json_object
from zllm_ref.canonical.message import Message, Role, Text, ToolCall
from zllm_ref.dialect import dialect_for, text_of
from zllm_ref.dialect.event import DiagnosticKind
from zllm_ref.dialect.tool_parser import ParseMode

NOTE = tool("note", text="string", n="integer?")
RIGHT = [("note", '{"text": "hi"}')]
BODY = '<｜DSML｜parameter name="text" string="true">hi</｜DSML｜parameter>\n</｜DSML｜invoke>'
BLOCK = f'<｜DSML｜tool_calls>\n<｜DSML｜invoke name="note">\n{BODY}\n</｜DSML｜tool_calls>'
JSON = '{"name": "note", "arguments": {"text": "hi"}}'

UPPER = BLOCK.replace("tool_calls", "TOOL_CALLS").replace("invoke", "Invoke").replace("parameter", "PARAMETER")
SPACED = BLOCK.replace("tool_calls", " calls").replace("invoke", " invoke").replace("parameter", " parameter")
CODER = "<function=note>\n<parameter=text>\nhi\n</parameter>\n</function>\n</tool_call>"
GLM = "<tool_call>note\n<arg_key>text</arg_key>\n<arg_value>hi</arg_value>\n</tool_call>"
DOUBLE = '<tool_call>\n{"name": "note", "arguments": "{\\"text\\": \\"hi\\"}"}\n</tool_call>'

ROWS = [
    # dialect, what is wrong, the text
    (
        "dsml-v4",
        "other case",
        BLOCK.replace("tool_calls", "TOOL_CALLS").replace("invoke", "Invoke").replace("parameter", "PARAMETER"),
    ),
    ("dsml-v4", "attributes in other case", BLOCK.replace("name=", "NAME=").replace("string=", "String=")),
    ("dsml-v4", "single quotes", BLOCK.replace('"', "'")),
    ("dsml-v4", "backslashes before the brackets", BLOCK.replace("<", "\\<").replace(">", "\\>")),
    ("dsml-v4", "entities for the brackets", BLOCK.replace("<", "&lt;").replace(">", "&gt;")),
    ("dsml-v4", "ASCII bars", BLOCK.replace("｜", "|")),
    ("dsml-v4", "doubled bars", BLOCK.replace("｜", "｜｜")),
    ("dsml-v4", "blanks around the bars", BLOCK.replace("｜DSML｜", "｜ DSML ｜ ")),
    ("dsml-v4", "the block word of V3.2", BLOCK.replace("tool_calls", "function_calls")),
    (
        "dsml-v4",
        "the tags of V4.1",
        BLOCK.replace("tool_calls", " calls").replace("invoke", " invoke").replace("parameter", " parameter"),
    ),
    ("dsml-v3.2", "the block word of V4", BLOCK),
    ("dsml-v4.1", "the tags of V4", BLOCK),
    ("dsml-v4", "no block", f'<｜DSML｜invoke name="note">\n{BODY}'),
    ("dsml-v4", "only the end of the block", f'<｜DSML｜invoke name="note">\n{BODY}\n</｜DSML｜tool_calls>'),
    ("dsml-v4", "the end of the block twice", f"{BLOCK}\n</｜DSML｜tool_calls>"),
    ("glm-4.7", "other case", "<TOOL_CALL>note<Arg_Key>text</Arg_Key><ARG_VALUE>hi</ARG_VALUE></TOOL_CALL>"),
    ("glm-4.7", "blanks in tags", "< tool_call >note< arg_key >text</ arg_key >< arg_value >hi</ arg_value ></ tool_call >"),
    (
        "glm-4.5",
        "a closing tag too many",
        "<tool_call>note\n<arg_key>text</arg_key>\n<arg_value>hi</arg_value>\n</tool_call>\n</tool_call>",
    ),
    ("chatml-hermes", "other case", f"<Tool_Call>\n{JSON}\n</TOOL_CALL>"),
    ("chatml-hermes", "entities", f"&lt;tool_call&gt;\n{JSON}\n&lt;/tool_call&gt;"),
    ("chatml-qwen3", "a closing tag before the call", f"</tool_call>\n<tool_call>\n{JSON}\n</tool_call>"),
    ("chatml-qwen2.5", "parameters for arguments", f"<tool_call>\n{JSON.replace('arguments', 'parameters')}\n</tool_call>"),
    (
        "chatml-qwen2.5",
        "arguments as a string of JSON",
        '<tool_call>\n{"name": "note", "arguments": "{\\"text\\": \\"hi\\"}"}\n</tool_call>',
    ),
    ("qwen3-coder", "other case", "<tool_call>\n" + CODER.replace("function", "FUNCTION").replace("parameter", "Parameter")),
    (
        "qwen3-coder",
        "no tool_call before the function",
        "<function=note>\n<parameter=text>\nhi\n</parameter>\n</function>\n</tool_call>",
    ),
    (
        "qwen3-coder",
        "blanks in tags",
        "<tool_call>\n<function = note>\n<parameter = text >\nhi\n</ parameter>\n</function >\n</tool_call>",
    ),
]


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, _, text in ROWS], ids=[f"{row[0]}: {row[1]}" for row in ROWS])
class TestRows:
    def test_repair_reads_the_call_and_reports_it(self, name: str, text: str) -> None:
        answer = read_every_way(name, text, [NOTE], mode=ParseMode.REPAIR)

        assert answer.calls == RIGHT
        assert answer.content.strip() == ""
        assert DiagnosticKind.REPAIRED in answer.kinds

    def test_strict_never_guesses(self, name: str, text: str) -> None:
        answer = read_every_way(name, text, [NOTE])

        assert answer.calls in ([], RIGHT)
        if answer.calls == RIGHT:  # what is wrong stands beside a right call: it stays in the content
            assert answer.content.strip() in text
            assert answer.content.strip() != ""
        elif not answer.names:
            assert answer.content == text
        else:
            assert answer.kinds == [DiagnosticKind.INVALID_CALL]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dsml-v4", "</｜DSML｜PARAM> <INVOKE> &lt;b&gt; \\<"),
        ("glm-4.7", "<ARG> </arg_values> &lt;x&gt;"),
        ("chatml-hermes", "<TOOL_CALL> </Tool_Call> &lt;tool_call&gt;"),
        ("qwen3-coder", "<PARAMETER> </param>"),
    ],
)
def test_values_are_never_repaired(name: str, value: str) -> None:
    from zllm_ref.canonical.message import Message, Role, ToolCall
    from zllm_ref.dialect import dialect_for, text_of

    arguments = JsonObject((("text", value),))
    text = text_of(dialect_for(None, BYTES, name).render_calls(Message(Role.ASSISTANT, (ToolCall("c", "note", arguments),))))

    answer = read_every_way(name, text, [NOTE], mode=ParseMode.REPAIR)

    assert answer.calls == [("note", dump_json(arguments))]
    assert answer.diagnostics == []


def test_prose_about_tags_stays_prose_in_both_modes() -> None:
    text = "Use <b>bold</b>, a < b, x > y, &lt;p&gt; and <｜ not a tag."
    for name in ("dsml-v4", "glm-4.7", "chatml-hermes", "qwen3-coder"):
        for mode in ParseMode:
            answer = read_every_way(name, text, [NOTE], mode=mode)

            assert (answer.content, answer.diagnostics) == (text, [])


def test_a_right_answer_is_the_same_in_both_modes(dialect_name: str) -> None:
    call = ToolCall("c", "note", parse_json_object('{"text": " x\\n", "n": 1}'))
    dialect = dialect_for(None, BYTES, dialect_name)
    text = "Look:" + text_of(dialect.render((Message(Role.ASSISTANT, (Text("Look:"), call, call)),), [NOTE])).split("Look:")[1]
    for end in ("<|im_end|>", "<｜end▁of▁sentence｜>", "<|assistant|>"):
        text = text.split(end)[0]

    strict = read_every_way(dialect_name, text, [NOTE])
    repair = read_every_way(dialect_name, text, [NOTE], mode=ParseMode.REPAIR)

    assert strict == repair
    assert (strict.content, len(strict.calls), strict.diagnostics) == ("Look:", 2, [])
