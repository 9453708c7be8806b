"""Responses over WebSocket: turns in series, lanes, warm-up, continuation, errors, the same events as SSE."""

from __future__ import annotations

import json
from typing import Any

from conformance.checker.answer import answer_of_response, events_of, read_answer
from conformance.checker.client import Socket, UpgradeRefusedError
from conformance.checker.dialogue import WEATHER, Ask, User, ask
from conformance.checker.probe import Probe
from conformance.checker.scenarios.table import Table
from conformance.checker.verdict import StopError, Verdict

TABLE = Table()
_RESPONSES = ("responses",)
_VOLATILE = frozenset({"id", "created_at", "completed_at", "obfuscation", "store"})


@TABLE.scenario("websocket-upgrade", "websocket", "WS1 C7", _RESPONSES, is_optional=True)
def websocket_upgrade(probe: Probe) -> None:
    """GET without an upgrade is refused in a way that lets a client fall back to HTTP."""
    plain = probe.client.send("responses", "GET", "/responses")
    probe.expect("WS1", plain.status in (400, 404, 405, 426), "426, or another clean 4xx", plain.status, plain)
    after = probe.client.ask("responses", ask("Say hello.", max_tokens=16).body("responses", probe.client.model, True))
    probe.expect("C7", after.status == 200, "200: HTTP serves on", after.status, after)
    _open(probe).close()


@TABLE.scenario("websocket-second-turn", "websocket", "WS4", _RESPONSES, is_optional=True)
def websocket_second_turn(probe: Probe) -> None:
    """The connection stays open after a terminal event and serves the next request."""
    socket = _open(probe)
    for text in ("Say hello.", "Say goodbye."):
        events = socket.turn(_create(probe, text))
        ended = bool(events) and events[-1].get("type") in ("response.completed", "response.incomplete")
        probe.expect("WS4", ended, "a terminal event", [event.get("type") for event in events[-2:]], socket.exchange)
    socket.close()


@TABLE.scenario("websocket-equals-sse", "websocket", "WS16 X3", _RESPONSES, is_optional=True)
def websocket_equals_sse(probe: Probe) -> None:
    """The same turn gives the same events over both; ids, times and cache counts aside."""
    asked = ask("Say hello in five words.", max_tokens=24)
    probe.ask(asked)
    over_http = [_stable(event) for event in events_of(probe.ask(asked).exchange)]
    socket = _open(probe)
    over_websocket = [_stable(event) for event in socket.turn(_create(probe, "Say hello in five words.", max_tokens=24))]
    socket.close()

    kinds = [[event.get("type") for event in events] for events in (over_http, over_websocket)]
    texts = [
        next((event["text"] for event in events if event.get("type") == "response.output_text.done"), "")
        for events in (over_http, over_websocket)
    ]
    probe.need(texts[0] == texts[1], "the texts differ: not deterministic")
    probe.expect("X3", kinds[0] == kinds[1], kinds[0], kinds[1], socket.exchange, "kinds of events")
    different = [pair for pair in zip(over_http, over_websocket, strict=False) if pair[0] != pair[1]]
    first = different[0] if different else ("the same", "the same")
    probe.expect("WS16", not different, json.dumps(first[0]), json.dumps(first[1]), socket.exchange, "events")


@TABLE.scenario("websocket-continuation", "websocket", "WS8 WS9 C9", _RESPONSES, is_optional=True)
def websocket_continuation(probe: Probe) -> None:
    """A chain without storing lives as long as the connection; the second turn sends the tool's output alone."""
    socket = _open(probe)
    first = socket.turn(_create(probe, "My name is Ada. Say hello."))
    response = _final(first)
    second = socket.turn(_create(probe, "What is my name?", previous_response_id=response.get("id")))
    longer = answer_of_response(socket.exchange, _final(second)).counts.prompt or 0
    shorter = answer_of_response(socket.exchange, response).counts.prompt or 0
    probe.expect("WS8", longer > shorter, f"more than {shorter} prompt tokens", longer, socket.exchange)
    called = socket.turn(
        _create(probe, "What is the weather in Paris? Use the tool.", tools=(WEATHER,), tool_choice="required", max_tokens=256)
    )
    answer = answer_of_response(socket.exchange, _final(called))
    if answer.calls:
        outputs = [{"type": "function_call_output", "call_id": call.id, "output": "sunny"} for call in answer.calls]
        message = {**_create(probe, "x", tools=(WEATHER,)), "input": outputs, "previous_response_id": answer.id}
        events = socket.turn(message)
        probe.expect("C9", bool(_final(events)), "an answer", [event.get("type") for event in events[-1:]], socket.exchange)
    _check_forgetting(probe, socket)
    socket.close()
    other = _open(probe)
    events = other.turn(_create(probe, "Hi", previous_response_id=response.get("id")))
    error = (events[-1].get("error") if events else None) or {}
    probe.expect(
        "WS8",
        error.get("code") == "previous_response_not_found",
        "previous_response_not_found",
        error,
        other.exchange,
        "after a reconnect",
    )
    other.close()


