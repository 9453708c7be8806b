"""What a request may ask for, what is refused with its path, and what is left to a later validation."""

from __future__ import annotations

import inspect
from collections.abc import Sequence as Sequence_
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.fence.layouts import LAYOUTS, Tools, dsml
from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.json_value import JsonObject, from_python
from zllm_ref.canonical.request import (
    FunctionTool,
    JsonObjectFormat,
    JsonSchemaFormat,
    ToolChoice,
    ToolChoiceAuto,
    ToolChoiceNamed,
    ToolChoiceRequired,
)
from zllm_ref.fence import FenceCompiler, FencePolicy, FenceRequest, GuardSettings, Phase, TokenFence, build_fence
from zllm_ref.fence.grammar import (
    MAX_PARAMETERS,
    CallGrammar,
    Choice,
    CustomText,
    JsonBySchema,
    JsonString,
    Literal,
    Marker,
    Node,
    RawText,
    ReasoningGrammar,
    Sequence,
    ToolGrammar,
)
from zllm_ref.fence.json_schema_fence import hold_schema
from zllm_ref.fence.mask import ids_of
from zllm_ref.runtime.ports import TokenFence as Port
from zllm_ref.tokenizer import Vocabulary, byte_vocabulary

COMPILER = FenceCompiler(byte_vocabulary())
GLM = next(layout for layout in LAYOUTS if layout.name == "glm 4.7")
STOPS = {"<|endoftext|>", "<|im_end|>", "<｜end▁of▁sentence｜>"}


def one_value(node: Node) -> ToolGrammar:
    """A dialect with one tool `f` whose call is `(` value `)`."""
    call = CallGrammar("f", Sequence((Literal("("), node)))
    return ToolGrammar("one value", Marker("<tool_call>"), (call,), closing=Marker("</tool_call>"))


def value(schema: dict[str, Any]) -> JsonBySchema:
    held = from_python(schema)
    assert isinstance(held, JsonObject)
    return JsonBySchema(held, "tools[0].parameters.properties.v")


def built(grammar: ToolGrammar | None, **settings: Any) -> TokenFence:
    fence = build_fence(FenceRequest(grammar, **{"tool_choice": ToolChoiceRequired(), **settings}), COMPILER)
    assert fence is not None
    return fence


def reads(fence: TokenFence, text: str) -> bool:
    """The fence takes all of the text, token by token out of its own masks."""
    ids = fence.plan.vocabulary.encode_with_markers(text)
    return fence.legal_prefix(ids) == len(ids)


def spelled(fence: TokenFence) -> set[str]:
    mask = fence.allowed()
    assert mask is not None
    return {fence.plan.vocabulary.decode([token_id]) for token_id in ids_of(mask)}


STRICT = (FunctionTool("f", strict=True),)
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


class TestChoices:
    tools: ClassVar[Tools] = {"one": {"properties": {}}, "two": {"properties": {}}, "three": {"properties": {}}}

    @pytest.mark.parametrize(
        ("choice", "names"),
        [
            (ToolChoiceRequired(), {"one", "two", "three"}),
            (ToolChoiceRequired(("one", "two")), {"one", "two"}),
            (ToolChoiceNamed("three"), {"three"}),
            (ToolChoiceAuto(), {"one", "two", "three"}),
            (ToolChoiceAuto(("two",)), {"two"}),
        ],
        ids=str,
    )
    def test_only_the_chosen_tools_can_be_called(self, choice: ToolChoice, names: set[str]) -> None:
        fence = built(GLM.grammar(self.tools), tool_choice=choice)

        assert {name for name in self.tools if reads(fence, f"<tool_call>{name}</tool_call>")} == names

    @pytest.mark.parametrize(
        "choice", [ToolChoiceNamed("four"), ToolChoiceRequired(("one", "four")), ToolChoiceAuto(("four",))], ids=str
    )
    def test_a_tool_that_is_not_there_cannot_be_chosen(self, choice: ToolChoice) -> None:
        with pytest.raises(ApiError) as refused:
            built(GLM.grammar(self.tools), tool_choice=choice)

        assert refused.value.param == "tool_choice"

    def test_a_call_cannot_be_required_without_tools(self) -> None:
        with pytest.raises(ApiError, match="only with tools"):
            built(GLM.grammar({}))

    def test_auto_without_candidates_is_text_without_a_trigger(self) -> None:
        fence = built(GLM.grammar(self.tools), tool_choice=ToolChoiceAuto(()))

        assert "<tool_call>" not in spelled(fence)

    def test_named_is_one_call(self) -> None:
        fence = built(GLM.grammar(self.tools), tool_choice=ToolChoiceNamed("one"))

        assert not reads(fence, "<tool_call>one</tool_call><tool_call>")


