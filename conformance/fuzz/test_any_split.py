"""The decoder: any split, any line end, the same frames."""

from __future__ import annotations

import gc
import json
import re
import sys
from itertools import pairwise
from types import FunctionType, ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.checker.sse import Frame, SseDecoder
from conformance.checker.stream_check import StreamCheck
from conformance.golden.build import accept_cases
from conformance.golden.case import load_cases

BODY = (
    "\ufeff: hello\n"
    'event: a\ndata: {"x": "1\u2028\u2029\u0085"}\n\n'
    "data:no space\n\n"
    "data: two\ndata: lines 你好 😀\nid: 7\nretry: 5\n\n"
    "event: never dispatched\n\n"
    ": bye\n\n"
).encode()
FRAMES = [Frame("a", '{"x": "1\u2028\u2029\u0085"}'), Frame(None, "no space"), Frame(None, "two\nlines 你好 😀")]


def decode(chunks: list[bytes]) -> list[Frame]:
    decoder = SseDecoder()
    return [frame for chunk in chunks for frame in decoder.feed(chunk)] + list(decoder.finish())


@given(st.lists(st.integers(0, len(BODY)), max_size=40), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_any_split_and_any_line_end_give_the_same_frames(cuts: list[int], line_end: bytes) -> None:
    body = BODY.replace(b"\n", line_end)
    places = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]

    frames = decode([body[start:end] for start, end in pairwise(places)])

    assert frames == FRAMES


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_one_byte_at_a_time_gives_the_same_frames(line_end: bytes) -> None:
    body = BODY.replace(b"\n", line_end)

    assert decode([body[place : place + 1] for place in range(len(body))]) == FRAMES


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"data: {}", "not closed by a blank line"),
        (b"data: {}\n", "not closed by a blank line"),
        (b"data: \xff\xfe\n\n", "not UTF-8"),
        (b'{"error": "no stream at all"}\n\n', "no field of an event stream"),
        (b"dat: {}\n\n", "no field of an event stream"),
    ],
)
def test_bytes_that_a_parser_would_skip_are_told(body: bytes, fault: str) -> None:
    (frame,) = decode([body])

    assert fault in (frame.fault or "")


def test_a_byte_order_mark_counts_at_the_start_only() -> None:
    assert decode([b"\xef", b"\xbb", b"\xbfdata: a\n\ndata: \xef\xbb\xbfb\n\n"]) == [Frame(None, "a"), Frame(None, "\ufeffb")]


@pytest.mark.parametrize("protocol", ["chat", "responses", "messages"])
@settings(max_examples=30)
@given(st.lists(st.integers(1, 4000), max_size=12), st.sampled_from([b"\n", b"\r\n", b"\r"]), st.booleans())
def test_the_verdict_does_not_depend_on_how_bytes_arrive(protocol: str, cuts: list[int], line_end: bytes, has_bom: bool) -> None:
    case = next(case for case in accept_cases(protocol) if case.id.endswith("/reasoning/text-call"))
    body = (b"\xef\xbb\xbf" * has_bom) + case.encode().replace(b"\n", line_end).replace(b"data:", b": note" + line_end + b"data:")
    places = [0, *sorted(cut % len(body) for cut in cuts), len(body)]
    check = StreamCheck(protocol, unary=case.unary)

    for start, end in pairwise(places):
        check.feed(body[start:end])

    assert check.finish() == []


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("protocol", ["chat", "responses", "messages"])
def test_every_reject_golden_gets_the_same_verdict_in_any_framing(protocol: str, line_end: bytes) -> None:
    """A byte order mark, comments before each field, other line ends, seven bytes at a time: rule, event, place, got."""
    for case in load_cases(protocol, "reject"):
        body = case.encode()
        framed = re.sub(rb"(?m)^(?=event:|data:)", b": note\n", body).replace(b"\n", line_end)
        other = StreamCheck(protocol, case.profile)
        for start in range(0, len(framed) + 3, 7):
            other.feed((b"\xef\xbb\xbf" + framed)[start : start + 7])
        plain = StreamCheck(protocol, case.profile)
        plain.feed(body)

        assert other.finish() == plain.finish() != [], case.id


def test_line_separators_in_data_end_no_line_and_no_frame() -> None:
    """U+2028, U+2029 and U+0085 raw in the bytes: text of a stream that is right, and of one that is not."""
    for protocol in ("chat", "responses", "messages"):
        case = next(case for case in accept_cases(protocol) if case.id.endswith("text/plain"))
        body = case.encode().replace(b"Hel", "\u2028\u2029\u0085".encode())
        right, wrong = StreamCheck(protocol), StreamCheck(protocol)
        right.feed(body)
        wrong.feed(body[: len(body) // 2])

        assert right.finish() == []
        assert right.num_events == len(case.frames)
        assert wrong.finish() != []


def test_memory_does_not_grow_with_the_stream() -> None:
    """Four times the stream, the same size: nothing is kept but digests and what is open."""
    check, sizes = StreamCheck("messages"), []
    for number in range(8_000):
        check.feed(_delta(number))
        if number + 1 in (2_000, 8_000):
            sizes.append(_bytes_of(check))

    assert abs(sizes[1] - sizes[0]) < 500  # the length of some numbers


def _bytes_of(thing: object) -> int:
    """Of all that hangs on it and is data: counted, so that it is the same whatever else this process does."""
    seen, waiting, total = set[int](), [thing], 0
    while waiting:
        one = waiting.pop()
        if id(one) not in seen and not isinstance(one, type | ModuleType | FunctionType):
            seen.add(id(one))
            total += sys.getsizeof(one)
            waiting += gc.get_referents(one)
    return total


def _delta(number: int) -> bytes:
    if number > 0:
        return _frame({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "abc "}})
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
    usage = {"input_tokens": 1, "output_tokens": 1}
    start = _frame({"type": "message_start", "message": {**message, "stop_sequence": None, "usage": usage}})
    return start + _frame({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})


def _frame(data: dict[str, object]) -> bytes:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()
