"""Places where an answer or a request is at its edge: nothing said, cut short, said twice, too large a number."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conformance.checker import StreamCheck
from tests.protocols.test_streams import ROADS, STARTED, USAGE, USER, run
from tests.protocols.wires import SEAL, chat, messages, responses
from zllm_ref.canonical.event import (
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from zllm_ref.protocols import anthropic_messages, openai_chat, openai_responses
from zllm_ref.protocols.anthropic_messages.stream import render_usage
from zllm_ref.protocols.context import Profile
from zllm_ref.protocols.sse import quote


def call(ordinal: int, *pieces: str, finish: bool = True) -> list[Event]:
    events: list[Event] = [ToolCallStarted(ordinal, f"call_{ordinal}", "f")]
    events += [ToolArgumentsDelta(ordinal, piece) for piece in pieces]
    return [*events, ToolCallFinished(ordinal, "".join(pieces))] if finish else events


def answered(name: str, *events: Event, reason: FinishReason = FinishReason.END) -> dict[str, Any]:
    """The unary answer, from a stream that the checker found nothing in."""
    sent, unary = run(ROADS[name], [STARTED, *events, Finished(reason, USAGE)])
    body: dict[str, Any] = json.loads(unary)
    check = StreamCheck(ROADS[name].grammar, unary=body)
    check.feed(sent)
    assert check.finish() == []
    return body


def test_a_call_without_arguments_has_an_empty_object() -> None:
    """CH14, RS9, AN7; also after a call that has some."""
    events = [*call(0, '{"a":', "1}"), *call(1)]

    first = answered("chat", *events, reason=FinishReason.TOOL_CALLS)["choices"][0]["message"]["tool_calls"]
    second = answered("responses", *events, reason=FinishReason.TOOL_CALLS)["output"]
    third = answered("messages", *events, reason=FinishReason.TOOL_CALLS)["content"]

    assert [one["function"]["arguments"] for one in first] == ['{"a":1}', "{}"]
    assert [one["arguments"] for one in second] == ['{"a":1}', "{}"]
    assert [one["input"] for one in third] == [{"a": 1}, {}]


def test_what_is_cut_by_the_limit_says_so_and_still_has_all_its_ends() -> None:
    text = answered("responses", TextDelta("half a sen"), reason=FinishReason.LENGTH)
    cut = answered("responses", *call(0, '{"a":', finish=False), reason=FinishReason.LENGTH)
    cut_call = [STARTED, *call(0, '{"a":', finish=False), Finished(FinishReason.LENGTH, USAGE)]
    block = json.loads(run(ROADS["messages"], cut_call)[1])

    assert text["status"] == "incomplete"
    assert text["output"][0]["status"] == "incomplete"
    assert cut["output"][0]["status"] == "incomplete"
    assert cut["output"][0]["arguments"] == '{"a":'
    assert block["stop_reason"] == "max_tokens"
    assert block["content"][0]["input"] == {}


@pytest.mark.parametrize("name", ROADS)
def test_an_answer_of_nothing_is_a_whole_answer(name: str) -> None:
    body = answered(name)

    said = body.get("choices", [{}])[0].get("message", {}).get("content", "")
    assert said == ""


def test_items_have_ids_of_their_own() -> None:
    events: list[Event] = [ReasoningDelta("a"), TextDelta("b"), *call(0), *call(1), TextDelta("c")]

    items = answered("responses", *events)["output"]

    assert len({item["id"] for item in items}) == len(items) == 5
    assert not {item["id"] for item in items} & {item.get("call_id") for item in items}


def test_sealed_reasoning_is_sent_where_it_was_asked_for() -> None:
    plain = answered("responses", ReasoningDelta("hm"), TextDelta("a"))["output"][0]
    sealed = answered("summaries", ReasoningDelta("hm"), TextDelta("a"))["output"][0]

    assert "encrypted_content" not in plain
    assert plain["content"] == [{"type": "reasoning_text", "text": "hm"}]
    assert SEAL.open(sealed["encrypted_content"]) == "hm"
    assert sealed["summary"] == [{"type": "summary_text", "text": "hm"}]


def test_each_thinking_block_signs_its_own_text() -> None:
    events: list[Event] = [ReasoningDelta("a"), TextDelta("b"), ReasoningDelta("c"), TextDelta("d")]

    shown = [block for block in answered("messages", *events)["content"] if block["type"] == "thinking"]
    hidden = [block for block in answered("omitted", *events)["content"] if block["type"] == "thinking"]

    assert [SEAL.verify(block["thinking"], block["signature"]) for block in shown] == [True, True]
    assert [SEAL.open(block["signature"]) for block in hidden] == ["a", "c"]


def test_two_answers_in_a_row_are_two_messages() -> None:
    items = [{"type": "message", "role": "assistant", "content": text} for text in "ab"]

    said = responses(input=[*items, {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "c"}]}])

    assert [(message.text, message.reasoning) for message in said.request.messages] == [("a", ""), ("b", ""), ("", "c")]


def test_the_three_counts_of_a_prompt_add_up() -> None:
    """AN13."""
    marked = messages(
        messages=[{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]}]
    )
    plain = messages(messages=USER)

    for asked, written in ((marked, 3), (plain, 0)):
        usage = render_usage(asked, USAGE)
        assert usage["cache_creation_input_tokens"] == written
        assert usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"] == 12


@pytest.mark.parametrize("name", ROADS)
def test_no_character_of_an_answer_ends_a_line(name: str) -> None:
    """Readers that split at every Unicode line end see whole frames."""
    text = "a\u2028b\u2029c\u0085d\r\ne\x0bf\x0cg\x1ch"
    sent, _ = run(ROADS[name], [STARTED, TextDelta(text), *call(0, quote(text)[:-1] + '"'), Finished(FinishReason.END, USAGE)])

    lines = sent.decode().splitlines()
    payloads = [json.loads(line[6:]) for line in lines if line.startswith("data: ") and line != "data: [DONE]"]
    assert all(line.startswith(("data: ", "event: ")) for line in lines if line)
    assert any(text in json.dumps(payload, ensure_ascii=False) or text in _strings(payload) for payload in payloads)


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in inner for text in _strings(item)]


@pytest.mark.parametrize("seed", [2**53 + 1, -(2**63), 2**63 - 1, 0])
def test_a_seed_is_taken_as_it_was_written(seed: int) -> None:
    assert chat(messages=USER, seed=seed).request.sampling.seed == seed
    assert responses(input="x", seed=seed).request.sampling.seed == seed


def test_numbers_that_are_whole_count_as_whole() -> None:
    assert chat(messages=USER, max_tokens=16.0).request.max_tokens == 16
    assert messages(messages=USER, top_k=40.0).request.sampling.top_k == 40


def test_the_streams_are_made_for_each_request_anew() -> None:
    first, second = (openai_responses.Stream(responses(input="x")) for _ in range(2))
    third = anthropic_messages.Stream(messages(messages=USER))

    assert first.on(STARTED)[0].payload["sequence_number"] == second.on(STARTED)[0].payload["sequence_number"] == 0
    assert third.on(STARTED)[0].payload["message"]["content"] == []


@pytest.mark.parametrize("name", ROADS)
def test_every_piece_leaves_at_once(name: str) -> None:
    """T9: nothing is held back to be sent in one block."""
    stream = ROADS[name].stream()
    pieces: list[Event] = [TextDelta("a"), TextDelta("b"), ToolCallStarted(0, "call_0", "f")]
    pieces += [ToolArgumentsDelta(0, '{"a":'), ToolArgumentsDelta(0, "1}")]

    stream.on(STARTED)
    sent = ["".join(frame.data for frame in stream.on(piece)) for piece in pieces]

    assert all(text in frame for text, frame in zip(["a", "b", "f", '{\\"a\\":', "1}"], sent, strict=True))


@pytest.mark.parametrize(
    ("choice", "profile", "reason"),
    [
        ("required", Profile.OPENAI, "tool_calls"),
        ("auto", Profile.OPENAI, "tool_calls"),
        ({"type": "function", "function": {"name": "f"}}, Profile.OPENAI, "stop"),
        ({"type": "function", "function": {"name": "f"}}, Profile.DEEPSEEK, "tool_calls"),
    ],
)
def test_a_call_ends_with_the_reason_that_its_choice_has(choice: Any, profile: Profile, reason: str) -> None:
    """CH15."""
    tools = [{"type": "function", "function": {"name": "f"}}]
    stream = openai_chat.Stream(chat(profile, messages=USER, tools=tools, tool_choice=choice))

    frames = [frame for event in [STARTED, *call(0), Finished(FinishReason.TOOL_CALLS, USAGE)] for frame in stream.on(event)]

    assert frames[-2].payload["choices"][0]["finish_reason"] == reason


def test_reasoning_tokens_are_counted_in_every_convention() -> None:
    first = answered("chat", TextDelta("a"))["usage"]
    second = answered("responses", TextDelta("a"))["usage"]
    third = answered("messages", TextDelta("a"))["usage"]

    assert first["completion_tokens_details"]["reasoning_tokens"] == 2
    assert second["output_tokens_details"]["reasoning_tokens"] == 2
    assert third["output_tokens_details"]["thinking_tokens"] == 2
    assert (
        first["prompt_cache_hit_tokens"]
        == second["input_tokens_details"]["cached_tokens"]
        == third["cache_read_input_tokens"]
        == 4
    )


def test_choices_interleave_and_each_ends_once() -> None:
    """CH6, CH8."""
    stream, accumulator = openai_chat.Stream(chat(messages=USER, n=2), include_usage=True), openai_chat.Accumulator()
    events: list[Event] = [STARTED, TextDelta("a", 1), TextDelta("b", 0), TextDelta("c", 1)]
    events += [Finished(FinishReason.LENGTH, USAGE, choice=1), TextDelta("d", 0), Finished(FinishReason.END, USAGE, choice=0)]

    check = StreamCheck("chat")
    for event in events:
        for frame in stream.on(event):
            check.feed(frame.encode())
            accumulator.on(frame)

    choices = json.loads(accumulator.result())["choices"]
    assert check.finish() == []
    assert [(one["message"]["content"], one["finish_reason"]) for one in choices] == [("bd", "stop"), ("ac", "length")]


def test_a_text_block_has_a_list_of_citations_and_never_a_null() -> None:
    """The published schema requires the key; the AI SDK refuses the whole answer for a null."""
    (block,) = answered("messages", TextDelta("a"))["content"]

    assert block == {"type": "text", "text": "a", "citations": []}
