"""What a request may ask for: which tools, which format of the answer, whose reasoning, whose grammar."""

from __future__ import annotations

from typing import ClassVar

import pytest

from tests.fence.layouts import LAYOUTS, Tools
from tests.fence.one_value import COMPILER, GLM, STOPS, built, one_value, reads, spelled
from zllm_ref.canonical.error import ApiError
from zllm_ref.canonical.json_value import JsonObject
from zllm_ref.canonical.request import (
    JsonObjectFormat,
    JsonSchemaFormat,
    ToolChoice,
    ToolChoiceAuto,
    ToolChoiceNamed,
    ToolChoiceRequired,
)
from zllm_ref.fence import FencePolicy, FenceRequest, GuardSettings, Phase, build_fence
from zllm_ref.fence.grammar import (
    CustomText,
    Literal,
    Marker,
    ReasoningGrammar,
    ToolGrammar,
)


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
