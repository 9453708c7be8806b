"""The oracle judges every mask: what is allowed is legal, and what a renderer would write is allowed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fence import lanes, schemas
from tests.fence.layouts import LAYOUTS, Layout, Tools
from tests.fence.vocabularies import text_mode_vocabulary, trained_vocabulary
from tests.fence.writer import encoded, write
from zllm_ref.canonical.json_value import JsonObject
from zllm_ref.canonical.request import ToolChoiceRequired
from zllm_ref.fence import FenceCompiler, FenceRequest, GuardSettings, Phase, TokenFence, build_fence
from zllm_ref.fence.grammar import JsonBySchema, Literal, Node, RawText, Sequence, UnorderedParameters
from zllm_ref.fence.mask import ids_of, is_allowed
from zllm_ref.fence.oracle import Oracle
from zllm_ref.tokenizer import Vocabulary, byte_vocabulary

COMPILERS = {
    "bytes": FenceCompiler(byte_vocabulary()),
    "spelled": FenceCompiler(text_mode_vocabulary()),
    "trained": FenceCompiler(trained_vocabulary()),
}
FEW = settings(max_examples=max(10, settings().max_examples // 3))


def required(layout: Layout, tools: Tools, compiler: FenceCompiler, guard: GuardSettings | None = None) -> TokenFence:
    grammar = layout.grammar(tools)
    request = FenceRequest(grammar=grammar, tool_choice=ToolChoiceRequired(), max_calls=3)
    fence = build_fence(request, compiler, guard)
    assert fence is not None
    return fence


def root_of(fence: TokenFence) -> Node:
    region = fence.plan.region
    assert region is not None
    return region.root


def after(oracle: Oracle | None, token_id: int, vocabulary: Vocabulary) -> Oracle | None:
    marker = vocabulary.marker_text(token_id)
    if oracle is None:
        return None
    return oracle.after(vocabulary.token_bytes(token_id) if marker is None else marker)


@FEW
@given(st.sampled_from(LAYOUTS), schemas.tools, st.sampled_from(sorted(COMPILERS)), st.integers(0, 2**32))
def test_every_allowed_token_is_legal_to_the_oracle(layout: Layout, tools: Tools, kind: str, seed: int) -> None:
    compiler = COMPILERS[kind]
    vocabulary = compiler.vocabulary
    fence = required(layout, tools, compiler, GuardSettings(value_budget=8, call_budget=120))
    judge: Oracle | None = Oracle(root_of(fence), vocabulary.marker_id)
    rng = random.Random(seed)
    bare = required(layout, tools, compiler)

    for token_id in lanes.plain(fence, vocabulary.size, seed)[:200]:
        assert judge is not None
        mask = bare.allowed()
        assert mask is not None
        allowed = ids_of(mask)
        for candidate in rng.sample(allowed, min(12, len(allowed))):
            if candidate in fence.plan.stop_ids:
                assert judge.may_end
            else:
                assert after(judge, candidate, vocabulary) is not None, (vocabulary.token_bytes(candidate), judge.expected())
        if token_id in fence.plan.stop_ids:
            break
        judge = after(judge, token_id, vocabulary)
        bare.advance(token_id)


@FEW
@given(st.sampled_from(LAYOUTS), schemas.tools, st.sampled_from(sorted(COMPILERS)), st.integers(0, 2**32))
def test_what_a_renderer_writes_is_allowed_at_every_token(layout: Layout, tools: Tools, kind: str, seed: int) -> None:
    compiler = COMPILERS[kind]
    vocabulary = compiler.vocabulary
    fence = required(layout, tools, compiler)
    pieces = write(root_of(fence), random.Random(seed))
    judge: Oracle | None = Oracle(root_of(fence), vocabulary.marker_id)
    ids = encoded(pieces, vocabulary)
    if kind == "spelled" and any(piece in ("<tool_call>", "a < b </p> & c") for piece in pieces):
        return  # a value that spells markup is another text there

    for position, token_id in enumerate(ids):
        so_far = vocabulary.decode(ids[:position])
        assert is_allowed(fence.allowed(), token_id), (so_far, vocabulary.token_bytes(token_id), fence.explain())
        forced = tuple(fence.forced())
        assert forced == tuple(ids[position : position + len(forced)]), (so_far, vocabulary.decode(forced))
        judge = after(judge, token_id, vocabulary)
        assert judge is not None, so_far
        fence.advance(token_id)
    assert judge is not None
    assert judge.may_end
    for stop in fence.plan.stop_ids:
        assert is_allowed(fence.allowed(), stop)
    fence.advance(fence.plan.stop_ids[0])
    assert fence.phase is Phase.END


PLANTED = [
    ("a value outside its bounds", JsonBySchema(JsonObject((("type", "integer"),))), b"1.5]"),
    ("a second blank", JsonBySchema(JsonObject()), b'{"a":  1}]'),
    ("a literal cut short", Literal("tool"), b"too]"),
    ("text behind its closer", RawText((Literal("</p>"),)), b"x</p></p>]"),
    ("a value that its schema refuses", RawText((Literal("</p>"),), JsonObject((("enum", ("a",)),))), b"ab</p>]"),
    ("an excluded text", RawText((Literal("</p>"),), excludes=("<b>",)), b"x<b></p>]"),
]


@pytest.mark.parametrize(("node", "text"), [case[1:] for case in PLANTED], ids=[case[0] for case in PLANTED])
def test_the_oracle_refuses(node: Node, text: bytes) -> None:
    judge = Oracle(Sequence((node, Literal("]"))), byte_vocabulary().marker_id).after(text)

    assert judge is None or not judge.may_end


def test_the_oracle_refuses_a_parameter_twice_and_an_end_without_a_required_one() -> None:
    layout = next(one for one in LAYOUTS if one.name == "glm 4.7")
    tools = {
        "move": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}, "required": ["x", "y"]}
    }
    call = layout.grammar(tools).calls[0].node
    assert isinstance(call, Sequence)
    assert isinstance(call.items[1], UnorderedParameters)
    vocabulary = byte_vocabulary()

    def reads(text: str) -> bool:
        judge: Oracle | None = Oracle(call, vocabulary.marker_id)
        for token_id in vocabulary.encode_with_markers(text):
            judge = after(judge, token_id, vocabulary)
        return judge is not None and judge.may_end

    x, y = (f"<arg_key>{name}</arg_key><arg_value>1</arg_value>" for name in "xy")
    assert reads(f"move{x}{y}</tool_call>")
    assert reads(f"move{y}{x}</tool_call>")
    assert not reads(f"move{x}</tool_call>")
    assert not reads(f"move{x}{x}</tool_call>")
    assert not reads(f"move{x}{x}{y}</tool_call>")
