"""A value that no text satisfies is noticed when the fence is built: no dialect's masks lead to where nothing is allowed."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.fence.vocabularies import text_mode_vocabulary
from zllm_ref.canonical.error import ApiError
from zllm_ref.canonical.json_value import JsonObject, from_python
from zllm_ref.canonical.request import FunctionTool, ToolChoiceRequired
from zllm_ref.dialect import dialect_for
from zllm_ref.dialect.definitions import DEFINITIONS
from zllm_ref.fence import FenceCompiler, FenceRequest, Phase, TokenFence, build_fence
from zllm_ref.fence.mask import ids_of
from zllm_ref.tokenizer import Vocabulary, byte_vocabulary

VOCABULARIES = {"bytes": byte_vocabulary(), "text mode": text_mode_vocabulary()}
COMPILERS = {name: FenceCompiler(vocabulary) for name, vocabulary in VOCABULARIES.items()}
NO_STRING: list[dict[str, Any]] = [
    {"type": "string", "pattern": "^ab$", "minLength": 3},
    {"type": "string", "pattern": "^ab$", "maxLength": 1},
    {"type": "string", "enum": ["a"], "pattern": "^b$"},
    {"type": "string", "minLength": 3, "maxLength": 2},
    {"type": "string", "pattern": "^[^\\s\\S]$"},
    {"type": "string", "enum": []},
    {"allOf": [{"type": "string", "const": "a"}, {"type": "string", "const": "b"}]},
]
NO_VALUE: list[dict[str, Any]] = [
    {"type": "integer", "minimum": 5, "maximum": 3},
    {"type": "integer", "enum": ["a"]},
    {"type": "array", "items": {"type": "string"}, "minItems": 3, "maxItems": 1},
    {"type": "object", "properties": {"x": {"enum": []}}, "required": ["x"]},
    {"anyOf": [{"enum": []}, {"type": "integer", "minimum": 5, "maximum": 3}]},
]


def fence_of(dialect: str, vocabulary: str, schema: dict[str, Any], *, strict: bool) -> TokenFence:
    properties = {"p": schema, "q": {"type": "boolean"}}
    parameters = from_python({"type": "object", "properties": properties})
    assert isinstance(parameters, JsonObject)
    tool = FunctionTool("f", None, parameters, strict=strict)
    ready = dialect_for(None, VOCABULARIES[vocabulary], dialect).fence_grammar((tool,))
    request = FenceRequest(ready, (tool,), ToolChoiceRequired(), parallel_tool_calls=False, may_open_reasoning=False)
    fence = build_fence(request, COMPILERS[vocabulary])
    assert fence is not None
    return fence


def walk(fence: TokenFence, vocabulary: Vocabulary, seed: int) -> str:
    """Tokens drawn from the masks, to the end or 200 of them; raises where a mask holds nothing that may come."""
    chance = random.Random(seed)
    ids: list[int] = []
    while fence.phase is not Phase.END and len(ids) < 200:
        mask = fence.allowed()
        assert mask is not None
        allowed = ids_of(mask)
        assert len(allowed), vocabulary.decode(ids)
        ids.append(chance.choice(allowed))
        fence.advance(ids[-1])
    return vocabulary.decode(ids)


@pytest.mark.parametrize("schema", [*NO_STRING, *NO_VALUE], ids=str)
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("dialect", sorted(DEFINITIONS))
def test_a_value_that_cannot_be_is_named_and_never_a_dead_end(dialect: str, vocabulary: str, schema: dict[str, Any]) -> None:
    fence = fence_of(dialect, vocabulary, schema, strict=False)

    texts = [walk(fence.clone(), VOCABULARIES[vocabulary], seed) for seed in range(6)]

    assert any("p" in text for text in texts)
    assert {problem.path for problem in fence.problems} == {"tools[0].parameters.properties.p"}
    with pytest.raises(ApiError) as refused:
        fence_of(dialect, vocabulary, schema, strict=True)
    assert refused.value.param == "tools[0].parameters.properties.p"


CLOSERS = {
    "dsml-v3.2": "</｜DSML｜parameter>",
    "dsml-v4": "</｜DSML｜parameter>",
    "dsml-v4.1": "</｜DSML｜ parameter>",
    "glm-4.5": "</arg_value>",
    "glm-4.7": "</arg_value>",
    "qwen3-coder": "\n</parameter>",
}


@pytest.mark.parametrize("dialect", sorted(CLOSERS))
def test_a_value_that_could_only_be_its_own_closer_is_noticed_in_text_mode(dialect: str) -> None:
    fence = fence_of(dialect, "text mode", {"type": "string", "enum": [f"x{CLOSERS[dialect]}y"]}, strict=False)

    for seed in range(12):
        walk(fence.clone(), VOCABULARIES["text mode"], seed)
    assert [problem.path for problem in fence.problems] == ["tools[0].parameters.properties.p"]
