# ruff: noqa: E501  (tables: a row is a line)
"""Faults in Anthropic Messages streams."""

from __future__ import annotations

import copy
from typing import Any

from conformance.golden.story import Frame
from conformance.mutants.faults import (
    DELETE,
    Edit,
    Fault,
    Frames,
    both,
    drop,
    move,
    payloads,
    position,
    put,
    rename_lines,
    repeat,
)

_START = "content_block_start"
_DELTA = "content_block_delta"
_STOP = "content_block_stop"


def _some_thinking(frames: Frames) -> None:
    put(_DELTA, "delta", {"type": "thinking_delta", "thinking": "hm"}, 1)(frames)


def _start_each_token(frames: Frames) -> None:
    first = copy.deepcopy(frames[position(frames, _START)])
    for place in reversed(
        [place for place, frame in enumerate(frames) if isinstance(frame.data, dict) and frame.data["type"] == _DELTA][1:]
    ):
        frames.insert(place, copy.deepcopy(first))


def _overlap(frames: Frames) -> None:
    """The second call opens before the first has stopped."""
    frame = frames.pop(position(frames, _STOP, 0))
    frames.insert(position(frames, _START, 1) + 1, frame)


def _merge(frames: Frames) -> None:
    """The second call's input goes into the first one's block."""
    del frames[position(frames, _START, 1)]
    del frames[position(frames, _STOP, 0)]
    for data in payloads(frames):
        if "index" in data:
            data["index"] = 0


def _broken_input(frames: Frames) -> None:
    put(_DELTA, "delta.partial_json", '{"a')(frames)


def _same_ids(frames: Frames) -> None:
    put(_START, "content_block.id", "toolu_same")(frames)


def _gap(frames: Frames) -> None:
    put(_STOP, "index", 3, 0)(frames)


def _counts_fall(frames: Frames) -> None:
    put("message_start", "message.usage.output_tokens", 50)(frames)


def _index(kind: str, value: int) -> Edit:
    return put(kind, "index", value)


def _all_indices(frames: Frames) -> None:
    for data in payloads(frames):
        if "index" in data:
            data["index"] += 1


def _append(frame: Frame) -> Edit:
    return lambda frames: frames.append(frame)


def _error_first(frames: Frames) -> None:
    frames[:] = [Frame("error", {"type": "error", "error": {"type": "overloaded_error", "message": "m"}})]


def _error_then_stop(frames: Frames) -> None:
    frames.insert(-2, Frame("error", {"type": "error", "error": {"type": "overloaded_error", "message": "m"}}))


def _two_signatures(frames: Frames) -> None:
    place = next(place for place, frame in enumerate(frames) if "signature_delta" in str(frame.data))
    frames.insert(place, copy.deepcopy(frames[place]))


def _drop_signature(frames: Frames) -> None:
    frames[:] = [frame for frame in frames if "signature_delta" not in str(frame.data)]


def _insert(kind: str, place: int) -> Edit:
    return lambda frames: frames.insert(place, Frame(kind, {"type": kind}))


def _message(number: str, what: str, rules: str, edit: Edit, base: str = "text", **more: Any) -> Fault:
    return Fault(number, what, "messages", base, tuple(rules.split()), edit, **more)


