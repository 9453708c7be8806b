"""Failures that others reported, as situations of the fence: what may come next, and what may not."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from tests.fence.layouts import LAYOUTS, Layout, Tools
from tests.fence.vocabularies import MARKERS, text_mode_vocabulary, trained_vocabulary
from zllm_ref.canonical.json_value import JsonObject
from zllm_ref.canonical.request import ToolChoice, ToolChoiceAuto, ToolChoiceNone, ToolChoiceRequired
from zllm_ref.fence import FenceCompiler, FenceRequest, Phase, TokenFence, build_fence
from zllm_ref.fence.grammar import CallGrammar, JsonBySchema, Literal, Marker, Sequence, ToolGrammar
from zllm_ref.fence.mask import ids_of
from zllm_ref.tokenizer import Vocabulary, byte_vocabulary
from zllm_ref.tokenizer.byte_vocabulary import ByteEncoder

COMPILER = FenceCompiler(byte_vocabulary())
BY_NAME = {layout.name: layout for layout in LAYOUTS}
GLM, DSML, CHATML, CODER = BY_NAME["glm 4.7"], BY_NAME["dsml tool_calls"], BY_NAME["chatml"], BY_NAME["qwen3-coder"]
GLM_STOPS = {"<|endoftext|>", "<|user|>", "<|observation|>"}


def function(**properties: Any) -> dict[str, Any]:
    required = [name for name, schema in properties.items() if schema.pop("required", True)]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def fence_after(
    layout: Layout, tools: Tools, text: str, choice: ToolChoice | None = None, compiler: FenceCompiler = COMPILER, **settings: Any
) -> TokenFence:
    request = FenceRequest(layout.grammar(tools), tool_choice=choice or ToolChoiceRequired(), **settings)
    fence = build_fence(request, compiler)
    assert fence is not None
    for token_id in compiler.vocabulary.encode_with_markers(text):
        fence.advance(token_id)
    return fence


def spelled(fence: TokenFence) -> set[str]:
    mask = fence.allowed()
    assert mask is not None
    vocabulary = fence.plan.vocabulary
    return {vocabulary.decode([token_id]) for token_id in ids_of(mask)}


def forced(fence: TokenFence) -> str:
    return fence.plan.vocabulary.decode(list(fence.forced()))


class TestRequiredHasAWayToEnd:
    """A model under `required` must be able to stop."""

    tools: ClassVar[Tools] = {"list_rooms": function()}

    def test_no_stop_id_before_the_first_call(self) -> None:
        assert spelled(fence_after(GLM, self.tools, "")) == {"<tool_call>"}

    def test_every_stop_id_and_another_call_behind_a_call(self) -> None:
        fence = fence_after(GLM, self.tools, "<tool_call>list_rooms</tool_call>")

        assert spelled(fence) >= {*GLM_STOPS, "<tool_call>"}
        assert spelled(fence) <= {*GLM_STOPS, "<tool_call>", "<|im_end|>", "<｜end▁of▁sentence｜>"}

    def test_no_other_call_where_calls_are_not_parallel(self) -> None:
        fence = fence_after(GLM, self.tools, "<tool_call>list_rooms</tool_call>", parallel_tool_calls=False)

        assert "<tool_call>" not in spelled(fence)
        assert spelled(fence) >= GLM_STOPS

    @pytest.mark.parametrize("most", [1, 3, 8, 40])
    def test_a_model_that_always_calls_again_meets_the_limit(self, most: int) -> None:
        before = fence_after(GLM, self.tools, "<tool_call>list_rooms</tool_call>" * (most - 1), max_calls=most)
        at_last = fence_after(GLM, self.tools, "<tool_call>list_rooms</tool_call>" * most, max_calls=most)

        assert "<tool_call>" in spelled(before)
        assert "<tool_call>" not in spelled(at_last)
        assert spelled(at_last) >= GLM_STOPS


class TestNoWhitespaceLoop:
    """A model that loves blanks must not fill a call with them."""

    tools: ClassVar[Tools] = {
        "add": function(a={"type": "integer"}, b={"type": "integer"}),
        "say": function(text={"type": "string"}),
    }

    def test_only_one_blank_goes_on_between_arguments(self) -> None:
        fence = fence_after(CHATML, self.tools, '<tool_call>\n{"name": "add", "arguments": {"a": 1,')

        assert spelled(fence) == {" "}

    def test_no_blank_behind_the_blank(self) -> None:
        fence = fence_after(CHATML, self.tools, '<tool_call>\n{"name": "add", "arguments": {"a": 1, ')

        assert forced(fence) == '"b": '

    def test_long_blank_tokens_are_masked_where_one_blank_goes_on(self) -> None:
        compiler = FenceCompiler(trained_vocabulary())
        fence = fence_after(CHATML, self.tools, '<tool_call>\n{"name": "add", "arguments": {"a": 1,', compiler=compiler)

        assert all(text.strip() or text == " " for text in spelled(fence))

    def test_blanks_inside_a_string_stay_legal(self) -> None:
        fence = fence_after(CHATML, self.tools, '<tool_call>\n{"name": "say", "arguments": {"text": "a')

        assert " " in spelled(fence)


def test_the_end_of_reasoning_inside_a_draft_changes_the_rows_behind_it() -> None:
    """After every accepted length the state is that of single advances; the brace is never doubled."""
    tools: ClassVar[Tools] = {"add": function(a={"type": "integer"})}
    vocabulary = COMPILER.vocabulary
    draft = vocabulary.encode_with_markers(
        'so be it</think>\n\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    )
    fence = fence_after(CHATML, tools, "", starts_in_reasoning=True)

    rows = []
    probe = fence.clone()
    for token_id in draft:
        rows.append((probe.phase, probe.allowed(), tuple(probe.forced())))
        probe.advance(token_id)

    assert fence.phase is Phase.REASONING, "a probe moves nothing"
    assert "<tool_call>" not in spelled(fence), "no call inside the reasoning"
    for accepted, row in enumerate(rows):
        alone = fence_after(CHATML, tools, "", starts_in_reasoning=True)
        for token_id in draft[:accepted]:
            alone.advance(token_id)
        assert (alone.phase, tuple(alone.forced())) == (row[0], row[2])
        assert alone.allowed().tobytes() == row[1].tobytes()  # type: ignore[union-attr]
    behind_opener = draft.index(vocabulary.marker_id("<tool_call>") or -1) + 1
    assert vocabulary.decode(list(rows[behind_opener][2])) == '\n{"name": "add", "arguments": {"a": '


class TestTriggerOfText:
    """Tokens that complete the trigger and carry more bytes."""

    pieces = ("=", "=list", "=lists", "=x", ">", "_files", "read_file", "<function", "<", "\n")

    def compiler(self) -> FenceCompiler:
        markers = ("<|im_end|>",)
        texts = [bytes([byte]) for byte in range(256)] + [piece.encode() for piece in self.pieces if len(piece) > 1]
        ids = {marker: len(texts) + index for index, marker in enumerate(markers)}
        return FenceCompiler(Vocabulary([*texts, *(m.encode() for m in markers)], ids, ByteEncoder()))

    def grammar(self) -> ToolGrammar:
        calls = tuple(CallGrammar(name, Literal(f"{name}>\n</function>")) for name in ("list_files", "read_file"))
        return ToolGrammar("text trigger", Literal("<function="), calls, lead="<tool_call>\n", stop_markers=("<|im_end|>",))

    def test_an_overrun_is_legal_exactly_where_the_region_begins_so(self) -> None:
        compiler = self.compiler()
        fence = build_fence(FenceRequest(self.grammar()), compiler)
        assert fence is not None
        for byte in b"<tool_call>\n<function":
            fence.advance(byte)

        texts = spelled(fence)

        assert {"=", "=list", ">"} <= texts
        assert "=lists" not in texts
        assert "=x" not in texts

    def test_the_state_behind_the_overrun_is_inside_the_name(self) -> None:
        compiler = self.compiler()
        vocabulary = compiler.vocabulary
        fence = build_fence(FenceRequest(self.grammar()), compiler)
        assert fence is not None
        for byte in b"see <function":
            fence.advance(byte)

        fence.advance(256)  # "=list"

        assert vocabulary.token_bytes(256) == b"=list"
        assert fence.phase is Phase.REGION
        assert forced(fence).startswith("_files>")

    def test_an_illegal_overrun_is_refused(self) -> None:
        fence = build_fence(FenceRequest(self.grammar()), self.compiler())
        assert fence is not None
        for byte in b"<function":
            fence.advance(byte)

        with pytest.raises(ValueError, match="=lists"):
            fence.advance(257)

    def test_a_false_start_of_the_trigger_is_text(self) -> None:
        fence = build_fence(FenceRequest(self.grammar()), self.compiler())
        assert fence is not None
        for byte in b"<function <func<function":
            fence.advance(byte)

        assert fence.phase is Phase.TEXT
        assert "=x" not in spelled(fence)

    def test_none_masks_whatever_would_complete_the_trigger(self) -> None:
        fence = build_fence(FenceRequest(self.grammar(), tool_choice=ToolChoiceNone()), self.compiler())
        assert fence is not None
        for byte in b"<function":
            fence.advance(byte)

        assert {"=", "=list"} & spelled(fence) == set()
        assert ">" in spelled(fence)


class TestTypeAttributeFollowsTheSchema:
    """The attribute that says whether a value is a string is not the model's to choose."""

    tools: ClassVar[Tools] = {"set": function(flag={"type": "boolean"}, label={"type": "string"})}
    head = '\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="set">\n<｜DSML｜parameter name="'

    def test_a_boolean_is_no_string(self) -> None:
        fence = fence_after(DSML, self.tools, self.head + 'flag" string="')

        assert forced(fence) == 'false">'

    def test_a_string_is_one(self) -> None:
        assert forced(fence_after(DSML, self.tools, self.head + 'label" string="')) == 'true">'

    def test_a_boolean_is_true_or_false(self) -> None:
        assert spelled(fence_after(DSML, self.tools, self.head + 'flag" string="false">')) == {"t", "f"}


