"""Accept and reject goldens of a WebSocket connection: single turns, chains, lanes, warm-up, steering, errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from conformance.golden.case import Case
from conformance.golden.render_responses import render_stream
from conformance.golden.session_case import PROTOCOL, Line, SessionCase
from conformance.golden.story import Call, Frame, Reasoning, Story, Text
from conformance.mutants.faults_websocket import WEBSOCKET_FAULTS, websocket_lines
from conformance.mutants.systematic import Mutant, mutants_of

_NUM_REJECTS: Final = {False: 150, True: 220}
_ONLY_SSE: Final = frozenset({"error", "keepalive"})
_HELLO: Final = Text(("Hel", "lo."))


def single_turns(cases: Iterator[Case]) -> Iterator[SessionCase]:
    """The right streams of Responses as turns on a connection: the same events, without event lines, comments and [DONE]."""
    for case in cases:
        frames = on_connection(case)
        kinds = {frame.data["type"] for frame in frames if isinstance(frame.data, dict)}
        if case.profile == "default" and not kinds & _ONLY_SSE:
            name = case.id.partition("/accept/")[2]
            yield SessionCase(f"{PROTOCOL}/accept/{name}", "accept", case.title, ("WS3", *case.rules), as_lines(frames))


def on_connection(case: Case) -> list[Frame]:
    return [Frame(None, frame.data) for frame in case.frames if isinstance(frame.data, dict) and not frame.is_comment]


def as_lines(frames: list[Frame]) -> tuple[Line, ...]:
    """One request and its events."""
    return (("sent", _create()), *(("received", frame.data) for frame in frames))


def whole_connections() -> Iterator[SessionCase]:
    """Connections with more than a turn, or with what only a connection has."""

    def case(name: str, title: str, rules: str, *lines: Line) -> SessionCase:
        return SessionCase(f"{PROTOCOL}/accept/{name}", "accept", title, tuple(rules.split()), lines)

    first, second = _events(_HELLO, "t1"), _events(Text(("Bye.",)), "t2")
    called = _events(Call("get_weather", ('{"location":', '"Paris"}')), "t3")
    output = [{"type": "function_call_output", "call_id": _call_id(called), "output": "sunny"}]
    left, right = _events(_HELLO, "l1", "left"), _events(Text(("There.",)), "r1", "right")
    error, lost = ("received", _error()), ("received", _error("previous_response_not_found", "previous_response_id"))
    warm = _events(None, "w1")
    yield case("turns/two", "two turns in series", "WS4 WS5", _ask(), *first, _ask(), *second)
    yield case("turns/three", "three turns in series", "WS4 WS5", _ask(), *first, _ask(), *second, _ask(), *_events(_HELLO, "t9"))
    yield case("turns/asked-ahead", "two requests at once are served in series", "WS5", _ask(), _ask(), *first, *second)
    yield case("turns/none", "a connection on which nobody asked", "WS1")
    yield case("turns/reasoning", "reasoning, then text", "WS3", _ask(), *_events(Reasoning(("Hm", "m.")), "t4", more=(_HELLO,)))
    yield case("chain/continued", "previous_response_id", "WS8", _ask(), *first, _ask(previous=_id(first)), *second)
    yield case(
        "chain/tool-output-alone", "the output of a call is all that is sent", "WS8 C9",
        _ask(), *called, _ask(previous=_id(called), input=output), *second,
    )  # fmt: skip
    yield case("chain/unknown", "an unknown id, then a right turn", "WS7 WS8", _ask(previous="resp_x"), lost, _ask(), *first)
    yield case(
        "chain/forgotten", "a failed continuation is forgotten", "WS9",
        _ask(), *first, _ask(previous=_id(first), input=7), error, _ask(previous=_id(first)), lost,
    )  # fmt: skip
    yield case("warm-up/alone", "generate: false", "WS10", _ask(generate=False), *warm)
    yield case(
        "warm-up/continued", "generate: false, and on", "WS10", _ask(generate=False), *warm, _ask(previous=_id(warm)), *first
    )
    yield case("lanes/one", "a named lane", "WS6", _ask(lane="left"), *left)
    yield case(
        "lanes/two-in-series", "two lanes, one after the other", "WS6", _ask(lane="left"), *left, _ask(lane="right"), *right
    )
    mixed = [line for pair in zip(left, right, strict=False) for line in pair] + list(left[len(right) :] or right[len(left) :])
    yield case("lanes/two-at-once", "two lanes whose events alternate", "WS5 WS6", _ask(lane="left"), _ask(lane="right"), *mixed)
    yield case(
        "lanes/beside-default", "a named lane beside the default one", "WS6",
        _ask(), _ask(lane="right"), *first[:3], *right, *first[3:],
    )  # fmt: skip
    yield case(
        "lanes/error-on-one", "an error on one lane, the other goes on", "WS6 WS7",
        _ask(lane="left"), _ask(lane="right", input=7), *left[:2], ("received", {**_error(), "stream_id": "right"}), *left[2:],
    )  # fmt: skip
    yield case("lanes/odd-names", "the whole alphabet of names", "WS6", _ask(lane="A.z_0-9"), *_events(_HELLO, "o1", "A.z_0-9"))
    yield case("errors/then-turn", "an error, then a right turn", "WS7 WS12", _ask(input=7), error, _ask(), *first)
    yield case("errors/after-turn", "a right turn, then an error", "WS7", _ask(), *first, _ask(input=7), error)
    yield case("errors/without-param", "an error that names no field", "WS7", _ask(), ("received", _error("invalid_json", None)))
    yield case("errors/server", "a 500 as an envelope", "WS7", _ask(), ("received", _error("server_error", None, 500)))
    yield case(
        "errors/numbered", "an error with a sequence_number", "WS7", _ask(), ("received", {**_error(), "sequence_number": 0})
    )
    yield case("end/failed", "a response that fails", "WS3 RS14", _ask(), *_events(_HELLO, "f1", end="failed"))
    yield from _steered(case, first, second)


def _steered(case: Any, first: tuple[Line, ...], second: tuple[Line, ...]) -> Iterator[SessionCase]:
    cut = _events(_HELLO, "s1", end="length")
    terminal = json.loads(json.dumps(cut[-1][1]).replace("max_output_tokens", "steered"))
    cut = (*cut[:-1], ("received", terminal))
    steer: Line = ("sent", {"type": "response.steer", "previous_response_id": _id(cut), "input": "Shorter."})
    told = {"id": "steer_1", "previous_response_id": _id(cut)}
    accepted: Line = ("received", {"type": "response.steer.accepted", "sequence_number": 0, "steer": told})
    yield case("steer/accepted", "steered, then its successor", "WS15", _ask(), *cut[:5], steer, accepted, *cut[5:], *second)
    counted = (*cut[:5], ("received", {**accepted[1], "sequence_number": 5}), *_renumbered(cut[5:], 6))
    yield case(
        "steer/counted",
        "the acknowledgement has a number of the response",
        "WS15",
        _ask(),
        *counted[:5],
        steer,
        *counted[5:],
        *second,
    )
    called = _events(Call("get_weather", ('{"location":', '"Paris"}')), "t6")
    on_call = {"id": "steer_2", "previous_response_id": _id(called)}
    pending: Line = (
        "received",
        {
            "type": "response.steer.pending",
            "sequence_number": 1,
            "steer": on_call,
            "reason": "waiting_for_required_input",
            "required_input": [{"type": "function_call_output", "call_id": _call_id(called), "output": None}],
        },
    )
    yield case(
        "steer/pending", "steering waits for a call's output", "WS15",
        _ask(), *called[:3], ("sent", {**steer[1], "previous_response_id": _id(called)}),
        ("received", {**accepted[1], "steer": on_call}), *called[3:], pending,
    )  # fmt: skip
    failed: Line = (
        "received",
        {
            "type": "response.steer.failed",
            "sequence_number": 0,
            "steer": {"previous_response_id": _id(first), "input": "Shorter."},
            "error": {"type": "invalid_request_error", "code": "response_already_completed", "message": "too late"},
        },
    )
    late: Line = ("sent", {**steer[1], "previous_response_id": _id(first)})
    yield case("steer/failed", "steering that comes too late", "WS15", _ask(), *first, late, failed)


def _renumbered(lines: tuple[Line, ...], start: int) -> tuple[Line, ...]:
    return tuple((side, {**message, "sequence_number": start + number}) for number, (side, message) in enumerate(lines))


def planted() -> Iterator[SessionCase]:
    """The connection of the named faults, with each of them."""
    for number, (what, rules, edit) in enumerate(WEBSOCKET_FAULTS, 1):
        lines = websocket_lines()
        edit(lines)
        told = tuple((line["direction"], line.get("message", line.get("text"))) for line in lines)
        yield _reject(f"faults/W{number:02d}", what, rules, told)


def damaged(cases: list[SessionCase]) -> Iterator[SessionCase]:
    """Systematic faults on accept cases, one a kind of fault, event and field, until there are enough."""
    seen: set[tuple[str, str, str]] = set()
    number = len(WEBSOCKET_FAULTS)
    for fields in (False, True):
        for case in cases:
            for mutant in session_mutants(case, fields):
                key = (mutant.operator, mutant.kind, mutant.path)
                if number >= _NUM_REJECTS[fields] or key in seen or bool(mutant.path) is not fields:
                    continue
                lines = mutated(case, mutant)
                found = SessionCase("", "", "", (), lines).check().violations
                if found:
                    seen.add(key)
                    number += 1
                    name = f"{mutant.operator}/{mutant.kind}{'-' * bool(mutant.path)}{mutant.path.replace('*', 'n')}"
                    title = f"{mutant.operator} {mutant.kind} {mutant.path}".strip() + f" in {case.id}"
                    yield _reject(name, title, (found[0].rule,), lines)


def session_mutants(case: SessionCase, fields: bool = True) -> Iterator[Mutant]:
    """Single faults in what was received."""
    frames = tuple(Frame(None, message) for side, message in case.lines if side == "received")
    yield from mutants_of(Case(case.id, "responses", "accept", "", (), frames), fields)


def mutated(case: SessionCase, mutant: Mutant) -> tuple[Line, ...]:
    """The connection with the mutant's events; a request stays before the event that it stood before."""
    received = [message for side, message in case.lines if side == "received"]
    changed = [frame.data for frame in mutant.frames]
    lines: list[Line] = []
    place, shift = 0, len(changed) - len(received)
    for side, message in case.lines:
        if side == "sent":
            lines.append((side, message))
            continue
        place += 1
        if mutant.operator == "cut" and place > mutant.event:
            break
        if place == mutant.event and mutant.operator == "drop":
            continue
        offset = shift if place > mutant.event and mutant.operator in ("drop", "repeat") else 0
        lines.append((side, changed[place - 1 + offset]))
        if place == mutant.event and mutant.operator == "repeat":
            lines.append((side, changed[place]))
    return tuple(lines)


