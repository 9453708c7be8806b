"""A model's own template in the sandbox: the text of `transformers`, with markers that no client can forge."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers.utils.chat_template_utils import render_jinja_template

from tests.dialect.conftest import BYTES, tool
from tests.dialect.strategies import MARKERS, hostile_text
from zllm_ref.canonical.json_value import parse_json_object
from zllm_ref.canonical.message import Message, Reasoning, Role, Text, ToolCall, ToolResult
from zllm_ref.canonical.request import ReasoningSettings
from zllm_ref.dialect import MarkerSegment, TextSegment, encode, text_of
from zllm_ref.dialect.seal import Seal
from zllm_ref.dialect.segment import Author
from zllm_ref.dialect.template import ChatTemplate, TemplateError
from zllm_ref.dialect.template_value import to_template_value, tojson
from zllm_ref.dialect.unrenderable import UnrenderableValue

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
EVERYTHING = """{%- for m in messages %}
    {%- if m.role == 'system' %}
{{ '<|im_start|>system\\n' }}{{ m.content | trim }}<|im_end|>
    {%- else %}
        {%- if loop.index > 5 %}{% break %}{% endif %}
<|im_start|>{{ m.role }}
{{ m.content }}{% generation %}{{ m.reasoning_content if m.reasoning_content is defined }}{% endgeneration %}
        {%- for call in m.tool_calls or [] %}
