"""Goldens of a WebSocket connection: accepted, rejected where they say, enough of each, and what the session machine owes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from conformance.golden.build import session_accepts
from conformance.golden.case import golden_root
from conformance.golden.match import MATCHERS, Matcher
from conformance.golden.session_case import PROTOCOL, SessionCase, load_session, load_sessions
from conformance.golden.sessions import single_turns, whole_connections
from conformance.requirements import load_requirements

WANTED = {"accept": 40, "reject": 100, "exchange": 40}


def connection(name: str) -> SessionCase:
    return next(case for case in whole_connections() if case.id.endswith(name))


def rules_of(case: SessionCase, *lines: Any) -> set[str]:
    return {one.rule for one in replace(case, lines=tuple(lines)).check().violations}


@pytest.mark.parametrize("kind", sorted(WANTED))
def test_there_are_enough_connections_and_each_cites_rules_that_exist(kind: str) -> None:
    cases = list(load_sessions(kind))

    assert len(cases) >= WANTED[kind]
    assert len({case.id for case in cases}) == len(cases)
    assert all(case.rules and set(case.rules) <= set(load_requirements()) for case in cases)


def test_accepted_connections_are_silent_and_rejected_ones_fall_where_they_say() -> None:
    assert [case.id for case in load_sessions("accept") if case.check().violations] == []
    wrong = []
    for case in load_sessions("reject"):
        told = [(one.rule, one.event) for one in case.check().violations]
        assert case.expect is not None
        if (case.expect["rule"], case.expect["event"]) not in told:
            wrong.append(f"{case.id}: expected {case.expect}, got {told}")
    assert wrong == []


def test_recorded_connections_have_closed_matchers_and_a_final_object_for_each_response() -> None:
    for case in load_sessions("exchange"):
        ends = [message["type"] for side, message in case.lines if side == "received"]
        assert case.sdk.startswith("openai-python")
        assert case.finals is not None
        assert len(case.finals) == sum(kind in ("response.completed", "response.incomplete", "response.failed") for kind in ends)
        assert set(_matchers([message for _, message in case.lines])) <= set(MATCHERS)


def test_every_line_fits_the_schema_and_is_read_back_as_it_was_written() -> None:
    root = golden_root()
    validator = jsonschema.Draft202012Validator(json.loads((root / "golden.schema.json").read_text()))
    for path in (root / PROTOCOL).rglob("*.jsonl"):
        text = path.read_text(encoding="ascii")
        assert load_session(path).dump() == text
        lines = [json.loads(line) for line in text.strip().split("\n")]
        shapes = {(*row, *map(type, row.values())): row for row in lines[1:]}  # of inner lines keys and types alone are judged
        assert all(validator.is_valid(row) for row in (lines[0], *shapes.values())), path


def test_single_turns_stand_for_every_right_stream_of_responses_that_a_connection_can_carry() -> None:
    assert len(session_accepts()) - len(list(whole_connections())) >= 60
    assert {case.id.split("/")[2] for case in session_accepts()} >= {"text", "tools", "reasoning", "end", "usage", "hosted"}
    assert list(single_turns(iter(()))) == []


def test_a_request_that_nobody_answers_is_told() -> None:
    case = connection("errors/then-turn")
    without_error = [line for line in case.lines if line[1].get("type") != "error"]

    assert rules_of(case, *without_error) == {"WS3"}


def test_an_accepted_steer_owes_a_successor_and_each_steer_an_answer() -> None:
    case = connection("steer/accepted")
    place = next(number for number, (_, message) in enumerate(case.lines) if message["type"] == "response.incomplete")
    without_answer = [line for line in case.lines if line[1]["type"] != "response.steer.accepted"]

    assert rules_of(case, *case.lines[: place + 1]) == {"WS15"}
    assert "WS15" in rules_of(case, *without_answer)


def test_a_number_of_its_own_on_a_steering_event_is_as_good_as_one_of_the_response() -> None:
    assert rules_of(connection("steer/accepted"), *connection("steer/accepted").lines) == set()
    counted = list(connection("steer/counted").lines)
    assert rules_of(connection("steer/counted"), *counted) == set()
    skipped = [line for line in counted if line[1]["type"] != "response.steer.accepted"]
    assert "RS3" in rules_of(connection("steer/counted"), *skipped)


def test_what_is_sent_in_a_replay_names_the_ids_that_were_seen() -> None:
    matcher = Matcher("m-1")
    assert matcher.difference({"id": {"$id": "id1"}}, {"id": "resp_7"}) is None

    sent = matcher.filled({"previous_response_id": {"$id": "id1"}, "model": {"$model": True}, "input": [{"x": 1}]})
    assert sent == {"previous_response_id": "resp_7", "model": "m-1", "input": [{"x": 1}]}


def _matchers(value: object) -> list[str]:
    if isinstance(value, dict):
        return [key for key in value if key.startswith("$")] + [name for inner in value.values() for name in _matchers(inner)]
    return [name for inner in value for name in _matchers(inner)] if isinstance(value, list) else []
