"""The Responses WebSocket as messages: what a client may say, and what is said beside the events of a response. Sans-IO.

client   response.create [stream_id] [generate:false] …   │  response.steer previous_response_id input
server   events of a response, each with the lane's stream_id  │  error envelope  │  response.steer.accepted | pending | failed
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.json_value import JsonObject, JsonValue, dump_json, kind_of
from zllm_ref.protocols.body import read_body
from zllm_ref.protocols.reader import Reader, unsupported
from zllm_ref.protocols.sse import dump, on_one_line, quote

MAX_LANES = 32
_LANE = re.compile(r"[A-Za-z0-9_.-]{1,256}\Z")
# Of the envelope, or meaningless here: a connection always streams, and its framing never changes (WS11).
_ENVELOPE = ("type", "stream_id", "generate", "stream", "stream_options")


@dataclass(frozen=True, slots=True)
class Create:
    """One response, asked for on a lane (None: the default lane). `generate` False only warms the cache (WS10)."""

    lane: str | None
    generate: bool
    body: JsonObject


@dataclass(frozen=True, slots=True)
class Steer:
    previous_response_id: str
    input: JsonValue


def read_message(raw: bytes) -> Create | Steer:
    """WS12: what cannot be read raises ApiError with a code; the connection lives on."""
    try:
        value = read_body(raw)
    except ApiError as error:
        raise ApiError(error.kind, error.message, code="invalid_json") from None
    reader = Reader(value)
    kind = reader.string("type")
    if kind == "response.create":
        lane = lane_of(value)
        if value.get("background") is True:
            raise unsupported("background", "background", "a response on a connection belongs to the connection")
        pairs = tuple(pair for pair in value.pairs if pair[0] not in _ENVELOPE)
        return Create(lane, reader.boolean("generate", default=True), JsonObject(pairs))
    if kind == "response.steer":
        return Steer(reader.required_string("previous_response_id"), reader.require("input"))
    shown = "nothing" if kind is None else f"'{kind[:100]}'"
    message = f"'type': got {shown}, allowed response.create, response.steer"
    raise ApiError(ErrorKind.INVALID_VALUE, message, param="type", code="unknown_event_type")


def lane_of(value: JsonObject) -> str | None:
    """WS6."""
    lane = value.get("stream_id")
    if lane is None:
        return None
    if not isinstance(lane, str) or not is_lane(lane):
        message = f"'stream_id': got {kind_of(lane)}, allowed 1 to 256 letters, digits and _ . -"
        raise ApiError(ErrorKind.INVALID_VALUE, message, param="stream_id", code="invalid_stream_id")
    return lane


def is_lane(name: str) -> bool:
    return _LANE.match(name) is not None


def on_lane(event: str, lane: str | None) -> str:
    """The event as it travels on a lane: named lanes are echoed on every event, the default lane on none."""
    return event if lane is None else f'{event[:-1]},"stream_id":{quote(lane)}}}'


def steer_input(steer: Steer) -> tuple[JsonValue, ...] | None:
    """The steering input as items; None where it is anything but messages of the user made of text."""
    if isinstance(steer.input, str):
        return (_user_message(steer.input),) if steer.input else None
    if not isinstance(steer.input, tuple) or not steer.input:
        return None
    return steer.input if all(_is_user_text(item) for item in steer.input) else None


def with_input(body: JsonObject, items: Sequence[JsonValue], previous_response_id: str | None = None) -> JsonObject:
    """The same request with another input, continuing from another response."""
    replaced: dict[str, JsonValue] = {"input": tuple(items)}
    if previous_response_id is not None:
        replaced["previous_response_id"] = previous_response_id
    kept = tuple(pair for pair in body.pairs if pair[0] not in replaced)
    return JsonObject((*kept, *replaced.items()))


def after_results(given: Sequence[JsonValue], held: Sequence[JsonValue]) -> tuple[JsonValue, ...]:
    """What was held stands behind the results that it waited for, and before what is said after them."""
    count = next((index for index, item in enumerate(given) if not _is_result(item)), len(given))
    return (*given[:count], *held, *given[count:])


def steer_accepted(identity: str, steer: Steer, number: int) -> str:
    shown = {"id": identity, "previous_response_id": steer.previous_response_id}
    return dump({"type": "response.steer.accepted", "sequence_number": number, "steer": shown})


def steer_pending(identity: str, previous_response_id: str, calls: Sequence[dict[str, Any]], number: int) -> str:
    """The accepted input waits until the client has answered the calls that the response stopped for."""
    stubs = [{"type": f"{_call_kind(call)}_output", "call_id": call["call_id"], "output": None} for call in calls]
    return dump(
        {
            "type": "response.steer.pending",
            "sequence_number": number,
            "reason": "waiting_for_required_input",
            "required_input": stubs,
            "steer": {"id": identity, "previous_response_id": previous_response_id},
        }
    )


def steer_failed(steer: Steer, code: str, message: str, number: int) -> str:
    """Gives the input back, so that the client can put it into its next request."""
    error = dump({"type": "invalid_request_error", "code": code, "message": message})
    given = on_one_line(dump_json(steer.input, separators=(",", ":")))
    shown = f'{{"previous_response_id":{quote(steer.previous_response_id)},"input":{given}}}'
    return f'{{"type":"response.steer.failed","sequence_number":{number},"steer":{shown},"error":{error}}}'


def _call_kind(call: dict[str, Any]) -> str:
    return "custom_tool_call" if call["type"] == "custom_tool_call" else "function_call"


def _is_result(item: JsonValue) -> bool:
    kind = item.get("type") if isinstance(item, JsonObject) else None
    return isinstance(kind, str) and kind.endswith("_call_output")


def _user_message(text: str) -> JsonObject:
    return JsonObject((("type", "message"), ("role", "user"), ("content", text)))


def _is_user_text(item: JsonValue) -> bool:
    if not isinstance(item, JsonObject) or item.get("role") != "user" or item.get("type") not in (None, "message"):
        return False
    content = item.get("content")
    if isinstance(content, str):
        return True
    return isinstance(content, tuple) and all(
        isinstance(part, JsonObject) and part.get("type") == "input_text" for part in content
    )
