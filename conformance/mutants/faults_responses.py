# ruff: noqa: E501  (tables: a row is a line)
"""Faults in Responses streams. Edits that take events out or put some in number the rest anew, so that one fault is left."""

from __future__ import annotations

import copy
import json
from typing import Any

from conformance.golden.story import Frame
from conformance.mutants.faults import DELETE, Edit, Fault, Frames, both, drop, move, payloads, position, put, renumber, repeat

_DELTA = "response.output_text.delta"
_ADDED = "response.output_item.added"
_DONE = "response.output_item.done"
_COMPLETED = "response.completed"
_CREATED = "response.created"
_ARGUMENTS = "response.function_call_arguments.delta"
_ARGUMENTS_DONE = "response.function_call_arguments.done"


def _numbered(edit: Edit) -> Edit:
    return both(edit, renumber)


def _numbers(change: Any) -> Edit:
    def edit(frames: Frames) -> None:
        for number, data in enumerate(payloads(frames)):
            data["sequence_number"] = change(number)

    return edit


def _drop_numbers(frames: Frames) -> None:
    for data in payloads(frames):
        data.pop("sequence_number")


def _each_delta(field: str, change: Any) -> Edit:
    def edit(frames: Frames) -> None:
        for number, data in enumerate(payloads(frames, _DELTA)):
            data[field] = change(number)

    return edit


def _second_shares_index(frames: Frames) -> None:
    for data in payloads(frames):
        if data.get("output_index") == 1:
            data["output_index"] = 0


def _second_without_added(frames: Frames) -> None:
    del frames[position(frames, _ADDED, 1)]


def _one_id_for_two(frames: Frames) -> None:
    """The second item takes the first one's id, in every telling."""
    first, second = (data["item"]["id"] for data in payloads(frames, _ADDED))
    frames[:] = [
        Frame(frame.event, json.loads(json.dumps(frame.data).replace(json.dumps(second), json.dumps(first)))) for frame in frames
    ]


def _one_unary_id_for_two(unary: dict[str, Any]) -> None:
    unary["output"][1]["id"] = unary["output"][0]["id"]


def _foreign_item_id(frames: Frames) -> None:
    for data in payloads(frames, _ARGUMENTS):
        data["item_id"] = "fc_base0"


def _change_final(path: str, value: Any) -> Edit:
    return put(_COMPLETED, f"response.{path}", value)


def _incomplete_item_in_completed(frames: Frames) -> None:
    put(_DONE, "item.status", "incomplete")(frames)
    _change_final("output.0.status", "incomplete")(frames)


def _same_call_id(frames: Frames) -> None:
    for data in payloads(frames):
        if "item" in data:
            data["item"]["call_id"] = "call_same"
        for item in data.get("response", {}).get("output", ()):
            item["call_id"] = "call_same"


def _append_done_twice(frames: Frames) -> None:
    frames += [Frame(None, "[DONE]"), Frame(None, "[DONE]")]


def _append(frame: Frame) -> Edit:
    return lambda frames: frames.append(frame)


def _overlap(frames: Frames) -> None:
    """The second call opens before the first is done."""
    frame = frames.pop(position(frames, _ADDED, 1))
    frames.insert(position(frames, _DONE, 0), frame)


def _insert_unknown(frames: Frames) -> None:
    frames.insert(3, Frame("response.foo", {"type": "response.foo", "sequence_number": 0}))


def _error_first(frames: Frames) -> None:
    error = {"type": "error", "sequence_number": 0, "error": {"type": "server_error", "code": "x", "message": "m", "param": None}}
    frames[:] = [Frame("error", error)]


def _error_then_completed(frames: Frames) -> None:
    error = {"type": "error", "error": {"type": "server_error", "code": "x", "message": "m", "param": None}}
    frames.insert(-1, Frame("error", error))


def _added_with_text(frames: Frames) -> None:
    put("response.content_part.added", "part.text", "Hel")(frames)


