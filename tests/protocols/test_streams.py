"""Any answer, cut into any pieces: each stream keeps its grammar and its laws, and is the unary answer when it is folded."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.checker import StreamCheck, check_unary
from tests.protocols.wires import SEAL, chat, messages, responses
from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.event import (
    AlternativeToken,
    Event,
    Failed,
    Finished,
    FinishReason,
    ReasoningDelta,
    Started,
    TextDelta,
    TokenLogprob,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from zllm_ref.canonical.usage import Usage
from zllm_ref.protocols import anthropic_messages, openai_chat, openai_responses
from zllm_ref.protocols.context import Profile

FEWER = settings(max_examples=max(20, settings.default.max_examples // 4))  # each example runs five streams
USER = [{"role": "user", "content": "x"}]
USAGE = Usage(prompt_tokens=12, cached_tokens=4, cache_write_tokens=3, completion_tokens=9, reasoning_tokens=2)
STARTED = Started(Usage(12, 4, 3, 1), "zc_1")


@dataclass(frozen=True)
class Road:
    """One protocol: how its stream and its accumulator are made."""

    grammar: str
    stream: Callable[[], Any]
    accumulator: Callable[[], Any]


ROADS = {
    "chat": Road("chat", lambda: openai_chat.Stream(chat(messages=USER), include_usage=True), openai_chat.Accumulator),
    "responses": Road("responses", lambda: openai_responses.Stream(responses(input="x")), openai_responses.Accumulator),
    "summaries": Road(
        "responses",
        lambda: openai_responses.Stream(
            responses(input="x", reasoning={"summary": "auto"}, include=["reasoning.encrypted_content"])
        ),
        openai_responses.Accumulator,
    ),
    "messages": Road(
        "messages",
        lambda: anthropic_messages.Stream(messages(messages=USER, thinking={"type": "adaptive"})),
        anthropic_messages.Accumulator,
    ),
    "omitted": Road(
        "messages",
        lambda: anthropic_messages.Stream(messages(messages=USER, thinking={"type": "adaptive", "display": "omitted"})),
        anthropic_messages.Accumulator,
    ),
}

# no beginnings of a model's own markup: the checker would ask, rightly, how they got into an answer
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<[｜"), min_size=1, max_size=12).filter(
    lambda text: not set(text) & set("<[｜")
)
ARGUMENTS = st.dictionaries(TEXTS, st.integers() | TEXTS | st.lists(TEXTS, max_size=2), max_size=3).map(
    lambda value: json.dumps(value, ensure_ascii=False)
)


@st.composite
def stories(draw: st.DrawFn) -> list[tuple[str, str, str]]:
    """Segments of an answer: at most one piece of reasoning, then text, then calls."""
    segments = [("reasoning", "", draw(TEXTS))] if draw(st.booleans()) else []
    if draw(st.booleans()):
        segments.append(("text", "", draw(TEXTS)))
    segments += [("call", name, draw(ARGUMENTS)) for name in draw(st.lists(st.sampled_from(["f", "g"]), max_size=3))]
    return segments


def events_of(story: list[tuple[str, str, str]], cuts: Callable[[str], list[str]]) -> list[Event]:
    events: list[Event] = [STARTED]
    calls = 0
    for kind, name, text in story:
        if kind == "call":
            events.append(ToolCallStarted(calls, f"call_{calls:024x}", name))
            events += [ToolArgumentsDelta(calls, piece) for piece in cuts(text)]
            events.append(ToolCallFinished(calls, text))
            calls += 1
        else:
            make = TextDelta if kind == "text" else ReasoningDelta
            events += [make(piece) for piece in cuts(text)]
    return [*events, Finished(FinishReason.TOOL_CALLS if calls else FinishReason.END, USAGE)]


def whole(text: str) -> list[str]:
    return [text]


def letters(text: str) -> list[str]:
    return list(text)


def run(road: Road, events: list[Event]) -> tuple[bytes, str]:
    """The bytes of the stream, and the unary answer folded from the same frames."""
    stream, accumulator, sent = road.stream(), road.accumulator(), b""
    for event in events:
        for frame in stream.on(event):
            sent += frame.encode()
            accumulator.on(frame)
    return sent, accumulator.result()


@pytest.mark.parametrize("name", ROADS)
@FEWER
@given(story=stories())
def test_a_stream_keeps_its_grammar_and_laws_and_folds_to_the_unary_answer(name: str, story: list[tuple[str, str, str]]) -> None:
    road = ROADS[name]

    sent, unary = run(road, events_of(story, letters))

    check = StreamCheck(road.grammar, unary=json.loads(unary))
    check.feed(sent)
    assert check.finish() == []
    assert check_unary(road.grammar, json.loads(unary)) == []


@pytest.mark.parametrize("name", ROADS)
@FEWER
@given(story=stories())
def test_the_unary_answer_does_not_depend_on_how_tokens_arrive(name: str, story: list[tuple[str, str, str]]) -> None:
    """CH23, X4."""
    road = ROADS[name]

    assert run(road, events_of(story, letters))[1] == run(road, events_of(story, whole))[1]


@FEWER
@given(story=stories())
def test_three_protocols_tell_the_same_story(story: list[tuple[str, str, str]]) -> None:
    """X2: text, reasoning, calls, usage."""
    events = events_of(story, letters)
    first = json.loads(run(ROADS["chat"], events)[1])
    second = json.loads(run(ROADS["responses"], events)[1])
    third = json.loads(run(ROADS["messages"], events)[1])

    text = "".join(text for kind, _, text in story if kind == "text")
    reasoning = "".join(text for kind, _, text in story if kind == "reasoning")
    calls = [(name, json.loads(text)) for kind, name, text in story if kind == "call"]
    message = first["choices"][0]["message"]
    items, blocks = second["output"], third["content"]
    assert (message["content"] or "") == text
    assert message.get("reasoning_content", "") == reasoning
    assert [
        (call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message.get("tool_calls", [])
    ] == calls
    assert "".join(item["content"][0]["text"] for item in items if item["type"] == "message") == text
    assert "".join(item["content"][0]["text"] for item in items if item["type"] == "reasoning") == reasoning
    assert [(item["name"], json.loads(item["arguments"])) for item in items if item["type"] == "function_call"] == calls
    assert "".join(block["text"] for block in blocks if block["type"] == "text") == text
    assert "".join(block["thinking"] for block in blocks if block["type"] == "thinking") == reasoning
    assert [(block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"] == calls
    ids = [call["id"].removeprefix("call_") for call in message.get("tool_calls", [])]
    assert [item["call_id"].removeprefix("call_") for item in items if item["type"] == "function_call"] == ids
    assert [block["id"].removeprefix("toolu_") for block in blocks if block["type"] == "tool_use"] == ids
    used = third["usage"]
    whole_prompt = used["input_tokens"] + used["cache_read_input_tokens"] + used["cache_creation_input_tokens"]
    assert first["usage"]["prompt_tokens"] == second["usage"]["input_tokens"] == whole_prompt == 12
    assert first["usage"]["completion_tokens"] == second["usage"]["output_tokens"] == used["output_tokens"] == 9


@FEWER
@given(story=stories())
def test_an_answer_fed_back_by_every_path_is_the_same_conversation(story: list[tuple[str, str, str]]) -> None:
    """X7: message, items, blocks, and items with sealed reasoning; call ids included."""
    events = events_of(story, letters)
    message = json.loads(run(ROADS["chat"], events)[1])["choices"][0]["message"]
    items = json.loads(run(ROADS["responses"], events)[1])["output"]
    sealed = json.loads(run(ROADS["summaries"], events)[1])["output"]
    blocks = json.loads(run(ROADS["messages"], events)[1])["content"]
    hidden = json.loads(run(ROADS["omitted"], events)[1])["content"]

    expected = chat(messages=[*USER, message]).request.messages
    assert responses(input=[*USER, *items]).request.messages == expected
    assert responses(input=[*USER, *sealed]).request.messages == expected
    for content in (blocks, hidden):
        assert _unsigned(messages(messages=[*USER, {"role": "assistant", "content": content}]).request.messages) == expected


def _unsigned(found: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        replace(
            message, parts=tuple(replace(part, signature=None) if hasattr(part, "signature") else part for part in message.parts)
        )
        for message in found
    )


@pytest.mark.parametrize("name", ROADS)
@pytest.mark.parametrize("after", range(1, 6))
def test_a_failure_at_any_place_ends_the_stream_in_its_own_form(name: str, after: int) -> None:
    road = ROADS[name]
    story = [("reasoning", "", "ab"), ("text", "", "cd"), ("call", "f", '{"a":1}')]
    events = [*events_of(story, letters)[:after], Failed(ApiError(ErrorKind.INTERNAL, "device lost"))]

    stream = road.stream()
    sent = b"".join(frame.encode() for event in events for frame in stream.on(event))

    check = StreamCheck(road.grammar)
    check.feed(sent)
    assert check.finish() == []
    assert b"device lost" in sent.strip().split(b"\n\n")[-1]


def test_no_thinking_is_shown_where_none_was_asked_for() -> None:
    """AN17."""
    road = Road("messages", lambda: anthropic_messages.Stream(messages(messages=USER)), anthropic_messages.Accumulator)

    unary = json.loads(run(road, events_of([("reasoning", "", "hm"), ("text", "", "yes")], letters))[1])

    assert [block["type"] for block in unary["content"]] == ["text"]


def test_hidden_thinking_is_signed_so_that_only_this_server_can_read_it() -> None:
    unary = json.loads(run(ROADS["omitted"], events_of([("reasoning", "", "secret"), ("text", "", "yes")], letters))[1])

    block = unary["content"][0]
    assert block["thinking"] == ""
    assert "secret" not in json.dumps(unary)
    assert SEAL.open(block["signature"]) == "secret"


def test_custom_calls_and_namespaces_have_items_of_their_own() -> None:
    events = [
        STARTED,
        ToolCallStarted(0, "call_0", "exec", custom=True),
        ToolArgumentsDelta(0, "1 +"),
        ToolArgumentsDelta(0, "\n1"),
        ToolCallFinished(0, "1 +\n1"),
        ToolCallStarted(1, "call_1", "spawn", namespace="agents"),
        ToolCallFinished(1, ""),
        Finished(FinishReason.TOOL_CALLS, USAGE),
    ]

    sent, unary = run(ROADS["responses"], events)

    check = StreamCheck("responses", unary=json.loads(unary))
    check.feed(sent)
    first, second = json.loads(unary)["output"]
    assert check.finish() == []
    assert (first["type"], first["name"], first["input"]) == ("custom_tool_call", "exec", "1 +\n1")
    assert (second["name"], second["namespace"], second["arguments"]) == ("spawn", "agents", "{}")


@pytest.mark.parametrize("name", ["chat", "responses"])
def test_log_probabilities_travel_with_their_text(name: str) -> None:
    """CH21: the joined tokens are the content; JSON has no infinity."""
    tokens = tuple(
        TokenLogprob(text, text.encode(), value, (AlternativeToken(text, text.encode(), value),))
        for text, value in (("a", -0.5), ("b", float("-inf")))
    )
    call: Any = chat(messages=USER, logprobs=True, top_logprobs=1) if name == "chat" else responses(input="x", top_logprobs=1)
    made = openai_chat.Stream(call, include_usage=True) if name == "chat" else openai_responses.Stream(call)
    road = Road(name, lambda: made, ROADS[name].accumulator)

    sent, unary = run(road, [STARTED, TextDelta("ab", logprobs=tokens), Finished(FinishReason.END, USAGE)])

    check = StreamCheck(name, unary=json.loads(unary))
    check.feed(sent)
    body = json.loads(unary)
    found = body["choices"][0]["logprobs"]["content"] if name == "chat" else body["output"][0]["content"][0]["logprobs"]
    assert check.finish() == []
    assert "".join(entry["token"] for entry in found) == "ab"
    assert found[1]["logprob"] == -9999.0
    assert found[0]["top_logprobs"][0]["bytes"] == [97]


def test_the_deepseek_profile_tells_usage_in_the_finish_chunk() -> None:
    stream = openai_chat.Stream(chat(Profile.DEEPSEEK, messages=USER, stream=True))

    frames = [frame for event in events_of([("text", "", "ab")], letters) for frame in stream.on(event)]

    payloads = [frame.payload for frame in frames if not frame.is_done]
    assert [payload["usage"] for payload in payloads[:-1]] == [None] * (len(payloads) - 1)
    assert payloads[-1]["choices"][0]["finish_reason"] == "stop"
    usage = payloads[-1]["usage"]
    assert usage["prompt_cache_hit_tokens"] + usage["prompt_cache_miss_tokens"] == usage["prompt_tokens"] == 12


def test_the_openresponses_profile_ends_with_done() -> None:
    stream = openai_responses.Stream(responses(Profile.OPENRESPONSES, input="x"))

    frames = [frame for event in events_of([("text", "", "ab")], letters) for frame in stream.on(event)]

    assert frames[-1].is_done
    assert frames[-2].event == "response.completed"
