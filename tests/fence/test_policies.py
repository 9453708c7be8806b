"""What no mask holds: refused with its path, or left to a later validation."""

from __future__ import annotations

from collections.abc import Sequence as Sequence_
from typing import Any

import pytest

from tests.fence.layouts import Tools
from tests.fence.one_value import GLM, STRICT, built, one_value, reads, value
from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.json_value import JsonObject, from_python
from zllm_ref.canonical.request import (
    ToolChoiceRequired,
)
from zllm_ref.fence import FenceCompiler, FencePolicy, FenceRequest, build_fence
from zllm_ref.fence.grammar import (
    MAX_PARAMETERS,
    CallGrammar,
    Choice,
    JsonBySchema,
    JsonString,
    Literal,
    Marker,
    RawText,
    Sequence,
    ToolGrammar,
)
from zllm_ref.fence.json_schema_fence import hold_schema
from zllm_ref.fence.mask import ids_of
from zllm_ref.tokenizer import Vocabulary

NOT_HELD = [
    ({"type": "integer", "not": {"const": 3}}, "not"),
    ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, "uniqueItems"),
    ({"type": "object", "properties": {"a": {"type": "string", "format": "postcode"}}}, "properties.a.format"),
    ({"anyOf": [{"type": "object", "propertyNames": {"pattern": "^x"}}]}, "anyOf[0].propertyNames"),
    ({"type": "integer", "exclusiveMinimum": True, "minimum": 1}, "exclusiveMinimum"),
    ({"type": "array", "items": [{"type": "integer"}]}, "items"),
]


