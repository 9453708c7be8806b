"""The nine dialects under the fence: what noise says is read by the dialect's own strict parser as legal calls, nothing else."""

from __future__ import annotations

import json
import random

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fence import lanes, schemas
from tests.fence.layouts import Tools
from tests.fence.vocabularies import trained_vocabulary
from zllm_ref.canonical.json_value import JsonObject, from_python, to_python
from zllm_ref.canonical.request import FunctionTool, ToolChoice, ToolChoiceAuto, ToolChoiceNamed, ToolChoiceRequired
from zllm_ref.dialect.definitions import DEFINITIONS
from zllm_ref.dialect.event import CallFinished, CallStarted, Diagnostic
from zllm_ref.dialect.registry import RENDERERS
from zllm_ref.dialect.tool_dialect import ToolDialect
from zllm_ref.fence import FenceCompiler, FenceRequest, GuardSettings, TokenFence, build_fence
from zllm_ref.fence.grammar import Marker
from zllm_ref.tokenizer import Detokenizer, Vocabulary, byte_vocabulary

COMPILERS = {"bytes": FenceCompiler(byte_vocabulary()), "trained": FenceCompiler(trained_vocabulary())}
SAID = "Let me see."


def canonical(tools: Tools) -> tuple[FunctionTool, ...]:
    made = []
    for name, schema in tools.items():
        value = from_python(schema)
        assert isinstance(value, JsonObject)
        made.append(FunctionTool(name.replace(".", "_"), parameters=value))
    return tuple(made)


def begin(
    dialect: ToolDialect, tools: tuple[FunctionTool, ...], choice: ToolChoice, compiler: FenceCompiler, reasoning: bool
) -> tuple[TokenFence, list[int]]:
    grammar = dialect.fence_grammar(tools)
    starts = reasoning and grammar.reasoning is not None
    request = FenceRequest(grammar, tools, choice, starts_in_reasoning=starts, may_open_reasoning=False, max_calls=3)
    fence = build_fence(request, compiler, GuardSettings(value_budget=12, call_budget=200, reasoning_budget=8))
    assert fence is not None
    said: list[int] = []
    if isinstance(choice, ToolChoiceAuto):  # noise would hardly ever hit the trigger
        assert isinstance(grammar.trigger, Marker)
        end = grammar.reasoning.close.name if starts and grammar.reasoning is not None else ""
        said = compiler.vocabulary.encode_with_markers(end + SAID + grammar.lead + grammar.trigger.name)
        for token_id in said:
            fence.advance(token_id)
    return fence, said


@given(
    st.sampled_from(sorted(DEFINITIONS)),
    st.sampled_from(sorted(COMPILERS)),
    schemas.tools,
    st.sampled_from(["auto", "required", "named"]),
    st.sampled_from(["plain", "batch", "speculative"]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_the_strict_parser_reads_what_noise_says_as_legal_calls(
    name: str, kind: str, tools: Tools, choice_name: str, path: str, reasoning: bool, seed: int
) -> None:
    compiler = COMPILERS[kind]
    vocabulary = compiler.vocabulary
    dialect = ToolDialect(DEFINITIONS[name], RENDERERS[name], vocabulary)
    functions = canonical(tools)
    choice: ToolChoice = ToolChoiceAuto() if choice_name == "auto" else ToolChoiceRequired()
    if choice_name == "named":
        choice = ToolChoiceNamed(functions[0].name)

    fence, said = begin(dialect, functions, choice, compiler, reasoning)
    if path == "plain":
        ids = lanes.plain(fence, vocabulary.size, seed)
    elif path == "batch":
        others = [begin(dialect, functions, choice, compiler, reasoning)[0] for _ in range(2)]
        ids = lanes.batch([fence, *others], vocabulary.size, [seed, seed + 1, seed + 2])[0]
    else:
        ids = lanes.speculative(fence, vocabulary.size, seed, random.Random(seed))

    assert ids[-1] in dialect.stop_ids
    starts = reasoning and DEFINITIONS[name].reasoning is not None
    check(dialect, functions, [*said, *ids[:-1]], vocabulary, starts_in_reasoning=starts)


def check(
    dialect: ToolDialect, tools: tuple[FunctionTool, ...], ids: list[int], vocabulary: Vocabulary, *, starts_in_reasoning: bool
) -> None:
    """The answer, read strictly: calls only, all finished, all valid, nothing remarked."""
    detokenizer = Detokenizer(vocabulary)
    pieces = [piece for token_id in ids for piece in detokenizer.push(token_id)]
    parser = dialect.parser(tools, starts_in_reasoning=starts_in_reasoning)
    events = [*parser.push([*pieces, *detokenizer.finish()]), *parser.finish()]

    text = vocabulary.decode(ids)
    assert [event for event in events if isinstance(event, Diagnostic)] == [], text
    started = {event.ordinal: event.name for event in events if isinstance(event, CallStarted)}
    finished = {event.ordinal: event.arguments for event in events if isinstance(event, CallFinished)}
    assert started.keys() == finished.keys(), text
    assert len(started) >= 1, text
    parameters = {tool.name: tool.parameters for tool in tools}
    for ordinal, name in started.items():
        jsonschema.validate(json.loads(finished[ordinal]), to_python(parameters[name]))


def test_a_closing_tag_behind_the_opening_one_is_no_value() -> None:
    """Found by noise after five thousand calls: the opening tag's line break was read as the closer's."""
    compiler = COMPILERS["bytes"]
    dialect = ToolDialect(DEFINITIONS["qwen3-coder"], RENDERERS["qwen3-coder"], compiler.vocabulary)
    tools = canonical({"f": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}})
    fence = build_fence(FenceRequest(dialect.fence_grammar(tools), tools, ToolChoiceRequired()), compiler)
    assert fence is not None
    ids = compiler.vocabulary.encode_with_markers("<tool_call>\n<function=f>\n<parameter=a>\n</parameter>")

    assert fence.legal_prefix(ids) == len(ids) - 1


def test_the_check_falls_on_an_illegal_call() -> None:
    vocabulary = COMPILERS["bytes"].vocabulary
    dialect = ToolDialect(DEFINITIONS["glm-4.7"], RENDERERS["glm-4.7"], vocabulary)
    tools = canonical({"f": {"type": "object", "properties": {"n": {"type": "integer", "maximum": 3}}}})
    ids = vocabulary.encode_with_markers("<tool_call>f<arg_key>n</arg_key><arg_value>4</arg_value></tool_call>")

    with pytest.raises(jsonschema.ValidationError):
        check(dialect, tools, ids, vocabulary, starts_in_reasoning=False)