def _reject(name: str, title: str, rules: tuple[str, ...], lines: tuple[Line, ...]) -> SessionCase:
    found = SessionCase("", "", "", (), lines).check().violations
    first = next(one for one in found if one.rule in rules)
    expect = {"rule": first.rule, "event": first.event}
    return SessionCase(f"{PROTOCOL}/reject/{name}", "reject", title, rules, lines, expect=expect)


def _events(part: Any, scope: str, lane: str | None = None, end: str = "stop", more: tuple[Any, ...] = ()) -> tuple[Line, ...]:
    """A turn's events; no part: a warm-up, which says nothing."""
    parts = () if part is None else (part, *more)
    story = Story(parts, end=end, scope=scope, completion_tokens=0 if part is None else 9)
    extra = {"stream_id": lane} if lane else {}
    told = [frame.data for frame in render_stream(story) if isinstance(frame.data, dict)]
    return tuple(("received", {**json.loads(json.dumps(data)), **extra}) for data in told)


def _ask(previous: str | None = None, lane: str | None = None, **more: Any) -> Line:
    named = {"previous_response_id": previous, "stream_id": lane}
    return "sent", {**_create(), **{key: value for key, value in named.items() if value is not None}, **more}


def _create() -> dict[str, Any]:
    return {"type": "response.create", "model": "golden-1", "input": "hi", "store": False}


def _error(code: str = "invalid_value", param: str | None = "input", status: int = 400) -> dict[str, Any]:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"type": "error", "status": status, "error": {"type": kind, "message": "m", "code": code, "param": param}}


def _id(lines: tuple[Line, ...]) -> str:
    return str(lines[0][1]["response"]["id"])


def _call_id(lines: tuple[Line, ...]) -> str:
    return next(str(message["item"]["call_id"]) for _, message in lines if "call_id" in message.get("item", {}))