class TestWhatNoMaskHolds:
    @pytest.mark.parametrize(("schema", "place"), NOT_HELD, ids=[place for _, place in NOT_HELD])
    def test_a_strict_tool_is_refused_with_the_path(self, schema: dict[str, Any], place: str) -> None:
        with pytest.raises(ApiError) as refused:
            built(one_value(value(schema)), tools=STRICT)

        assert refused.value.kind is ErrorKind.INVALID_VALUE
        assert refused.value.param == f"tools[0].parameters.properties.v.{place}"

    @pytest.mark.parametrize(("schema", "place"), NOT_HELD, ids=[place for _, place in NOT_HELD])
    def test_any_other_tool_is_fenced_without_the_rule_and_says_so(self, schema: dict[str, Any], place: str) -> None:
        fence = built(one_value(value(schema)))

        assert [problem.path for problem in fence.problems] == [f"tools[0].parameters.properties.v.{place}"]
        assert "rules not held" in fence.explain()

    def test_the_policy_may_refuse_for_every_tool(self) -> None:
        with pytest.raises(ApiError, match="uniqueItems"):
            built(one_value(value({"type": "array", "uniqueItems": True})), policy=FencePolicy.STRICT)

    def test_what_llguidance_alone_refuses_is_found_and_loosened(self) -> None:
        schema = {"oneOf": [{"type": "number"}, {"type": "integer"}]}
        fence = built(one_value(value(schema)))

        assert [problem.path for problem in fence.problems] == ["tools[0].parameters.properties.v"]
        assert reads(fence, "<tool_call>(1")
        with pytest.raises(ApiError, match="oneOf"):
            built(one_value(value(schema)), tools=STRICT)

    def test_a_schema_without_any_value_is_refused(self) -> None:
        with pytest.raises(ApiError) as refused:
            built(one_value(value({"type": "integer", "minimum": 5, "maximum": 3})), tools=STRICT)

        assert refused.value.param == "tools[0].parameters.properties.v"

    def test_a_schema_whose_values_are_infinitely_deep_is_refused(self) -> None:
        node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}, "required": ["next"]}

        with pytest.raises(ApiError, match="infinitely deep"):
            built(one_value(value({"$ref": "#/$defs/n", "$defs": {"n": node}})), tools=STRICT)

    def test_an_unescaped_string_cannot_hold_a_format(self) -> None:
        schema = from_python({"type": "string", "format": "email"})
        assert isinstance(schema, JsonObject)
        fence = built(one_value(RawText((Literal(")"),), schema, path="tools[0].parameters.properties.v")))

        assert [problem.path for problem in fence.problems] == ["tools[0].parameters.properties.v.format"]

    @pytest.mark.parametrize(
        ("schema", "legal", "illegal"),
        [
            (
                {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "string", "pattern": "^b+$", "maxLength": 2}]},
                ["a", "bb"],
                ["c"],
            ),
            ({"anyOf": [{"type": "string", "const": "a"}, {"type": "null"}]}, ["a"], ["null"]),
            ({"allOf": [{"minLength": 2}, {"pattern": "x"}]}, ["xy", "ax"], ["x)", "ab)"]),
            ({"$ref": "#/$defs/s", "$defs": {"s": {"enum": ["one", 2]}}}, ["one"], ["2"]),
            ({"type": ["string", "null"], "maxLength": 1, "minimum": 3}, ["", "a"], ["ab"]),
            ({"anyOf": [{"enum": ["a"]}, {"type": "string"}]}, ["a", "whatever"], []),
        ],
        ids=str,
    )
    def test_an_unescaped_string_holds_what_its_schema_composes(
        self, schema: dict[str, Any], legal: list[str], illegal: list[str]
    ) -> None:
        held = from_python(schema)
        assert isinstance(held, JsonObject)
        fence = built(one_value(RawText((Literal(")"),), held, path="v")))

        assert fence.problems == ()
        assert [text for text in legal if not reads(fence, f"<tool_call>({text})</tool_call>")] == []
        assert [text for text in illegal if reads(fence, f"<tool_call>({text}")] == []

    def test_an_unescaped_string_that_no_text_satisfies_is_refused(self) -> None:
        schema = from_python({"enum": [1, 2]})
        assert isinstance(schema, JsonObject)

        with pytest.raises(ApiError, match="no string satisfies"):
            built(one_value(RawText((Literal(")"),), schema, path="tools[0].parameters.properties.v")), tools=STRICT)

    def test_keywords_that_say_nothing_are_no_problem(self) -> None:
        schema = {"type": "integer", "title": "N", "x-order": 3, "nullable": False, "default": 1, "uniqueItems": False}

        assert built(one_value(value(schema)), tools=STRICT).problems == ()

    def test_a_closed_object_takes_no_key_of_its_own(self) -> None:
        held = hold_schema(value({"type": "object", "properties": {"a": {}}}).schema, "")

        assert held.schema.get("additionalProperties") is False

    def test_an_object_that_is_composed_stays_open(self) -> None:
        schema = {"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}

        assert reads(built(one_value(value({"type": "object", **schema}))), '<tool_call>({"a": 1, "b": 2}')


def test_a_value_without_rules_ends_at_its_first_closer_of_text() -> None:
    fence = built(one_value(RawText((Literal("</p>"),))))

    assert reads(fence, "<tool_call>(a</p</p></tool_call>")
    assert not reads(fence, "<tool_call>(a</p>b")


def test_alternatives_of_which_one_is_the_beginning_of_another_are_both_legal() -> None:
    """llguidance takes the longest lexeme: unfactored, "x" would be lost to the text that begins with it."""
    either = Choice((Sequence((Literal("x"), JsonString())), Literal('x"y!')))
    fence = built(one_value(either))

    assert reads(fence, '<tool_call>(x"z"</tool_call>')
    assert reads(fence, '<tool_call>(x"y!</tool_call>')
    assert reads(fence, '<tool_call>(x"y"</tool_call>')


class TestManyParameters:
    def tools(self, number: int, required: int = 0) -> Tools:
        names = [f"p{index:02}" for index in range(number)]
        return {"f": {"properties": {name: {"type": "null"} for name in names}, "required": names[:required]}}

    def test_as_many_as_there_are_bits_are_all_held(self) -> None:
        tools = self.tools(MAX_PARAMETERS, MAX_PARAMETERS)
        fence = built(GLM.grammar(tools))
        pair = "<arg_key>{}</arg_key><arg_value>null</arg_value>".format

        assert fence.problems == ()
        written = "".join(pair(name) for name in reversed(tools["f"]["properties"]))
        assert reads(fence, f"<tool_call>f{written}</tool_call>")
        assert not reads(fence, f"<tool_call>f{written.replace(pair('p00'), '')}</tool_call>")

    def test_one_more_is_left_out_and_named(self) -> None:
        fence = built(GLM.grammar(self.tools(MAX_PARAMETERS + 1)))

        assert [problem.path for problem in fence.problems] == ["f"]
        assert "p64" in fence.problems[0].reason
        assert not reads(fence, "<tool_call>f<arg_key>p64")
        assert reads(fence, "<tool_call>f<arg_key>p63</arg_key>")

    def test_one_more_is_an_error_where_it_must_be_held(self) -> None:
        with pytest.raises(ApiError) as refused:
            built(GLM.grammar(self.tools(MAX_PARAMETERS + 1)), policy=FencePolicy.STRICT)
        assert refused.value.param == "f"

        with pytest.raises(ApiError, match="65 required"):
            built(GLM.grammar(self.tools(MAX_PARAMETERS + 1, MAX_PARAMETERS + 1)))


class _Lowering:
    """A tokenizer that changes the text that it encodes."""

    name = "lowering"

    def encode(self, texts: Sequence_[str]) -> list[list[int]]:
        return [list(text.lower().encode("utf-8")) for text in texts]


class TestATokenizerThatBreaksALiteral:
    grammar = one_value(JsonBySchema(JsonObject((("type", "null"),)), "v"))

    def vocabulary(self) -> Vocabulary:
        markers = {"<|im_end|>": 256, "<tool_call>": 257, "</tool_call>": 258}
        pieces = [*(bytes([byte]) for byte in range(256)), *(text.encode() for text in markers)]
        return Vocabulary(pieces, markers, _Lowering())

    def request(self, policy: FencePolicy) -> FenceRequest:
        call = CallGrammar("F", Sequence((Literal("F("), value({"type": "null"}))))
        grammar = ToolGrammar("upper", Marker("<tool_call>"), (call,), closing=Marker("</tool_call>"))
        return FenceRequest(grammar, tool_choice=ToolChoiceRequired(), policy=policy)

    def test_nothing_is_forced_any_more_and_the_masks_stay_exact(self) -> None:
        fence = build_fence(self.request(FencePolicy.LENIENT), FenceCompiler(self.vocabulary()))
        assert fence is not None
        assert "'F('" in fence.problems[0].reason
        for token_id in (257, *b"F(null", 258):
            assert fence.forced() == ()
            assert token_id in ids_of(fence.allowed())  # type: ignore[arg-type]
            fence.advance(token_id)

    def test_the_policy_may_refuse(self) -> None:
        with pytest.raises(ApiError) as refused:
            build_fence(self.request(FencePolicy.STRICT), FenceCompiler(self.vocabulary()))

        assert refused.value.kind is ErrorKind.UNSUPPORTED
