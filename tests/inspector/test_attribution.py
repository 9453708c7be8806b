"""Each family's prompt is given back to the messages that it was made of."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.inspector.prompts import CLOCK, WEATHER, answer, call, request, result, system, thought, user, view
from zllm_ref.canonical.message import Text
from zllm_ref.dialect.segment import Author
from zllm_ref.inspector.attribution import part_text
from zllm_ref.inspector.family import FAMILIES

CONVERSATION = (
    system("You are terse."),
    user("Weather in Paris?"),
    answer(Text("I shall look."), call('{"city": "Paris"}')),
    result("18 degrees"),
    answer(Text("It is mild.")),
    user("And in Rome, and what time is it?"),
    answer(call('{"city": "Rome"}', call_id="call_2"), call('{"city": "Rome"}', "get_time", "call_3")),
    result("24 degrees", "call_2"),
    result("noon", "call_3"),
)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_message_holds_its_own_texts(family: str) -> None:
    seen = view(request(*CONVERSATION, tools=(WEATHER, CLOCK)), family)

    for index, message in enumerate(CONVERSATION):
        span = seen.message_bytes[index]
        assert span is not None, f"message {index} is nowhere"
        shown = seen.axis.data[slice(*span)].decode()
        for part in message.parts:
            wanted = part_text(part)
            if isinstance(part, Text) or "degrees" in wanted or wanted == "noon":
                assert wanted in shown, f"message {index}: {wanted!r} is not in {shown!r}"


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_messages_follow_each_other_and_do_not_overlap(family: str) -> None:
    seen = view(request(*CONVERSATION, tools=(WEATHER, CLOCK)), family)

    spans = [span for span in seen.message_bytes if span is not None]
    assert spans == sorted(spans)
    assert all(first[1] <= second[0] for first, second in pairwise(spans))


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_part_stands_where_its_text_is(family: str) -> None:
    seen = view(request(*CONVERSATION, tools=(WEATHER, CLOCK)), family)

    for index, message in enumerate(CONVERSATION):
        for part, span in zip(message.parts, seen.part_bytes(index), strict=True):
            assert span is not None, f"message {index}: {part} is nowhere"
            if isinstance(part, Text):
                assert seen.axis.data[slice(*span)].decode() == part.text


@pytest.mark.parametrize("family", sorted(name for name, family in FAMILIES.items() if family.shows_tools))
def test_each_tool_has_the_tokens_of_its_schema(family: str) -> None:
    seen = view(request(*CONVERSATION, tools=(WEATHER, CLOCK)), family)

    first, second = seen.tool_tokens
    assert first is not None
    assert second is not None
    assert "get_weather" in seen.axis.text_of(first)
    assert "get_weather" not in seen.axis.text_of(second)
    assert "get_time" in seen.axis.text_of(second)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_two_messages_with_the_same_text_are_two_messages(family: str) -> None:
    asked = request(user("yes"), answer(Text("yes")), user("yes"), answer(Text("yes")), user("yes"))
    seen = view(asked, family)

    clients = [owner for segment, owner in zip(seen.segments, seen.owners, strict=True) if segment.text == "yes"]
    assert clients == [0, 1, 2, 3, 4]


def test_the_prompt_for_the_answer_belongs_to_no_message() -> None:
    seen = view(request(user("hi")))

    assert [segment.text for segment in seen.segments][-2:] == ["<|im_start|>", "assistant\n"]
    assert seen.owners[-2:] == [None, None]


def test_reasoning_that_the_template_keeps_is_found_as_a_part() -> None:
    asked = request(user("hi"), answer(thought("I think of rain."), call('{"city": "Paris"}')), result("18"), tools=(WEATHER,))
    seen = view(asked, "qwen3")

    span = seen.part_bytes(1)[0]
    assert span is not None
    assert seen.axis.data[slice(*span)] == b"I think of rain."


def test_the_default_system_prompt_is_the_templates_own() -> None:
    seen = view(request(user("hi")))

    texts = [segment.text for segment in seen.segments if segment.origin.author is Author.TEMPLATE]
    assert any("SmolLM" in text for text in texts)
    assert seen.message_bytes[0] is not None
    assert b"SmolLM" not in seen.axis.data[slice(*seen.message_bytes[0])]


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_same_words_twice_in_one_run_of_speech_are_two_messages(family: str) -> None:
    seen = view(request(user("yes"), user("yes"), user("yes")), family)

    clients = [owner for segment, owner in zip(seen.segments, seen.owners, strict=True) if segment.text == "yes"]
    assert clients == [0, 1, 2]


def test_the_instructions_for_tools_are_no_part_of_the_system_message() -> None:
    seen = view(request(system("Be terse."), user("hi"), tools=(WEATHER,)))

    span = seen.message_bytes[0]
    assert span is not None
    assert seen.axis.data[slice(*span)].decode().rstrip() == "<|im_start|>system\nBe terse."
