"""A free-form tool's grammar where its input is a JSON string: expressions are held, Lark is the policy's case."""

from __future__ import annotations

import pytest

from zllm_ref.canonical.error import ApiError
from zllm_ref.canonical.request import CustomTool, ToolChoiceRequired
from zllm_ref.dialect import dialect_for
from zllm_ref.fence import FenceCompiler, FencePolicy, FenceRequest, TokenFence, build_fence
from zllm_ref.tokenizer import byte_vocabulary

VOCABULARY = byte_vocabulary()
COMPILER = FenceCompiler(VOCABULARY)
REGEX = CustomTool("run", grammar=("regex", '[a-c]+"?|x\\n'))
LARK = CustomTool("run", grammar=("lark", 'start: "add " /[0-9]+/\n'))
NAMES = ["chatml-hermes", "chatml-qwen2.5", "chatml-qwen3"]


def fence_of(name: str, tool: CustomTool, policy: FencePolicy = FencePolicy.LENIENT) -> TokenFence:
    grammar = dialect_for(None, VOCABULARY, name).fence_grammar((tool,))
    request = FenceRequest(grammar, (tool,), ToolChoiceRequired(), may_open_reasoning=False, policy=policy)
    fence = build_fence(request, COMPILER)
    assert fence is not None
    return fence


def reads(fence: TokenFence, value: str) -> bool:
    text = f'<tool_call>\n{{"name": "run", "arguments": {{"input": {value}}}}}\n</tool_call>'
    ids = VOCABULARY.encode_with_markers(text)
    return fence.legal_prefix(ids) == len(ids)


@pytest.mark.parametrize("name", NAMES)
def test_an_expression_is_held_by_what_the_string_says_however_it_is_escaped(name: str) -> None:
    fence = fence_of(name, REGEX, FencePolicy.STRICT)

    assert fence.problems == ()
    assert [text for text in ('"abc"', '"ab\\""', '"x\\n"') if not reads(fence, text)] == []
    assert [text for text in ('"abd"', '""', '"x"', '"ab\\"c"', '"x\\n "') if reads(fence, text)] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_lark_grammar_is_named_as_not_held_or_refused(name: str) -> None:
    fence = fence_of(name, LARK)

    assert [problem.path for problem in fence.problems] == ["tools[0].parameters.properties.input"]
    assert reads(fence, '"anything"')
    with pytest.raises(ApiError, match="cannot be held inside a JSON string"):
        fence_of(name, LARK, FencePolicy.STRICT)
