"""The fence as the runtime meets it, and the compiler behind it."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from tests.fence.layouts import Tools, dsml
from tests.fence.one_value import COMPILER, GLM, built, one_value, reads, value
from zllm_ref.canonical.error import ApiError
from zllm_ref.canonical.request import (
    ToolChoiceAuto,
)
from zllm_ref.fence import FenceCompiler, FenceRequest, Phase, TokenFence, build_fence
from zllm_ref.fence.grammar import (
    Choice,
    Literal,
    Marker,
    RawText,
)
from zllm_ref.fence.lark import write_lark
from zllm_ref.fence.mask import ids_of
from zllm_ref.runtime.ports import TokenFence as Port
from zllm_ref.tokenizer import byte_vocabulary


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


def test_calm_tokens_that_were_taken_back_are_gone() -> None:
    """Told and untold tokens are taken back apart; taking some back leaves the count of the untold ones right."""
    fence = built(GLM.grammar({"f": {"properties": {}}}), tool_choice=ToolChoiceAuto())
    trigger = fence.plan.vocabulary.markers["<tool_call>"]
    for token_id in (*b"abc", trigger):
        fence.advance(token_id)
    assert fence.phase is Phase.REGION

    fence.rollback(1)
    assert fence.phase is Phase.TEXT
    fence.rollback(2)
    with pytest.raises(ValueError, match="no more than were advanced"):
        fence.rollback(2)
    fence.rollback(1)

    with pytest.raises(ValueError, match="no more than were advanced"):
        fence.rollback(1)
    for token_id in (*b"xy", trigger):
        fence.advance(token_id)
    assert fence.phase is Phase.REGION


def test_every_kind_of_value_and_every_parameter_stands_in_the_grammar_once() -> None:
    """However many parameters hold it: a lexeme more is work for every mask, and for the first one most of all."""
    texts = {"properties": {"first": {"type": "string"}, "second": {"type": "string"}}, "required": ["first"]}
    grammar = dsml("tool_calls").grammar({"f": texts, "g": texts})
    calls = Choice(tuple(call.node for call in grammar.calls))

    text = write_lark(calls, byte_vocabulary().marker_id).text

    assert text.count("/(?s:.*)/") == 1
    assert (text.count("first"), text.count("second")) == (2, 2)  # of two tools