class TestFormatsOfTheAnswer:
    schema = JsonObject(
        (("type", "object"), ("properties", JsonObject((("n", JsonObject((("type", "integer"),))),))), ("required", ("n",)))
    )

    def test_nothing_asked_is_no_fence(self) -> None:
        assert build_fence(FenceRequest(), COMPILER) is None

    def test_a_guard_alone_masks_nothing(self) -> None:
        fence = build_fence(FenceRequest(), COMPILER, GuardSettings())
        assert fence is not None

        fence.advance(ord("a"))

        assert fence.allowed() is None
        assert fence.forced() == ()

    def test_a_json_object_is_one_from_the_first_token_to_the_last(self) -> None:
        fence = built(None, tool_choice=ToolChoiceAuto(), response_format=JsonObjectFormat())

        assert spelled(fence) == {"{"}
        for byte in b'{"a": [1, {}]}':
            fence.advance(byte)
        assert spelled(fence) == STOPS

    def test_a_schema_is_held(self) -> None:
        fence = built(None, tool_choice=ToolChoiceAuto(), response_format=JsonSchemaFormat("x", self.schema, strict=True))

        assert reads(fence, '{"n": 12}<|im_end|>')
        assert not reads(fence, '{"n": "')
        assert not reads(fence, "{}")

    def test_a_strict_schema_that_cannot_be_held_is_refused_with_its_path(self) -> None:
        schema = JsonObject((("not", JsonObject()),))
        with pytest.raises(ApiError) as refused:
            built(None, tool_choice=ToolChoiceAuto(), response_format=JsonSchemaFormat("x", schema, strict=True))

        assert refused.value.param == "response_format.json_schema.schema.not"

    def test_behind_reasoning_comes_the_format(self) -> None:
        reasoning = ReasoningGrammar(Marker("</think>"), after_close="\n\n")
        fence = built(
            None,
            tool_choice=ToolChoiceAuto(),
            response_format=JsonObjectFormat(),
            reasoning=reasoning,
            starts_in_reasoning=True,
        )

        assert fence.phase is Phase.REASONING
        assert reads(fence, "so</think>\n\n{}<|im_end|>")
        assert not reads(fence, "so</think>x")

    def test_with_tools_the_answer_is_a_call_or_the_format(self) -> None:
        grammar = GLM.grammar({"f": {"properties": {}}})
        fence = built(grammar, tool_choice=ToolChoiceAuto(), response_format=JsonObjectFormat())

        assert spelled(fence) == {"{", "<tool_call>"}
        assert reads(fence, "<tool_call>f</tool_call><|user|>")


class TestReasoningThatTheModelOpens:
    """GLM 4.5: the prompt leaves it to the model."""

    tools: ClassVar[Tools] = {"f": {"properties": {}}}

    def grammar(self) -> ToolGrammar:
        glm = next(layout for layout in LAYOUTS if layout.name == "glm 4.5").grammar(self.tools)
        reasoning = ReasoningGrammar(Marker("</think>"), opens_with=(Literal("\n"), Marker("<think>")))
        return ToolGrammar(
            glm.revision,
            glm.trigger,
            glm.calls,
            lead="\n",
            between=glm.between,
            stop_markers=glm.stop_markers,
            reasoning=reasoning,
        )

    @pytest.mark.parametrize("choice", [ToolChoiceAuto(), ToolChoiceRequired()], ids=str)
    def test_it_may_open_it_at_the_beginning_or_not(self, choice: ToolChoice) -> None:
        fence = built(self.grammar(), tool_choice=choice)

        assert reads(fence, "\n<think>so</think>\n<tool_call>f\n</tool_call><|user|>")
        assert reads(fence, "\n<tool_call>f\n</tool_call><|user|>")

    def test_later_it_may_not(self) -> None:
        fence = built(self.grammar(), tool_choice=ToolChoiceAuto())

        assert not reads(fence, "a\n<think>")
        assert reads(fence, "a\n<tool_call>")

    def test_where_thinking_is_off_it_may_not(self) -> None:
        fence = built(self.grammar(), tool_choice=ToolChoiceAuto(), may_open_reasoning=False)

        assert not reads(fence, "\n<think>")