class TestNoNearMisses:
    """Markup that almost is the dialect's."""

    tools: ClassVar[Tools] = {"note": function(text={"type": "string"})}

    def test_the_trigger_stands_only_behind_its_bracket(self) -> None:
        assert "｜DSML｜" not in spelled(fence_after(DSML, self.tools, "so", ToolChoiceAuto()))
        assert "｜DSML｜" not in spelled(fence_after(DSML, self.tools, "</", ToolChoiceAuto()))
        assert "｜DSML｜" in spelled(fence_after(DSML, self.tools, "a <", ToolChoiceAuto()))

    def test_only_the_block_follows_the_trigger(self) -> None:
        assert forced(fence_after(DSML, self.tools, "\n\n<｜DSML｜", ToolChoiceAuto())).startswith("tool_calls>\n")

    def test_inside_a_value_the_marker_stands_only_in_the_closer(self) -> None:
        value = '\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="note">\n<｜DSML｜parameter name="text" string="true">hi'

        assert "｜DSML｜" not in spelled(fence_after(DSML, self.tools, value))
        assert "｜DSML｜" not in spelled(fence_after(DSML, self.tools, value + "<"))
        assert "｜DSML｜" in spelled(fence_after(DSML, self.tools, value + "</"))
        assert forced(fence_after(DSML, self.tools, value + "</｜DSML｜")).startswith("parameter>\n</｜DSML｜invoke>")

    def test_no_other_marker_stands_in_a_value_or_in_text(self) -> None:
        glm = fence_after(GLM, self.tools, "<tool_call>note<arg_key>text</arg_key><arg_value>a </arg_value")
        text = fence_after(GLM, self.tools, "a", ToolChoiceAuto())

        assert set(MARKERS) & spelled(glm) == {"</arg_value>"}
        assert set(MARKERS) & spelled(text) == {*GLM_STOPS, "<tool_call>", "<|im_end|>", "<｜end▁of▁sentence｜>"}


