"""No token escapes: whatever a model of noise says under the fence is a legal call, on every path."""

from __future__ import annotations

import random

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fence import lanes, schemas
from tests.fence.layouts import LAYOUTS, Layout, Tools
from zllm_ref.canonical.request import ToolChoice, ToolChoiceAuto, ToolChoiceNamed, ToolChoiceRequired
from zllm_ref.fence import FenceCompiler, FenceRequest, GuardSettings, Phase, TokenFence, build_fence
from zllm_ref.tokenizer import byte_vocabulary

VOCABULARY = byte_vocabulary()
COMPILER = FenceCompiler(VOCABULARY)
SHORT = GuardSettings(value_budget=16, call_budget=300)
"""Noise closes a value by luck alone; the guard's budgets bring it to an end."""
STOPS = [VOCABULARY.marker_text(token_id) for token_id in VOCABULARY.stop_ids]
SAID = "Let me see.\n"


def begin(layout: Layout, tools: Tools, choice: ToolChoice, parallel: bool = True) -> tuple[TokenFence, list[int]]:
    request = FenceRequest(grammar=layout.grammar(tools), tool_choice=choice, parallel_tool_calls=parallel, max_calls=3)
    fence = build_fence(request, COMPILER, SHORT)
    assert fence is not None
    assert fence.problems == ()
    said: list[int] = []
    if isinstance(choice, ToolChoiceAuto):  # noise would hardly ever hit the trigger
        grammar = layout.grammar(tools)
        said = VOCABULARY.encode_with_markers(SAID + grammar.lead + grammar.trigger.name)
        for token_id in said:
            fence.advance(token_id)
    return fence, said


def check_calls(ids: list[int], layout: Layout, tools: Tools, choice: ToolChoice) -> None:
    text = VOCABULARY.decode(ids)
    assert VOCABULARY.marker_text(ids[-1]) in (*STOPS, *layout.grammar(tools).stop_markers), text
    region = VOCABULARY.decode(ids[:-1]).removeprefix(SAID if isinstance(choice, ToolChoiceAuto) else "")
    calls = layout.read(region, tools)
    assert 1 <= len(calls) <= 3, text
    for name, arguments in calls:
        jsonschema.validate(arguments, tools[name])
        assert not isinstance(choice, ToolChoiceNamed) or (name == choice.name and len(calls) == 1), text


choices = st.sampled_from(["auto", "required", "named"])
paths = st.sampled_from(["plain", "batch", "speculative"])


@given(st.sampled_from(LAYOUTS), schemas.tools, choices, paths, st.integers(0, 2**32), st.booleans())
def test_every_call_of_a_model_of_noise_is_legal(
    layout: Layout, tools: Tools, choice_name: str, path: str, seed: int, parallel: bool
) -> None:
    choice: ToolChoice = {
        "auto": ToolChoiceAuto(),
        "required": ToolChoiceRequired(),
        "named": ToolChoiceNamed(sorted(tools)[0]),
    }[choice_name]
    fence, said = begin(layout, tools, choice, parallel)
    alone = lanes.plain(fence.clone(), VOCABULARY.size, seed)

    if path == "plain":
        ids = alone
    elif path == "batch":
        others = [begin(layout, tools, choice, parallel)[0] for _ in range(2)]
        ids = lanes.batch([fence, *others], VOCABULARY.size, [seed, seed + 7, seed + 8])[0]
    else:
        ids = lanes.speculative(fence, VOCABULARY.size, seed, random.Random(seed))

    assert ids == alone, "the path must not change what is said"
    check_calls([*said, *ids], layout, tools, choice)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_two_lanes_of_one_clone_that_go_far_apart_do_not_disturb_each_other(layout: Layout) -> None:
    tools: Tools = {
        "note": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a", "b"]}
    }
    request = FenceRequest(layout.grammar(tools), tool_choice=ToolChoiceRequired(), max_calls=2)
    fence = build_fence(request, COMPILER, GuardSettings(value_budget=50))
    assert fence is not None

    together = lanes.batch([fence.clone(), fence.clone(), fence], VOCABULARY.size, [1, 2, 3])

    for ids, seed in zip(together, (1, 2, 3), strict=True):
        alone = build_fence(request, COMPILER, GuardSettings(value_budget=50))
        assert alone is not None
        assert ids == lanes.plain(alone, VOCABULARY.size, seed)


def test_the_check_of_calls_falls_when_a_value_is_out_of_its_schema() -> None:
    layout = next(one for one in LAYOUTS if one.name == "glm 4.7")
    tools = {"f": {"type": "object", "properties": {"n": {"type": "integer", "maximum": 3}}}}
    text = "<tool_call>f<arg_key>n</arg_key><arg_value>4</arg_value></tool_call><|user|>"

    with pytest.raises(jsonschema.ValidationError):
        check_calls(VOCABULARY.encode_with_markers(text), layout, tools, ToolChoiceRequired())


@settings(max_examples=max(10, settings().max_examples // 5))
@given(schemas.tools, st.integers(0, 2**32), st.data())
def test_clone_and_rollback_are_a_fresh_replay(tools: Tools, seed: int, data: st.DataObject) -> None:
    layout = data.draw(st.sampled_from(LAYOUTS))
    fence, _ = begin(layout, tools, ToolChoiceRequired())
    ids = lanes.plain(fence.clone(), VOCABULARY.size, seed)
    walked, at = fence, 0
    for _ in range(6):
        step = data.draw(st.integers(-at, min(40, len(ids) - at)))
        if step >= 0:
            for token_id in ids[at : at + step]:
                walked.advance(token_id)
        else:
            walked.rollback(-step)
        at += step
        if data.draw(st.booleans()):
            walked = walked.clone()

        fresh, _ = begin(layout, tools, ToolChoiceRequired())
        for token_id in ids[:at]:
            fresh.advance(token_id)
        assert walked.phase is fresh.phase
        assert tuple(walked.forced()) == tuple(fresh.forced())
        ours, theirs = walked.allowed(), fresh.allowed()
        assert ours is not None
        assert theirs is not None
        assert ours.tobytes() == theirs.tobytes()
        assert walked.explain() == fresh.explain()
    assert walked.phase is not Phase.END or at == len(ids)