def _other_unary_text(unary: dict[str, Any]) -> None:
    unary["output"][0]["content"][0]["text"] = "other"


def _resp(number: str, what: str, rules: str, edit: Edit, base: str = "text", **more: Any) -> Fault:
    return Fault(number, what, "responses", base, tuple(rules.split()), edit, **more)


FAULTS = [
    _resp("R01", "no sequence_number", "RS3", _drop_numbers),
    _resp("R02", "sequence_number is always 1", "RS3", _numbers(lambda number: 1)),
    _resp("R03", "sequence_number starts at 7", "RS3", _numbers(lambda number: number + 7)),
    _resp("R04", "sequence_number has gaps", "RS3", _numbers(lambda number: 2 * number)),
    _resp("R05", "another response id at the end", "RS4", _change_final("id", "resp_other")),
    _resp("R06", "no response.created", "RS1", _numbered(drop(_CREATED))),
    _resp("R07", "no output_item.added", "RS5", _numbered(drop(_ADDED))),
    _resp("R08", "no content_part.added", "RS7", _numbered(drop("response.content_part.added"))),
    _resp("R09", "no output_text.done", "RS10", _numbered(drop("response.output_text.done"))),
    _resp("R10", "no content_part.done", "RS10", _numbered(drop("response.content_part.done"))),
    _resp("R11", "no output_item.done", "RS11", _numbered(drop(_DONE))),
    _resp("R12", "each delta has an item_id of its own", "RS6", _each_delta("item_id", lambda number: f"msg_{number}")),
    _resp("R13", "deltas point at an item that is not there", "RS5", _each_delta("output_index", lambda number: 7)),
    _resp("R14", "content_index grows with each token", "RS7", _each_delta("content_index", lambda number: number)),
    _resp("R15", "the done text is not the deltas", "RS8", put("response.output_text.done", "text", "other")),
    _resp("R16", "the item's text is not the deltas", "RS8", put(_DONE, "item.content.0.text", "other")),
    _resp("R17", "the final output is empty", "RS12", _change_final("output", [])),
    _resp("R18", "the final item has another id", "RS6", _change_final("output.0.id", "msg_other")),
    _resp("R19", "output_item.done after the end", "RS11", _numbered(move(_DONE, _COMPLETED))),
    _resp("R20", "two response.completed", "RS2", _numbered(repeat(_COMPLETED))),
    _resp("R21", "the event line is not the type", "RS18 T8", lambda frames: frames.__setitem__(slice(None), [Frame("message", frame.data) for frame in frames])),
    _resp("R22", "no event lines", "RS18 T8", lambda frames: frames.__setitem__(slice(None), [Frame(None, frame.data) for frame in frames])),
    _resp("R23", "usage null at the end", "RS13", _change_final("usage", None)),
    _resp("R24", "total is not input + output", "RS13", _change_final("usage.total_tokens", 99)),
    _resp("R25", "the done item is in_progress", "RS11", put(_DONE, "item.status", "in_progress")),
    _resp("R26", "created says completed", "RS1", put(_CREATED, "response.status", "completed")),
    _resp("R27", "a delta after output_text.done", "RS10", _numbered(move(_DELTA, "response.output_text.done", 4))),
    _resp("R28", "response.completed says incomplete", "RS2", _change_final("status", "incomplete")),
    _resp("R29", "no [DONE] where Open Responses wants it", "T4", lambda frames: None, profile="openresponses"),
    _resp("R30", "the part is done before its text", "RS10", _numbered(move("response.content_part.done", "response.output_text.done", 0, False))),
    _resp("R31", "model and time drift", "RS4", both(_change_final("model", "m2"), _change_final("created_at", 1764457299))),
    _resp("R32", "an event of an unknown kind", "T12", _numbered(_insert_unknown)),
    _resp("R33", "the done arguments are not the deltas", "RS9", put(_ARGUMENTS_DONE, "arguments", "{}"), "tools"),
    _resp("R34", "another call_id when done", "RS6", put(_DONE, "item.call_id", "call_other", 0), "tools"),
    _resp("R35", "two calls share output_index 0", "RS5", _second_shares_index, "tools"),
    _resp("R36", "a call is done that was never added", "RS5", _numbered(_second_without_added), "tools"),
    _resp("R37", "the item's arguments are no JSON", "RS9", put(_DONE, "item.arguments", '{"loc', 0), "tools"),
    _resp("R38", "the second call's deltas carry the first one's id", "RS6", _foreign_item_id, "tools"),
    _resp("R39", "a response.created too many", "RS1", _numbered(repeat(_CREATED))),
    _resp("R40", "in_progress in the middle", "RS1", _numbered(move("response.in_progress", _DELTA))),
    _resp("R41", "no terminal event", "RS2", drop(_COMPLETED)),
    _resp("R42", "two calls share a call_id", "RS16", _same_call_id, "tools"),
    _resp("R43", "the call_id is the item's id", "RS16", put(_ADDED, "item.call_id", "fc_base0", 0), "tools"),
    _resp("R44", "items overlap", "RS15", _numbered(_overlap), "tools"),
    _resp("R45", "completed carries an error", "RS14", _change_final("error", {"code": "x", "message": "m"})),
    _resp("R46", "an incomplete item in a completed response", "RS11", _incomplete_item_in_completed),
    _resp("R47", "the part's text is not the deltas", "RS8", put("response.content_part.done", "part.text", "other")),
    _resp("R48", "the final text is not the deltas", "RS8", _change_final("output.0.content.0.text", "other")),
    _resp("R49", "the final arguments are not the deltas", "RS9", _change_final("output.0.arguments", "{}"), "tools"),
    _resp("R50", "two [DONE]", "T4", _append_done_twice),
    _resp("R51", "an event after [DONE]", "T5", both(_append(Frame(None, "[DONE]")), lambda frames: frames.append(copy.deepcopy(frames[2])))),
    _resp("R52", "the error comes with status 200, first", "T6", _error_first),
    _resp("R53", "completed after an error", "T7", _numbered(_error_then_completed)),
    _resp("R54", "a text event without logprobs of type list", "RS18", put(_DELTA, "logprobs", None)),
    _resp("R55", "the announced part already holds text", "RS8", _added_with_text),
    _resp("R56", "usage before the end", "RS13", put(_CREATED, "response.usage", {"input_tokens": 1})),
    _resp("R57", "markup of a call in the text", "CH16", put(_DELTA, "delta", "<tool_call>", 0)),
    _resp("R58", "a character broken into U+FFFD", "T3", put(_DELTA, "delta", "w\ufffd", 2)),
    _resp("R59", "cached exceeds the input", "RS13", _change_final("usage.input_tokens_details.cached_tokens", 99)),
    _resp("R60", "the stream ends inside the answer", "RS2", lambda frames: frames.__delitem__(slice(5, None))),
    _resp("R61", "the unary answer is another text", "X1", lambda frames: None, needs_unary=True, edit_unary=_other_unary_text),
    _resp("R62", "arguments that are no object", "RS9", both(put(_ARGUMENTS, "delta", "["), put(_ARGUMENTS_DONE, "arguments", "[[["), put(_DONE, "item.arguments", "[[[", 0)), "tools"),
    _resp("R63", "no id in the response object", "RS4", put(_COMPLETED, "response.id", DELETE)),
    _resp("R65", "the response does not echo its tools", "RS17", put(_COMPLETED, "response.tools", DELETE)),
    _resp("R66", "two items have one id", "RS6", _one_id_for_two, "tools"),
    _resp("R67", "two items of the unary answer have one id", "RS6", lambda frames: None, "tools", needs_unary=True, edit_unary=_one_unary_id_for_two),
    _resp("R64", "an unknown reason for an incomplete response", "RS14", both(_change_final("incomplete_details", {"reason": "tired"}), put(_COMPLETED, "type", "response.incomplete"))),
]  # fmt: skip
