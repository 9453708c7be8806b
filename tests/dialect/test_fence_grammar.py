"""What the renderer writes is what the fence admits, token by token."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.dialect.conftest import BYTES
from zllm_ref.canonical.json_value import JsonNumber, JsonObject, from_python, parse_json_object
from zllm_ref.canonical.message import Message, Role, ToolCall
from zllm_ref.canonical.request import FunctionTool, ToolChoiceRequired
from zllm_ref.dialect import dialect_for, encode
from zllm_ref.fence import FenceCompiler, FenceRequest, TokenFence, build_fence
from zllm_ref.fence.grammar import RawText

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "unit": {"type": "string", "enum": ["C", "F"]},
        "deep": {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"], "additionalProperties": False},
    },
    "required": ["city"],
    "additionalProperties": False,
}
PARAMETERS = from_python(SCHEMA)
assert isinstance(PARAMETERS, JsonObject)
WEATHER = FunctionTool("get_weather", None, PARAMETERS)
NOW = FunctionTool("now", None, parse_json_object('{"type": "object", "properties": {}, "additionalProperties": false}'))
TOOLS = (WEATHER, NOW)


@pytest.fixture(scope="module")
def compiler() -> FenceCompiler:
    return FenceCompiler(BYTES)


def fence_for(name: str, compiler: FenceCompiler) -> TokenFence:
    grammar = dialect_for(None, BYTES, name).fence_grammar(TOOLS)
    request = FenceRequest(grammar=grammar, tools=TOOLS, tool_choice=ToolChoiceRequired(), may_open_reasoning=False)
    fence = build_fence(request, compiler)
    assert fence is not None
    assert fence.problems == ()
    return fence


def allowed_ids(fence: TokenFence) -> list[int]:
    forced = fence.forced()
    if forced:
        return [forced[0]]
    mask = fence.allowed()
    if mask is None:
        return list(range(BYTES.size))
    bits = np.unpackbits(np.asarray(mask).view(np.uint8), bitorder="little")
    return [int(token_id) for token_id in np.flatnonzero(bits) if token_id < BYTES.size]


CANONICAL = [
    [("get_weather", '{"city": "Paris"}')],
    [("get_weather", '{"city": " x\\n<b> & \\"q\\" é🜁", "days": 14, "unit": "F", "deep": {"on": true}}')],
    [("get_weather", '{"deep": {"on": false}, "city": ""}'), ("now", "{}"), ("get_weather", '{"city": "[1, 2]"}')],
    [("now", "{}")],
]


@pytest.mark.parametrize("calls", CANONICAL)
def test_every_canonical_rendering_walks_through_the_fence(
    dialect_name: str, calls: list[tuple[str, str]], compiler: FenceCompiler
) -> None:
    dialect = dialect_for(None, BYTES, dialect_name)
    message = Message(Role.ASSISTANT, tuple(ToolCall("c", name, parse_json_object(text)) for name, text in calls))
    fence = fence_for(dialect_name, compiler)

    for place, token_id in enumerate(encode(dialect.render_calls(message), BYTES)):
        assert token_id in allowed_ids(fence), f"token {place}: {BYTES.token_bytes(token_id)!r}; {fence.explain()}"
        fence.advance(token_id)

    assert set(allowed_ids(fence)) & set(dialect.stop_ids)


@pytest.mark.parametrize("name", ["dsml-v3.2", "dsml-v4", "dsml-v4.1"])
@pytest.mark.parametrize("others", [[], [{"type": "string"}]], ids=str)
def test_a_reference_inside_a_choice_is_found_from_the_string_as_well(name: str, others: list[Any]) -> None:
    """Found by a random model: in the string's rules the definitions were gone, and the reference ended nowhere."""
    schema = {
        "type": "object",
        "properties": {"v": {"anyOf": [{"anyOf": [{"$ref": "#/$defs/node"}, *others]}]}, "s": {"$ref": "#/$defs/short"}},
        "$defs": {
            "node": {"type": "object", "properties": {"n": {"type": "integer"}}},
            "short": {"type": "string", "maxLength": 2},
        },
    }
    given = from_python(schema)
    assert isinstance(given, JsonObject)
    dialect = dialect_for(None, BYTES, name)
    tools = (FunctionTool("f", parameters=given, strict=True),)

    fence = build_fence(FenceRequest(dialect.fence_grammar(tools), tools), FenceCompiler(BYTES))

    assert fence is not None
    assert fence.problems == ()


@pytest.mark.parametrize("name", ["dsml-v3.2", "dsml-v4", "dsml-v4.1"])
def test_what_a_reference_says_decides_whether_a_branch_is_one_of_strings(name: str) -> None:
    given = from_python(
        {
            "type": "object",
            "properties": {"v": {"anyOf": [{"$ref": "#/$defs/count"}, {"type": "string", "minLength": 2}]}},
            "$defs": {"count": {"type": "integer"}},
        }
    )
    assert isinstance(given, JsonObject)

    rules = [node.schema for node in raw_texts(dialect_for(None, BYTES, name).fence_grammar((FunctionTool("f", None, given),)))]

    assert rules == [JsonObject((("minLength", JsonNumber("2")),))]


def raw_texts(node: object) -> list[RawText]:
    if isinstance(node, RawText):
        return [node]
    if isinstance(node, tuple):
        return [found for item in node for found in raw_texts(item)]
    if dataclasses.is_dataclass(node):
        return [found for one in dataclasses.fields(node) for found in raw_texts(getattr(node, one.name))]
    return []
