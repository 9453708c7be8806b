"""The first difference of two answers, and what is none."""

from __future__ import annotations

import pytest

from conformance.checker.difference import first_difference
from conformance.checker.stream_check import StreamCheck
from conformance.golden import render_messages
from conformance.golden.story import Call, Story, encode


@pytest.mark.parametrize(
    ("expected", "got", "told"),
    [
        ({"a": None}, {}, None),
        ({"a": []}, {}, ("a", "[]", "nothing")),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, ("a[1].b", "2", "3")),
        ({"a": [1]}, {"a": [1, 2]}, ("a", "1 entries", "2 entries")),
        ({"a": 1}, {"a": True}, ("a", "1", "True")),
        ({"a": "x" * 40 + "1"}, {"a": "x" * 40 + "2"}, ("a from character 40", f"…{'x' * 24 + '1'!r} (41 characters)",
                                                       f"…{'x' * 24 + '2'!r} (41 characters)")),
    ],
)  # fmt: skip
def test_the_first_place_at_which_they_part_is_told(expected: object, got: object, told: tuple[str, str, str] | None) -> None:
    found = first_difference(expected, got)
    if told is None:
        assert found is None
    else:
        assert found is not None
        assert found[0] == told[0]
        assert found[1:] == told[1:] or [text.lower() for text in found[1:]] == [text.lower() for text in told[1:]]


def cut_call(end: str) -> tuple[bytes, dict[str, object]]:
    story = Story((Call("get_weather", ('{"loc', 'ation": "Pa'), is_cut=True),), end=end)
    unary = render_messages.render_unary(story)
    unary["content"][0]["input"] = {}
    return encode(render_messages.render_stream(story)), unary


def rules_of(body: bytes, unary: dict[str, object]) -> set[str]:
    check = StreamCheck("messages", unary=unary)
    check.feed(body)
    check.finish()
    return {violation.rule for violation in check.differences}


def test_input_that_the_token_limit_cut_is_not_compared_with_what_the_unary_message_makes_of_it() -> None:
    body, unary = cut_call("length")
    assert rules_of(body, unary) == set()

    unary["content"][0]["name"] = "other"  # type: ignore[index]
    assert rules_of(body, unary) == {"X1"}, "its name is compared all the same"


def test_whole_input_is_compared() -> None:
    story = Story((Call("get_weather", ('{"location":', '"Paris"}')),))
    unary = render_messages.render_unary(story)
    unary["content"][0]["input"] = {}

    assert rules_of(encode(render_messages.render_stream(story)), unary) == {"X1"}


def test_input_that_is_no_json_though_nothing_cut_it_is_a_difference() -> None:
    body, unary = cut_call("stop")
    unary["stop_reason"] = "tool_use"

    assert rules_of(body, unary) == {"X1"}
