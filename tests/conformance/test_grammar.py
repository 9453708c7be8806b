"""The interpreter: what it accepts, what it says, and that it forgets what is closed."""

from __future__ import annotations

import random

import pytest

from conformance.golden.build import accept_cases
from conformance.grammar import PROTOCOLS, Machine, SessionMachine, load_grammar
from tests.conformance.calls import num_calls

START = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 1},
    },
}


def machine_of(protocol: str) -> Machine:
    machine = load_grammar(protocol).start()
    assert isinstance(machine, Machine)
    return machine


def test_an_illegal_move_says_where_what_was_got_and_what_is_allowed() -> None:
    machine = machine_of("messages")
    machine.accept("message_start", START)
    machine.accept(
        "content_block_start", {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    )
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "x"}}

    (violation,) = machine.accept("content_block_delta", delta)

    assert (violation.rule, violation.event, violation.at) == ("AN5", 3, "block[0] is TEXT")
    assert violation.got == "content_block_delta(thinking_delta)"
    assert "content_block_stop" in violation.expected


@pytest.mark.parametrize("protocol", ["chat", "responses", "messages"])
def test_goldens_pass_and_leave_nothing_behind(protocol: str) -> None:
    for case in accept_cases(protocol):
        machine = load_grammar(protocol).start(case.profile)
        assert isinstance(machine, Machine)
        found = [one for frame in case.frames if not frame.is_comment for one in machine.accept(frame.event, frame.data)]
        assert [*found, *machine.finish()] == [], case.id
        assert case.id.split("/")[2] == "error" or machine.num_open <= 4 or "failed" in case.id, case.id


@pytest.mark.parametrize("protocol", ["chat", "responses", "messages"])
def test_no_input_makes_the_machine_raise(protocol: str) -> None:
    """Events of the goldens in any order, with fields of any type: violations, never an exception."""
    dice = random.Random(7)
    frames = [frame for case in accept_cases(protocol) for frame in case.frames if not frame.is_comment]
    junk = [None, True, -1, 2.5, "x", [], {}, [[]], [{}], {"a": 1}]
    for _ in range(60):
        machine = machine_of(protocol)
        for frame in dice.sample(frames, 30):
            data = dict(frame.data) if isinstance(frame.data, dict) else frame.data
            if isinstance(data, dict):
                for key in dice.sample(sorted(data), min(2, len(data))):
                    data[key] = dice.choice(junk)
            machine.accept(frame.event, data)
        machine.finish()


def test_an_event_costs_little_and_the_last_one_no_more_than_the_first() -> None:
    machine = machine_of("messages")
    machine.accept("message_start", START)
    machine.accept(
        "content_block_start", {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    )
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}}

    costs = [num_calls(lambda: machine.accept("content_block_delta", delta)) for _ in range(10_000)]

    assert len(set(costs)) == 1
    assert costs[0] < 100


def test_unknown_protocols_and_profiles_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="allowed chat, responses"):
        load_grammar("telepathy")
    for protocol in PROTOCOLS:
        with pytest.raises(ValueError, match="allowed default"):
            load_grammar(protocol).start("nobody")


def test_turns_of_two_lanes_may_interleave_and_turns_of_one_may_not() -> None:
    session = load_grammar("responses_websocket").start()
    assert isinstance(session, SessionMachine)
    case = next(case for case in accept_cases("responses") if case.id.endswith("text/plain"))
    events = [frame.data for frame in case.frames if isinstance(frame.data, dict)]

    found = []
    for event in events:
        for lane in ("left", "right"):
            found += session.accept(None, {**event, "stream_id": lane})
    assert [*found, *session.finish()] == []

    session.accept(None, events[0])
    assert "WS5" in {violation.rule for violation in session.accept(None, events[0])}