FAULTS = [
    _message("A01", "no message_start", "AN1", drop("message_start")),
    _message("A02", "message_start has content", "AN1 AN6", put("message_start", "message.content", [{"type": "text", "text": ""}])),
    _message("A03", "input_tokens 0 in message_start", "AN12", both(put("message_start", "message.usage.input_tokens", 0), put("message_start", "message.usage.cache_read_input_tokens", 0))),
    _message("A04", "no content_block_start", "AN2", drop(_START)),
    _message("A05", "no content_block_stop", "AN2", drop(_STOP)),
    _message("A06", "deltas point at a block that is not open", "AN3", _index(_DELTA, 5)),
    _message("A07", "blocks count from 1", "AN3", _all_indices),
    _message("A08", "a thinking_delta in a text block", "AN5", _some_thinking),
    _message("A09", "no message_delta", "AN9", drop("message_delta")),
    _message("A10", "stop_reason null at the end", "AN9", put("message_delta", "delta.stop_reason", None)),
    _message("A11", "stop_reason stop", "AN10", put("message_delta", "delta.stop_reason", "stop")),
    _message("A12", "no message_stop", "AN11", drop("message_stop")),
    _message("A13", "two message_stop", "AN11", repeat("message_stop")),
    _message("A14", "a delta after its block has stopped", "AN2", move(_DELTA, _STOP, 4)),
    _message("A15", "output_tokens go down", "AN12", _counts_fall),
    _message("A16", "the event line is not the type", "AN16", rename_lines("message")),
    _message("A17", "no event lines", "AN16", rename_lines(None)),
    _message("A18", "[DONE] at the end", "AN11", _append(Frame(None, "[DONE]"))),
    _message("A19", "a content_block_start for each token", "AN4 AN2", _start_each_token),
    _message("A20", "message_delta before content_block_stop", "AN9", move("message_delta", _STOP, 0, False)),
    _message("A21", "a text block without text", "AN15", put(_START, "content_block.text", DELETE)),
    _message("A22", "message_delta without usage", "AN14", put("message_delta", "usage", DELETE)),
    _message("A23", "no message id", "AN1", put("message_start", "message.id", DELETE)),
    _message("A24", "two message_start", "AN1", repeat("message_start")),
    _message("A25", "the stop has another index than the block", "AN3", _gap),
    _message("A26", "two tool blocks overlap", "AN2", _overlap, "tools"),
    _message("A27", "partial_json never becomes JSON", "AN7", _broken_input, "tools"),
    _message("A28", "stop_reason end_turn after a call", "AN10", put("message_delta", "delta.stop_reason", "end_turn"), "tools"),
    _message("A29", "the second call in the first one's block", "AN2 AN7", _merge, "tools"),
    _message("A30", "the start already holds the input", "AN6", put(_START, "content_block.input", {"location": "Paris"}), "tools"),
    _message("A31", "a text_delta in a tool_use block", "AN5", put(_DELTA, "delta", {"type": "text_delta", "text": "x"}, 1), "tools"),
    _message("A32", "two calls share an id", "AN7", _same_ids, "tools"),
    _message("A33", "no signature", "AN8", _drop_signature, "think"),
    _message("A34", "two signatures", "AN8", _two_signatures, "think"),
    _message("A35", "an empty signature", "AN8", put(_DELTA, "delta.signature", "", 2), "think"),
    _message("A36", "stop_sequence without its reason", "AN10", put("message_delta", "delta.stop_sequence", "###")),
    _message("A37", "tool_use without a call", "AN10", put("message_delta", "delta.stop_reason", "tool_use")),
    _message("A38", "an event after message_stop", "T5", _append(Frame("ping", {"type": "ping"}))),
    _message("A39", "the error comes with status 200, first", "T6", _error_first),
    _message("A40", "message_stop after an error", "T7", _error_then_stop),
    _message("A41", "an event of an unknown kind", "T12", _insert("message_note", 2)),
    _message("A42", "a block of an unknown kind", "T12", put(_START, "content_block.type", "poem")),
    _message("A43", "a character broken into U+FFFD", "T3", put(_DELTA, "delta.text", "w\ufffd", 2)),
    _message("A44", "a block starts with text", "AN6", put(_START, "content_block.text", "Hel")),
    _message("A45", "no usage in message_start", "AN12", put("message_start", "message.usage", DELETE)),
    _message("A46", "a special token leaks", "CH20 X1", put(_DELTA, "delta.text", "ld<|im_end|>", 3)),
    _message("A47", "the final output_tokens are not the unary ones", "AN12", put("message_delta", "usage.output_tokens", 12), needs_unary=True),
    _message("A48", "a piece is lost", "X1", lambda frames: frames.__delitem__(3), needs_unary=True),
    _message("A49", "the cache split does not add up", "AN12", put("message_start", "message.usage.cache_creation", {"ephemeral_5m_input_tokens": 1, "ephemeral_1h_input_tokens": 1})),
    _message("A50", "a delta of an unknown kind", "AN5", put(_DELTA, "delta", {"type": "poem_delta", "text": "x"}, 1)),
    _message("A51", "a half block at the end of the body", "T2", lambda frames: frames.append(Frame("ping", '{"type":'))),
]  # fmt: skip
