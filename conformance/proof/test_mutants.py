"""Every planted fault is seen, by the right rule; nothing right is."""

from __future__ import annotations

from collections import Counter

import pytest

from conformance.mutants.scenario_faults import SCENARIO_FAULTS
from conformance.mutants.score import (
    Score,
    rules_without_a_fault,
    score_faults,
    score_sessions,
    score_systematic,
    score_websocket,
)


def test_every_named_fault_is_told_by_one_of_its_rules() -> None:
    score = Score()
    score_faults(score)

    assert not score.survivors
    assert sum(score.planted.values()) >= 150


@pytest.mark.parametrize("protocol", ["chat", "responses", "messages"])
def test_every_systematic_mutant_is_seen_or_means_the_same(protocol: str) -> None:
    score = Score()
    score_systematic(score, protocol)

    assert not score.alarms
    assert not score.survivors
    assert score.num_systematic > 2_000


def test_every_systematic_mutant_of_a_connection_is_seen_or_means_the_same() -> None:
    score = Score()
    score_sessions(score)

    assert score.is_perfect, [*score.survivors, *score.alarms]
    assert score.num_systematic > 5_000


def test_faults_of_a_websocket_session_are_told() -> None:
    score = Score()
    score_websocket(score)

    assert score.is_perfect, [*score.survivors, *score.alarms]


def test_no_rule_that_is_checked_is_without_a_planted_fault() -> None:
    score = Score()
    score_faults(score)
    score_websocket(score)
    servers = Counter(rule for _, _, rule in SCENARIO_FAULTS)

    assert rules_without_a_fault(score.planted, servers) == []
    del servers["K8"]
    assert rules_without_a_fault(score.planted, servers) == ["K8"], "a rule without one is named"
