"""Ids into events: whatever the cuts, the text is the same, nothing leaks, and every call has an id of its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.engine.conversation import WEATHER
from zllm_ref.canonical.event import (
    Event,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from zllm_ref.canonical.message import Message, Role, Text, ToolCall
from zllm_ref.canonical.request import Protocol
from zllm_ref.dialect import ToolDialect, dialect_for, encode
from zllm_ref.dialect.definitions import DEFINITIONS
from zllm_ref.dialect.markup import markers_of
from zllm_ref.dialect.registry import dialect_names
from zllm_ref.engine.answer import ChoiceAnswer, tool_call_id
from zllm_ref.engine.content_logprobs import ContentLogprobs
from zllm_ref.engine.stop_strings import StopStringScanner
from zllm_ref.fence.grammar import Marker
from zllm_ref.tokenizer.byte_vocabulary import ByteEncoder, byte_vocabulary
from zllm_ref.tokenizer.vocabulary import Vocabulary

from .conversation import json_object

BYTES = byte_vocabulary()
texts = st.text(st.sampled_from("abcé日🙂"), max_size=14)
stops = st.lists(st.text(st.sampled_from("abcé日🙂"), min_size=1, max_size=4), max_size=3)


def pieces_vocabulary(pieces: Sequence[bytes]) -> Vocabulary:
    """One id for every piece of bytes, in order: any tokenisation of a text."""
    return Vocabulary([*pieces, b"<|im_end|>"], {"<|im_end|>": len(pieces)}, ByteEncoder())


def answer_of(
    vocabulary: Vocabulary,
    stop: Sequence[str] = (),
    *,
    dialect: str | None = None,
    has_tools: bool = False,
    request_id: str = "r",
) -> ChoiceAnswer:
    chosen = dialect_for(None, vocabulary, dialect)
    tools = (WEATHER,) if has_tools else ()
    layout = chosen.definition.reasoning
    thinking = () if layout is None else (layout.open_marker.name, layout.close_marker.name)
    known = frozenset(chosen.definition.markers if has_tools else thinking)
    return ChoiceAnswer(vocabulary, chosen.parser(tools), stop, 0, (Protocol.CHAT, request_id), known)


def say(answer: ChoiceAnswer, ids: Sequence[int], logprobs: Sequence[TokenLogprob | None] = ()) -> list[Event]:
    """Pushes ids until a stop string appears, as the listener does; then the end."""
    events: list[Event] = []
    for index, token_id in enumerate(ids):
        events += answer.push(token_id, logprobs[index] if logprobs else None)
        if answer.stop_string is not None:
            break
    return events + answer.finish()


def text_of(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def plainly_stopped(text: str, stop: Sequence[str]) -> tuple[str, str | None]:
    """The plain way: read character by character; the first stop string that is complete ends the text before it."""
    for end in range(1, len(text) + 1):
        ending = [string for string in stop if text[:end].endswith(string)]
        if ending:
            longest = max(ending, key=len)
            return text[: end - len(longest)], longest
    return text, None


def cut(value: bytes, places: Sequence[int]) -> list[bytes]:
    edges = sorted({0, len(value), *(place for place in places if place < len(value))})
    return [value[start:end] for start, end in pairwise(edges)]


# stop strings


@given(texts, stops, st.lists(st.integers(1, 60), max_size=12))
@example("abcd", ["bc", "abcd"], [])
@example("abc", ["ab", "abc"], [])
@example("aab", ["ab"], [1, 2])
def test_the_text_before_a_stop_string_does_not_depend_on_how_the_text_was_cut(
    text: str, stop: list[str], places: list[int]
) -> None:
    pieces = cut(text.encode(), places)

    answer = answer_of(pieces_vocabulary(pieces), stop)
    events = say(answer, range(len(pieces)))

    assert (text_of(events), answer.stop_string) == plainly_stopped(text, stop)


@given(texts, stops, st.lists(st.integers(1, 20), max_size=8))
def test_a_scanner_never_shows_what_it_would_have_to_take_back(text: str, stop: list[str], places: list[int]) -> None:
    scanner = StopStringScanner(stop)
    expected, _ = plainly_stopped(text, stop)
    shown = ""
    edges = sorted({0, len(text), *(place for place in places if place < len(text))})

    for start, end in pairwise(edges):
        shown += scanner.push(text[start:end])
        assert expected.startswith(shown)

    assert shown + scanner.finish() == expected


def test_the_stop_string_that_is_complete_first_wins() -> None:
    assert plainly_stopped("say END now STOP", ["STOP", "END"]) == ("say ", "END")
    scanner = StopStringScanner(["STOP", "END"])

    assert scanner.push("say END now STOP") == "say "
    assert scanner.found == "END"
    assert scanner.push("more") == scanner.finish() == ""


def test_what_could_only_have_become_a_stop_string_comes_out_at_the_end() -> None:
    scanner = StopStringScanner(["</s>"])

    assert scanner.push("a </") == "a "
    assert scanner.finish() == "</"


def test_an_empty_stop_string_stops_nothing() -> None:
    scanner = StopStringScanner(["", "x"])

    assert scanner.push("ab") == "ab"


def test_stop_strings_do_not_look_into_reasoning_or_calls() -> None:
    ids = BYTES.encode_with_markers(
        '<think>\nSTOP\n</think>\n\nok<tool_call>\n{"name": "get_weather", "arguments": {"city": "STOP"}}\n</tool_call>'
    )
    answer = answer_of(BYTES, ["STOP"], has_tools=True)

    events = say(answer, ids)

    assert answer.stop_string is None
    assert text_of(events).strip() == "ok"
    assert answer.has_calls


# text


@given(texts, st.lists(st.integers(1, 60), max_size=12))
def test_no_character_is_ever_cut(text: str, places: list[int]) -> None:
    pieces = cut(text.encode(), places)

    events = say(answer_of(pieces_vocabulary(pieces)), range(len(pieces)))

    assert text_of(events) == text
    assert all("\ufffd" not in event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.parametrize("has_tools", [False, True])
@pytest.mark.parametrize("dialect", dialect_names())
@settings(max_examples=15)
@given(st.lists(st.one_of(st.integers(97, 100), st.integers(256, BYTES.size - 1)), max_size=12))
def test_no_marker_leaks_into_text_or_reasoning(dialect: str, has_tools: bool, ids: list[int]) -> None:
    answer = answer_of(BYTES, dialect=dialect, has_tools=has_tools)
    opener = fence_trigger(dialect)

    events = say(answer, ids)

    thought = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    seen = {marker for marker in BYTES.markers if marker in text_of(events)}
    if not has_tools or opener not in seen:
        assert not seen
    # Markup of calls may be spoken of while thinking, and what began as a call and is none stays as it was written.
    of_calls = set(markers_of(*dialect_for(None, BYTES, dialect).definition.calls.framings)) if has_tools else set()
    assert seen <= of_calls
    assert {marker for marker in BYTES.markers if marker in thought} <= set(
        markers_of(*dialect_for(None, BYTES, dialect).definition.calls.framings)
    )


@pytest.mark.parametrize("has_tools", [False, True])
@pytest.mark.parametrize("dialect", dialect_names())
def test_a_stray_marker_in_mid_text_is_left_out_and_its_neighbours_stay(dialect: str, has_tools: bool) -> None:
    opener = fence_trigger(dialect)
    for marker in BYTES.markers:
        if marker in DEFINITIONS[dialect].end_markers or (has_tools and marker == opener):
            continue
        answer = answer_of(BYTES, ["never"], dialect=dialect, has_tools=has_tools)
        ids = [*BYTES.encode_text("one ne"), BYTES.markers[marker], *BYTES.encode_text("ver two")]
        entries = [logprob(BYTES, token_id) for token_id in ids]

        events = say(answer, ids, entries)

        # What the client sees is "never": a marker that is left out does not hide a stop string either.
        assert (text_of(events), answer.stop_string) == ("one ", "never"), marker
        assert b"".join(entry.bytes for entry in logprobs_of(events)) == b"one ", marker

        held = answer_of(BYTES, ["never ends"], dialect=dialect, has_tools=has_tools)
        released = say(held, ids, entries)

        assert text_of(released) == "one never two", marker
        assert b"".join(entry.bytes for entry in logprobs_of(released)) == b"one never two", marker


def fence_trigger(dialect: str) -> str:
    """The marker that opens a call."""
    trigger = dialect_for(None, BYTES, dialect).fence_grammar(()).trigger
    assert isinstance(trigger, Marker)
    return trigger.name


# log probabilities


def logprob(vocabulary: Vocabulary, token_id: int) -> TokenLogprob:
    spelled = vocabulary.token_bytes(token_id)
    return TokenLogprob(spelled.decode("utf-8", "replace"), spelled, -float(token_id))


def logprobs_of(events: Sequence[Event]) -> list[TokenLogprob]:
    return [entry for event in events if isinstance(event, TextDelta) for entry in event.logprobs]


@given(texts, st.lists(st.integers(1, 60), max_size=12), st.lists(st.integers(0, 12), max_size=3))
def test_the_bytes_of_the_log_probabilities_joined_are_the_content(text: str, places: list[int], marked: list[int]) -> None:
    """Also where markers that are not shown stand between the tokens."""
    pieces = cut(text.encode(), places)
    vocabulary = pieces_vocabulary(pieces)
    ids = list(range(len(pieces)))
    for place in marked:
        before = b"".join(vocabulary.token_bytes(i) for i in ids[:place] if i < len(pieces))
        if place <= len(ids) and before.decode("utf-8", "ignore").encode() == before:
            ids.insert(place, len(pieces))

    events = say(answer_of(vocabulary), ids, [logprob(vocabulary, token_id) for token_id in ids])

    assert b"".join(entry.bytes for entry in logprobs_of(events)).decode() == text_of(events) == text
    assert [int(-entry.logprob) for entry in logprobs_of(events)] == [token_id for token_id in ids if token_id < len(pieces)]


def test_tokens_of_reasoning_and_calls_have_no_place_in_the_contents_log_probabilities() -> None:
    ids = BYTES.encode_with_markers(
        '<think>\nhm\n</think>\n\nok <tool_call>\n{"name": "get_weather", "arguments": {"city": "x"}}\n</tool_call>'
    )
    answer = answer_of(BYTES, has_tools=True)

    events = say(answer, ids, [logprob(BYTES, token_id) for token_id in ids])

    assert b"".join(entry.bytes for entry in logprobs_of(events)).decode() == text_of(events)


# calls


def call_ids(request_id: str, dialect: str | None = None) -> tuple[list[Event], list[str]]:
    chosen = dialect_for(None, BYTES, dialect)
    calls = Message(Role.ASSISTANT, tuple(ToolCall("", "get_weather", json_object({"city": city})) for city in ("Rome", "Rome")))
    ids = [*BYTES.encode_text("Let me look."), *encode(chosen.render_calls(calls), BYTES)]
    answer = answer_of(BYTES, dialect=dialect, has_tools=True, request_id=request_id)
    events = say(answer, ids)
    return events, [event.call_id for event in events if isinstance(event, ToolCallStarted)]


@pytest.mark.parametrize("dialect", dialect_names())
def test_deltas_of_a_call_joined_are_what_it_finished_with(dialect: str) -> None:
    events, ids = call_ids("r1", dialect)

    assert len(ids) == 2
    assert text_of(events).strip() == "Let me look."
    for ordinal in (0, 1):
        joined = "".join(event.text for event in events if isinstance(event, ToolArgumentsDelta) and event.ordinal == ordinal)
        finished = [event.arguments for event in events if isinstance(event, ToolCallFinished) and event.ordinal == ordinal]
        assert [joined] == finished == ['{"city": "Rome"}']


def test_ids_of_calls_are_unique_within_an_answer_and_across_requests() -> None:
    seen = [*call_ids("r1")[1], *call_ids("r2")[1]]

    assert len(set(seen)) == 4
    assert seen[:2] == call_ids("r1")[1]


@given(st.lists(st.tuples(st.text(max_size=3), st.integers(0, 3), st.integers(0, 3), st.text(max_size=3)), unique=True))
def test_the_id_of_a_call_tells_request_choice_place_and_name_apart(places: list[tuple[str, int, int, str]]) -> None:
    ids = {tool_call_id((Protocol.MESSAGES, request_id), choice, ordinal, name) for request_id, choice, ordinal, name in places}

    assert len(ids) == len(places)
    assert all(call_id.startswith("toolu_") for call_id in ids)


def test_reasoning_comes_apart_from_text_and_is_counted() -> None:
    answer = answer_of(BYTES)

    events = say(answer, BYTES.encode_with_markers("<think>\nhm, well\n</think>\n\nYes."))

    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == "hm, well"
    assert text_of(events) == "Yes."
    assert 0 < answer.reasoning_tokens <= len("<think>\nhm, well\n")
    assert answer.message().reasoning == "hm, well"


def test_a_message_is_what_the_events_said() -> None:
    events, _ = call_ids("r9")
    answer = answer_of(BYTES, has_tools=True, request_id="r9")
    chosen: ToolDialect = dialect_for(None, BYTES)
    calls = Message(Role.ASSISTANT, (ToolCall("", "get_weather", json_object({"city": "Rome"})),))
    say(answer, [*BYTES.encode_text("Let me look."), *encode(chosen.render_calls(calls), BYTES)])

    message = answer.message()

    assert message.text == text_of(events)
    assert [call.name for call in message.tool_calls] == ["get_weather"]
    assert answer.is_whole


def test_an_answer_that_was_cut_is_not_whole() -> None:
    stopped, broken = answer_of(BYTES, ["b"]), answer_of(BYTES, has_tools=True)

    say(stopped, BYTES.encode_text("abc"))
    say(broken, BYTES.encode_with_markers('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Ro'))

    assert not stopped.is_whole
    assert not broken.is_whole
    assert not broken.has_calls


def test_text_parts_are_text() -> None:
    answer = answer_of(BYTES)
    say(answer, BYTES.encode_text("hello"))

    assert answer.message() == Message(Role.ASSISTANT, (Text("hello"),))


def test_what_was_skipped_is_not_taken_for_content_that_reads_the_same() -> None:
    entries = ContentLogprobs()
    thought, said = TokenLogprob("a", b"a", -1.0), TokenLogprob("a", b"a", -2.0)
    entries.push("a", thought)
    entries.skip()
    entries.push("a", said)

    assert entries.take("a") == (said,)
