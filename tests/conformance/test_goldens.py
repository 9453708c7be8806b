"""Accept cases are silent, reject cases fall at the rule and event that they name, and every line fits the schema."""

from __future__ import annotations

import json

import jsonschema
import pytest

from conformance.checker.stream_check import StreamCheck
from conformance.golden.build import PROTOCOLS, accept_cases, kind_of
from conformance.golden.case import Case, golden_root, load_cases
from conformance.golden.exchange import load_exchange
from conformance.golden.match import MATCHERS
from conformance.grammar import load_grammar
from conformance.requirements import load_requirements

WANTED = {"accept": 40, "reject": 100}
NUM_EXCHANGES = 40


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_accept_cases_are_silent_alone_and_beside_their_unary_answer(protocol: str) -> None:
    alarms = [
        f"{case.id}: {violation}"
        for case in load_cases(protocol, "accept")
        for unary in (None, case.unary)
        for violation in _check(case, unary)
    ]

    assert not alarms


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_reject_cases_fall_where_they_say(protocol: str) -> None:
    wrong = []
    for case in load_cases(protocol, "reject"):
        assert case.expect is not None
        told = [(violation.rule, violation.event) for violation in _check(case, None)]
        if (case.expect["rule"], case.expect["event"]) not in told:
            wrong.append(f"{case.id}: expected {case.expect}, got {told}")

    assert not wrong


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", sorted(WANTED))
def test_there_are_enough_cases_and_each_cites_rules_that_exist(protocol: str, kind: str) -> None:
    cases = list(load_cases(protocol, kind))

    assert len(cases) >= WANTED[kind]
    assert all(case.rules and set(case.rules) <= set(load_requirements()) for case in cases)
    assert len({case.id for case in cases}) == len(cases)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_there_are_enough_exchanges_each_with_what_the_sdk_made_of_it(protocol: str) -> None:
    paths = list((golden_root() / protocol / "exchange").rglob("*.jsonl"))
    cases = [load_exchange(path) for path in paths]

    assert len(cases) >= NUM_EXCHANGES
    assert all(case.final and "python" in case.sdk and set(case.rules) <= set(load_requirements()) for case in cases)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_kind_of_event_stands_in_an_accept_case(protocol: str) -> None:
    seen = {kind_of(protocol, frame) for case in accept_cases(protocol) for frame in case.frames}

    assert set(load_grammar(protocol).events) <= seen


def _check(case: Case, unary: dict[str, object] | None) -> list[object]:
    check = StreamCheck(case.protocol, case.profile, unary=unary)
    check.feed(case.encode())
    return list(check.finish())


def test_every_line_of_every_golden_fits_the_schema_and_has_a_closed_matcher() -> None:
    root = golden_root()
    validator = jsonschema.Draft202012Validator(json.loads((root / "golden.schema.json").read_text()))
    wrong = []
    seen: set[frozenset[tuple[str, str]]] = set()
    for path in [path for protocol in PROTOCOLS for path in (root / protocol).rglob("*.jsonl")]:
        lines = [json.loads(line) for line in path.read_text(encoding="ascii").strip().split("\n")]
        own = [line for number, line in enumerate(lines) if number in (0, len(lines) - 1) or _is_new(line, seen)]
        wrong += [f"{path}: {error.message[:120]}" for line in own for error in validator.iter_errors(line)]
        assert lines[0]["case"] == str(path.relative_to(root)).removesuffix(".jsonl")
        if lines[0]["kind"] == "exchange":
            assert set(_matchers(lines)) <= set(MATCHERS), path

    assert not wrong


def _is_new(line: dict[str, object], seen: set[frozenset[tuple[str, str]]]) -> bool:
    """Inner lines are judged by their keys and types alone, so that one of each is enough."""
    shape = frozenset((key, type(value).__name__) for key, value in line.items())
    is_new = shape not in seen
    seen.add(shape)
    return is_new


def _matchers(value: object) -> list[str]:
    if isinstance(value, dict):
        return [key for key in value if key.startswith("$")] + [name for inner in value.values() for name in _matchers(inner)]
    return [name for inner in value for name in _matchers(inner)] if isinstance(value, list) else []