class TestCustomTools:
    def test_a_regular_expression_is_held(self) -> None:
        fence = built(one_value(CustomText("regex", "[0-9]{3}(-[a-z]+)?", (Marker("</arg_value>"),))))

        assert reads(fence, "<tool_call>(123-ab</arg_value></tool_call>")
        assert not reads(fence, "<tool_call>(12</arg_value>")

    def test_a_lark_grammar_is_held(self) -> None:
        definition = 'start: "add " NUMBER ("," NUMBER)*\nNUMBER: /[0-9]+/\n'
        fence = built(one_value(CustomText("lark", definition, (Literal("</"), Marker("｜DSML｜"), Literal(">")))))

        assert reads(fence, "<tool_call>(add 1,22</｜DSML｜></tool_call>")
        assert not reads(fence, "<tool_call>(add </")

    def test_a_broken_grammar_is_reported_and_the_text_left_free(self) -> None:
        node = CustomText("lark", "start: (", (Marker("</arg_value>"),), path="tools[0].format.definition")
        fence = built(one_value(node))

        assert [problem.path for problem in fence.problems] == ["tools[0].format.definition"]
        assert reads(fence, "<tool_call>(anything</arg_value></tool_call>")
        with pytest.raises(ApiError):
            built(one_value(node), policy=FencePolicy.STRICT)


class TestCompiler:
    def test_the_same_grammar_is_compiled_once(self) -> None:
        compiler = FenceCompiler(byte_vocabulary())
        tools: Tools = {"f": {"properties": {"a": {"type": "string"}}}}
        root = dsml("tool_calls").grammar(tools).calls[0].node
        again = dsml("tool_calls").grammar(tools).calls[0].node

        assert compiler.region(root, (256,)) is compiler.region(again, (256,))
        assert compiler.region(root, (256,)) is not compiler.region(root, (258,))

    def test_the_least_recently_used_goes_first(self) -> None:
        compiler = FenceCompiler(byte_vocabulary(), capacity=2)
        first = compiler.region(Literal("a"), (256,))
        compiler.region(Literal("b"), (256,))
        assert compiler.region(Literal("a"), (256,)) is first

        compiler.region(Literal("c"), (256,))

        assert compiler.region(Literal("a"), (256,)) is first

    def test_a_vocabulary_without_an_end_cannot_be_fenced(self) -> None:
        vocabulary = byte_vocabulary(("<tool_call>", "</tool_call>"))

        with pytest.raises(ApiError, match="ends a turn"):
            build_fence(FenceRequest(one_value(value({}))), FenceCompiler(vocabulary))


@pytest.mark.parametrize("name", ["allowed", "forced", "advance", "clone", "rollback", "explain"])
def test_the_fence_has_the_shape_that_the_runtime_asks_for(name: str) -> None:
    asked = inspect.signature(getattr(Port, name))
    given = inspect.signature(getattr(TokenFence, name))

    assert list(given.parameters) == list(asked.parameters)


def test_masks_are_words_of_the_vocabulary_and_the_same_array_for_the_same_state() -> None:
    fence = built(GLM.grammar({"f": {"properties": {}}}), tool_choice=ToolChoiceAuto())
    first = fence.allowed()
    fence.advance(ord("a"))

    assert first is not None
    assert first.dtype == np.int32
    assert first.shape == (-(-COMPILER.vocabulary.size // 32),)
    assert fence.allowed() is first


def test_no_end_of_the_turn_while_a_structure_is_open() -> None:
    fence = built(GLM.grammar({"f": {"properties": {"a": {"type": "string"}}}}))
    for token_id in COMPILER.vocabulary.encode_with_markers(
        "<tool_call>f<arg_key>a</arg_key><arg_value>x</arg_value></tool_call>"
    ):
        for stop in fence.plan.stop_ids:
            assert stop not in ids_of(fence.allowed())  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="not allowed here"):
                fence.advance(stop)
        fence.advance(token_id)

    fence.advance(fence.plan.stop_ids[0])
    assert fence.phase is Phase.END


def test_a_long_region_keeps_only_its_last_masks() -> None:
    fence = built(one_value(RawText((Marker("</arg_value>"),))))
    for token_id in COMPILER.vocabulary.encode_with_markers("<tool_call>(" + "abc" * 200):
        fence.advance(token_id)
        fence.allowed()

    step = fence._phases._state.step
    kept = 0
    while step is not None:
        kept += step.mask is not None
        step = step.parent
    assert 1 <= kept <= 64


def test_a_token_that_is_not_allowed_is_refused_and_changes_nothing() -> None:
    fence = built(GLM.grammar({"f": {"properties": {}}}))

    with pytest.raises(ValueError, match="not allowed here"):
        fence.advance(ord("x"))

    assert reads(fence, "<tool_call>f</tool_call><|user|>")


def test_more_cannot_be_taken_back_than_was_advanced() -> None:
    fence = built(GLM.grammar({"f": {"properties": {}}}))
    fence.advance(fence.forced()[0])
    fence.rollback(1)

    with pytest.raises(ValueError, match="no more than were advanced"):
        fence.rollback(1)