def test_no_call_opens_inside_the_reasoning() -> None:
    """A call that is only thought of is no call."""
    fence = fence_after(CHATML, {"add": function()}, "I should ", ToolChoiceAuto(), starts_in_reasoning=True)

    assert "<tool_call>" not in spelled(fence)
    assert "</think>" in spelled(fence)
    assert "<|im_end|>" not in spelled(fence), "no end while the reasoning is open"


class TestEachParameterOnce:
    """A parameter that is written twice."""

    tools: ClassVar[Tools] = {"move": function(x={"type": "integer"}, y={"type": "integer"})}

    def x(self, name: str) -> str:
        return f"<arg_key>{name}</arg_key><arg_value>1</arg_value>"

    def test_a_parameter_that_was_written_is_no_key_any_more(self) -> None:
        fence = fence_after(GLM, self.tools, f"<tool_call>move{self.x('x')}")

        assert spelled(fence) == {"<arg_key>"}
        assert forced(fence).startswith("<arg_key>y</arg_key><arg_value>")

    @pytest.mark.parametrize("order", ["xy", "yx"])
    def test_both_orders_are_legal(self, order: str) -> None:
        fence = fence_after(GLM, self.tools, "<tool_call>move" + "".join(map(self.x, order)))

        assert spelled(fence) == {"</tool_call>"}


