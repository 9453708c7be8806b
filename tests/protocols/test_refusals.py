"""A model that declines: a part of its own in OpenAI's protocols, text with its own stop reason in Anthropic's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conformance.checker import StreamCheck
from conformance.checker.unary_check import check_unary
from tests.protocols.test_streams import ROADS, STARTED, USAGE, USER, Road, run
from tests.protocols.wires import chat, messages, responses
from zllm_ref.canonical.event import Event, Finished, FinishReason, RefusalDelta, TextDelta, TokenLogprob
from zllm_ref.protocols import openai_chat

DECLINED = Finished(FinishReason.REFUSAL, USAGE)
PLAIN: list[Event] = [STARTED, RefusalDelta("I can"), RefusalDelta("not."), DECLINED]
AFTER_TEXT: list[Event] = [STARTED, TextDelta("Well. "), RefusalDelta("I can"), RefusalDelta("not."), DECLINED]


@pytest.mark.parametrize("events", [PLAIN, AFTER_TEXT], ids=["alone", "after text"])
@pytest.mark.parametrize("name", ROADS)
def test_a_refusal_keeps_the_grammar_and_folds_to_the_unary_answer(name: str, events: list[Event]) -> None:
    sent, unary = run(ROADS[name], events)

    check = StreamCheck(ROADS[name].grammar, unary=json.loads(unary))
    check.feed(sent)
    assert check.finish() == []
    assert check_unary(ROADS[name].grammar, json.loads(unary)) == []


def test_each_protocol_tells_a_refusal_in_its_own_words() -> None:
    first = json.loads(run(ROADS["chat"], PLAIN)[1])["choices"][0]
    second = json.loads(run(ROADS["responses"], AFTER_TEXT)[1])
    third = json.loads(run(ROADS["messages"], PLAIN)[1])

    assert (first["message"]["content"], first["message"]["refusal"]) == (None, "I cannot.")
    assert first["finish_reason"] == "stop"
    (item,) = second["output"]
    assert second["status"] == "completed"
    assert [part["type"] for part in item["content"]] == ["output_text", "refusal"]
    assert [part.get("text", part.get("refusal")) for part in item["content"]] == ["Well. ", "I cannot."]
    assert third["stop_reason"] == third["stop_details"]["type"] == "refusal"
    assert third["content"][0]["text"] == "I cannot."


def test_the_events_of_a_refusal_are_its_own() -> None:
    sent, _ = run(ROADS["responses"], AFTER_TEXT)

    events = [json.loads(line[6:]) for line in sent.decode().splitlines() if line.startswith("data: ")]
    names = [event["type"].removeprefix("response.") for event in events]
    assert names[3:-2] == [
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "content_part.added",
        "refusal.delta",
        "refusal.delta",
        "refusal.done",
        "content_part.done",
    ]
    assert {event["content_index"] for event in events if "refusal" in event["type"]} == {1}


def test_a_refusal_fed_back_by_every_path_is_the_same_conversation() -> None:
    message = json.loads(run(ROADS["chat"], AFTER_TEXT)[1])["choices"][0]["message"]
    items = json.loads(run(ROADS["responses"], AFTER_TEXT)[1])["output"]
    blocks = json.loads(run(ROADS["messages"], AFTER_TEXT)[1])["content"]

    expected = chat(messages=[*USER, message]).request.messages
    assert expected[1].text == "Well. I cannot."
    assert responses(input=[*USER, *items]).request.messages == expected
    assert messages(messages=[*USER, {"role": "assistant", "content": blocks}]).request.messages == expected


def test_the_log_probabilities_of_a_refusal_are_not_those_of_the_content() -> None:
    tokens = tuple(TokenLogprob(text, text.encode(), -0.5) for text in ("Yes", "No"))
    call: Any = chat(messages=USER, logprobs=True)
    made = openai_chat.Stream(call, include_usage=True)
    road = Road("chat", lambda: made, ROADS["chat"].accumulator)

    _, unary = run(road, [STARTED, TextDelta("Yes", 0, tokens[:1]), RefusalDelta("No", 0, tokens[1:]), DECLINED])

    found = json.loads(unary)["choices"][0]["logprobs"]
    assert [entry["token"] for entry in found["content"]] == ["Yes"]
    assert [entry["token"] for entry in found["refusal"]] == ["No"]
