"""Free-form tools of Chat Completions: their form on the wire, and that they are the same tools as in Responses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conformance.checker import StreamCheck
from conformance.checker.unary_check import check_unary
from tests.protocols.test_streams import ROADS, STARTED, USAGE, USER, run
from tests.protocols.wires import chat, responses
from zllm_ref.canonical.error import ApiError
from zllm_ref.canonical.event import Event, Finished, FinishReason, ToolArgumentsDelta, ToolCallFinished, ToolCallStarted
from zllm_ref.canonical.message import CustomToolCall
from zllm_ref.canonical.request import CustomTool, ToolChoiceAuto, ToolChoiceNamed, ToolChoiceRequired

LARK = 'start: "a"+'
FUNCTION = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
CUSTOM = {
    "type": "custom",
    "custom": {
        "name": "exec",
        "description": "Runs it",
        "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": LARK}},
    },
}
CALLS: list[Event] = [
    STARTED,
    ToolCallStarted(0, "call_0", "exec", custom=True),
    ToolArgumentsDelta(0, "1 +"),
    ToolArgumentsDelta(0, "\n1"),
    ToolCallFinished(0, "1 +\n1"),
    ToolCallStarted(1, "call_1", "look"),
    ToolCallFinished(1, ""),
    ToolCallStarted(2, "call_2", "exec", custom=True),
    ToolCallFinished(2, ""),
    Finished(FinishReason.TOOL_CALLS, USAGE),
]


def test_a_free_form_tool_is_the_same_tool_in_both_of_openais_protocols() -> None:
    other = {"type": "custom", **{**CUSTOM["custom"], "format": {"type": "grammar", "syntax": "lark", "definition": LARK}}}  # type: ignore[dict-item]

    asked = chat(messages=USER, tools=[CUSTOM, FUNCTION]).request

    assert asked.tools[0] == CustomTool("exec", "Runs it", ("lark", LARK))
    assert asked.tools[0] == responses(input="x", tools=[other]).request.tools[0]


def test_its_calls_are_streamed_as_raw_input_and_fold_to_the_unary_answer() -> None:
    sent, unary = run(ROADS["chat"], CALLS)

    check = StreamCheck("chat", unary=json.loads(unary), request={"tools": [CUSTOM, FUNCTION]})
    check.feed(sent)
    first, second, third = json.loads(unary)["choices"][0]["message"]["tool_calls"]
    assert check.finish() == []
    assert check_unary("chat", json.loads(unary)) == []
    assert first == {"id": "call_0", "type": "custom", "custom": {"name": "exec", "input": "1 +\n1"}}
    assert second["function"] == {"name": "look", "arguments": "{}"}
    assert third["custom"]["input"] == ""


def test_they_come_back_as_what_they_were() -> None:
    message = json.loads(run(ROADS["chat"], CALLS)[1])["choices"][0]["message"]
    items = json.loads(run(ROADS["responses"], CALLS)[1])["output"]
    result = {"role": "tool", "tool_call_id": "call_0", "content": "2"}

    found = chat(messages=[*USER, message, result]).request.messages

    assert found[1].tool_calls[0] == CustomToolCall("call_0", "exec", "1 +\n1")
    assert found[:2] == responses(input=[*USER, *items]).request.messages
    assert found[2].tool_results[0].name == "exec"


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "custom", "custom": {"name": "exec"}}, ToolChoiceNamed("exec")),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"type": "custom", "custom": {"name": "exec"}}]},
            },
            ToolChoiceAuto(("exec",)),
        ),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "look"}}]},
            },
            ToolChoiceRequired(("look",)),
        ),
    ],
)
def test_a_choice_may_name_them(choice: dict[str, Any], expected: object) -> None:
    assert chat(messages=USER, tools=[CUSTOM, FUNCTION], tool_choice=choice).request.tool_choice == expected


@pytest.mark.parametrize(
    ("tool", "path"),
    [
        ({"type": "custom"}, "tools[0].custom"),
        ({"type": "custom", "custom": {"name": "a b"}}, "tools[0].custom.name"),
        ({"type": "custom", "custom": {"name": "a", "format": {"type": "grammar"}}}, "tools[0].custom.format.grammar"),
        (
            {"type": "custom", "custom": {"name": "a", "format": {"type": "grammar", "grammar": {"syntax": "bnf"}}}},
            "tools[0].custom.format.grammar.syntax",
        ),
        ({"type": "web_search"}, "tools[0].type"),
    ],
)
def test_what_is_wrong_with_a_tool_is_named(tool: dict[str, Any], path: str) -> None:
    with pytest.raises(ApiError) as error:
        chat(messages=USER, tools=[tool])

    assert error.value.param == path