class TestSpelledMarkers:
    """A vocabulary without ids for the markers: everything is text."""

    compiler = FenceCompiler(text_mode_vocabulary())
    tools: ClassVar[Tools] = {"note": function(text={"type": "string"})}

    def test_the_spelled_trigger_opens_the_region(self) -> None:
        fence = fence_after(CHATML, self.tools, "I call <tool_call>", ToolChoiceAuto(), self.compiler)

        assert fence.phase is Phase.REGION
        assert forced(fence) == '\n{"name": "note", "arguments": {"text": "'

    def test_the_spelled_end_of_reasoning_closes_it(self) -> None:
        fence = fence_after(GLM, self.tools, "so</think><tool_call>note", None, self.compiler, starts_in_reasoning=True)

        assert forced(fence) == "<arg_key>text</arg_key><arg_value>"

    def test_a_value_ends_at_its_first_closer(self) -> None:
        value = "<tool_call>note<arg_key>text</arg_key><arg_value>a </arg_value"

        assert ">" in spelled(fence_after(GLM, self.tools, value, None, self.compiler))
        assert forced(fence_after(GLM, self.tools, value + ">", None, self.compiler)) == "</tool_call>"


def test_a_value_of_a_text_closer_cannot_hold_what_it_excludes() -> None:
    tools: ClassVar[Tools] = {"note": function(text={"type": "string"})}
    head = "\n\n<tool_call>\n<function=note>\n<parameter=text>\n"

    assert ">" not in spelled(fence_after(CODER, tools, head + "a</parameter"))
    assert ">" in spelled(fence_after(CODER, tools, head + "a\n</parameter"))
    assert forced(fence_after(CODER, tools, head + "a\n</parameter>")).startswith("\n</function>\n</tool_call>")


def test_none_keeps_the_trigger_out() -> None:
    fence = fence_after(GLM, {"note": function()}, "a", ToolChoiceNone())

    assert "<tool_call>" not in spelled(fence)
    assert "b" in spelled(fence)


def test_alternatives_that_begin_alike_are_all_reachable() -> None:
    """llguidance takes the longest lexeme: without factoring "\\n" is lost to "\\n</"."""
    call = Sequence((Literal("<"), Marker("｜DSML｜"), JsonBySchema(JsonObject((("type", "integer"),))), Literal(">")))
    grammar = ToolGrammar(
        "alike",
        Marker("<tool_call>"),
        (CallGrammar("f", call),),
        between=Literal("\n"),
        closing=Sequence((Literal("\n<"), Marker("</tool_call>"))),
    )
    request = FenceRequest(grammar, tool_choice=ToolChoiceRequired())
    fence = build_fence(request, COMPILER)
    assert fence is not None
    for token_id in COMPILER.vocabulary.encode_with_markers("<tool_call><｜DSML｜12>\n<"):
        fence.advance(token_id)

    assert spelled(fence) == {"｜DSML｜", "</tool_call>"}