def _check_forgetting(probe: Probe, socket: Socket) -> None:
    """WS9: after a continuation that failed the lane does not know the response that it continued."""
    parent = _final(socket.turn(_create(probe, "Say hello once more."))).get("id")
    answer = {"type": "function_call_output", "call_id": "call_that_nobody_made", "output": "x"}
    failed = socket.turn({**_create(probe, "x"), "input": [answer], "previous_response_id": parent})
    if not failed or failed[-1].get("type") != "error":
        return  # the output of a call that nobody made was taken: no continuation failed
    events = socket.turn(_create(probe, "And again.", previous_response_id=parent))
    error = (events[-1].get("error") if events else None) or {}
    is_gone = error.get("code") == "previous_response_not_found"
    probe.expect("WS9", is_gone, "previous_response_not_found", error or "an answer", socket.exchange, "after a failed turn")


@TABLE.scenario("websocket-warm-up", "websocket", "WS10 C8", _RESPONSES, is_optional=True)
def websocket_warm_up(probe: Probe) -> None:
    """generate:false answers with a completed, empty response that can be continued."""
    socket = _open(probe)
    warm = _final(socket.turn({**_create(probe, "You will be asked soon."), "generate": False}))
    probe.expect(
        "WS10", warm.get("status") == "completed" and warm.get("output") == [], "completed, no output", warm, socket.exchange
    )
    probe.expect("C8", bool(warm), "an answer to the warm-up", warm, socket.exchange)
    events = socket.turn(_create(probe, "Say hello.", previous_response_id=warm.get("id")))
    probe.expect(
        "WS10", bool(_final(events)), "a continued answer", [event.get("type") for event in events[-1:]], socket.exchange
    )
    socket.close()


@TABLE.scenario("websocket-bad-frame", "websocket", "WS12 WS7", _RESPONSES, is_optional=True)
def websocket_bad_frame(probe: Probe) -> None:
    """Nonsense gets an error envelope, and the connection lives on."""
    socket = _open(probe)
    for frame in ("{not json", '{"type":"response.dance"}', '{"type":"response.create","model":7}'):
        socket.send(frame)
        event = socket.receive() or {}
        probe.expect("WS12", event.get("type") == "error", "an error envelope", event, socket.exchange, frame)
    events = socket.turn(_create(probe, "Say hello."))
    probe.expect(
        "WS7", bool(_final(events)), "an answer after the errors", [event.get("type") for event in events[-1:]], socket.exchange
    )
    socket.close()


@TABLE.scenario("websocket-lanes", "websocket", "WS5 WS6", _RESPONSES, is_optional=True)
def websocket_lanes(probe: Probe) -> None:
    """Two named lanes at once: each event echoes its lane, each lane is in series."""
    socket = _open(probe)
    for lane in ("left", "right"):
        socket.send({**_create(probe, f"Say {lane}."), "stream_id": lane})
    ended: list[object] = []
    while len(ended) < 2 and (event := socket.receive()) is not None:
        if event.get("type") == "error":
            raise StopError(Verdict.UNSUPPORTED, f"lanes: {event.get('error')}")
        if str(event.get("type")) in ("response.completed", "response.incomplete", "response.failed"):
            ended.append(event.get("stream_id"))
    probe.expect(
        "WS6", set(ended) == {"left", "right"}, "both lanes end, each by its name", sorted(map(str, ended)), socket.exchange
    )
    socket.send({**_create(probe, "Hi"), "stream_id": "no spaces!"})
    event = socket.receive() or {}
    probe.expect("WS6", event.get("type") == "error", "an error: bad lane name", event, socket.exchange)
    socket.close()


@TABLE.scenario("websocket-abort", "websocket", "WS14", _RESPONSES, is_optional=True)
def websocket_abort(probe: Probe) -> None:
    """A client that leaves in mid-answer costs nobody anything."""
    socket = _open(probe)
    socket.send(_create(probe, "Count from one to one hundred in words.", max_tokens=200))
    socket.receive()
    socket.exchange.was_cut_by_us = True
    socket.close()
    after = probe.client.ask("responses", ask("Say hello.", max_tokens=16).body("responses", probe.client.model, True))
    is_served = after.status == 200 and bool(read_answer(after).end)
    got = f"{after.status} {after.body[-200:].decode(errors='replace')}"
    probe.expect("WS14", is_served, "the next request is served", got, after)


def _open(probe: Probe) -> Socket:
    try:
        return probe.client.open_websocket()
    except UpgradeRefusedError as refusal:
        raise StopError(Verdict.UNSUPPORTED, f"no WebSocket: {refusal}") from refusal


def _create(probe: Probe, text: str, **more: Any) -> dict[str, Any]:
    extra = {key: more.pop(key) for key in ("previous_response_id",) if key in more}
    body = Ask((User(text),), **{"max_tokens": 32, **more}).body("responses", probe.client.model, True)
    body.pop("stream")
    return {"type": "response.create", **body, **extra}


def _final(events: list[dict[str, Any]]) -> dict[str, Any]:
    last = events[-1] if events else {}
    response = last.get("response") if str(last.get("type")).startswith("response.") else None
    return response if isinstance(response, dict) else {}


def _stable(value: Any) -> Any:
    """An event without what differs between two runs of the same turn."""
    if isinstance(value, dict):
        return {
            key: _stable(inner) for key, inner in value.items() if key not in _VOLATILE and not key.endswith(("_details", "_id"))
        }
    return [_stable(inner) for inner in value] if isinstance(value, list) else value