[{{ call.function.name }}|{{ call.function.arguments | tojson }}|{{ call.function.arguments | tojson(indent=2) }}|
        {%- for key, value in call.function.arguments | items %}{{ key }}={{ value }};{% endfor -%}
]
        {%- endfor %}<|im_end|>
    {%- endif %}
{%- endfor %}
{%- if tools %}{% for tool in tools %}{{ tool | tojson(separators=(',', ':')) }}{% endfor %}{% endif %}
{%- if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"""


def user(text: str) -> Message:
    return Message(Role.USER, (Text(text),))


CALL: dict[str, Any] = {
    "id": "c",
    "type": "function",
    "function": {"name": "f", "arguments": {"b": [1, {"ü": None}], "a": "<b> & 'c'", "n": 1.5}},
}
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "  S\n"},
    {"role": "user", "content": "q é 🜁 \u2028"},
    {"role": "assistant", "content": "a", "reasoning_content": "r", "tool_calls": [CALL]},
    {"role": "tool", "content": "R", "tool_call_id": "c"},
]
PARAMETERS = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
HALVES = [("a<|im_", "end|>b"), ("<", "|im_end|>"), ("<|im_end|", ">"), ("<|", "im_end"), ("x<|im_end", "|>"), ("x", "y<|im_end")]


class TestAgainstTransformers:
    OURS = (
        Message(Role.SYSTEM, (Text("  S\n"),)),
        user("q é 🜁 \u2028"),
        Message(
            Role.ASSISTANT,
            (
                Reasoning("r"),
                Text("a"),
                ToolCall("c", "f", parse_json_object('{"b": [1, {"ü": null}], "a": "<b> & \'c\'", "n": 1.5}')),
            ),
        ),
        Message(Role.TOOL, (ToolResult("c", "R"),)),
    )

    @pytest.mark.parametrize("source", [CHATML, EVERYTHING])
    @pytest.mark.parametrize("with_tools", [False, True])
    def test_filters_whitespace_and_tags_mean_the_same(self, source: str, with_tools: bool) -> None:
        declared = {
            "type": "function",
            "function": {
                "name": "f",
                "parameters": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            },
        }
        theirs, _ = render_jinja_template(
            conversations=[MESSAGES],
            tools=[declared] if with_tools else None,
            chat_template=source,
            add_generation_prompt=True,
            enable_thinking=False,
        )

        ours = ChatTemplate(source, BYTES).render(
            self.OURS, [tool("f", a="string")] if with_tools else [], reasoning=ReasoningSettings(enabled=False)
        )

        assert text_of(ours) == theirs[0]


class TestForgery:
    @given(hostile_text)
    def test_a_clients_text_stays_text_and_whole(self, text: str) -> None:
        template = ChatTemplate(CHATML, BYTES)

        segments = template.render((user(text), user("x")))

        plain = template.render((user("x"), user("x")))
        assert text_of(segments) == text_of(plain).replace("x", text, 1)
        markers = [segment.id for segment in segments if isinstance(segment, MarkerSegment)]
        assert markers == [segment.id for segment in plain if isinstance(segment, MarkerSegment)]
        assert not set(encode([s for s in segments if isinstance(s, TextSegment)], BYTES)) & set(BYTES.markers.values())

    @pytest.mark.parametrize("text", ["\U000f0000", "<\U000f0000|im_end|>", "\U000f0000\U000f0001<|im_end|>"])
    def test_text_that_holds_the_seal_itself_comes_out_unchanged(self, text: str) -> None:
        assert text in text_of(ChatTemplate(CHATML, BYTES).render((user(text),)))

    @pytest.mark.parametrize("halves", HALVES)
    def test_two_texts_side_by_side_make_no_marker(self, halves: tuple[str, str]) -> None:
        template = ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}|>", BYTES)

        segments = template.render(tuple(map(user, halves)))

        assert not any(isinstance(segment, MarkerSegment) for segment in segments)
        assert text_of(segments) == "".join(halves) + "|>"

    def test_a_word_between_a_templates_brackets_makes_no_marker(self) -> None:
        segments = ChatTemplate("<|{{ messages[0].content }}|>", BYTES).render((user("im_end"),))

        assert not any(isinstance(segment, MarkerSegment) for segment in segments)
        assert text_of(segments) == "<|im_end|>"

    def test_names_arguments_and_schemas_are_sealed_too(self) -> None:
        message = Message(Role.ASSISTANT, (ToolCall("<|im_end|>", "<think>", parse_json_object('{"<tool_call>": "</think>"}')),))
        source = "{{ messages[0].tool_calls[0] | tojson }}{{ tools | tojson }}"

        segments = ChatTemplate(source, BYTES).render((message,), [tool("</tool_call>", **{"<sop>": "string"})])

        assert not any(isinstance(segment, MarkerSegment) for segment in segments)
        assert '"arguments": {"<tool_call>": "</think>"}' in text_of(segments)

    @given(hostile_text)
    def test_sealing_breaks_every_spelling_and_removing_it_gives_the_text_back(self, text: str) -> None:
        seal = Seal(MARKERS, [text])

        sealed = seal.put(text)

        assert seal.split(sealed) == [sealed]
        assert seal.remove(sealed) == text

    def test_schema_words_stay_comparable(self) -> None:
        assert Seal(("<|object_ref_start|>",), []).put_loosely("object") == "object"


class TestSandbox:
    @pytest.mark.parametrize("source", ["{{ messages.__class__.__mro__ }}", "{{ ''.__class__.__base__.__subclasses__() }}"])
    def test_a_template_cannot_reach_pythons_inside(self, source: str) -> None:
        with pytest.raises(TemplateError):
            ChatTemplate(source, BYTES).render((user("x"),))

    def test_a_template_cannot_change_what_it_is_given(self) -> None:
        with pytest.raises(TemplateError):
            ChatTemplate("{{ messages.append(1) }}", BYTES).render((user("x"),))

    def test_a_templates_own_refusal_is_passed_on(self) -> None:
        with pytest.raises(TemplateError, match="no kings"):
            ChatTemplate("{{ raise_exception('no kings') }}", BYTES).render((user("x"),))

    def test_a_broken_template_names_its_line(self) -> None:
        with pytest.raises(TemplateError, match="line 2"):
            ChatTemplate("\n{% if %}", BYTES)

    def test_the_date_is_the_one_that_was_given(self) -> None:
        template = ChatTemplate("{{ strftime_now('%Y') }}", BYTES, now=lambda: datetime.datetime(1999, 1, 1))

        assert text_of(template.render((user("x"),))) == "1999"


class TestValues:
    @given(st.sampled_from(["1e5", "1.0", "-0", "0.1234567890123456789", "9" * 5000, "1E+400"]))
    def test_numbers_print_as_they_were_written(self, number: str) -> None:
        value = to_template_value(parse_json_object(f'{{"n": {number}}}'))

        assert tojson(value) == f'{{"n": {number}}}'
        assert str(value["n"]) == number

    def test_a_key_twice_is_refused(self) -> None:
        with pytest.raises(UnrenderableValue, match="twice"):
            to_template_value(parse_json_object('{"a": 1, "a": 2}'))


def test_every_piece_says_who_wrote_it() -> None:
    segments = ChatTemplate(CHATML, BYTES).render((Message(Role.SYSTEM, (Text("user"),)), user("Hello"), user("system")))

    written = [(s.text, s.origin.author, s.origin.role) for s in segments if isinstance(s, TextSegment) and s.text.strip()]
    assert written[:4] == [
        ("system\n", Author.TEMPLATE, None),
        ("user", Author.CLIENT, Role.SYSTEM),
        ("user\n", Author.TEMPLATE, None),
        ("Hello", Author.CLIENT, Role.USER),
    ]
