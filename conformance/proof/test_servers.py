"""The small right server is all green; each wrong one is red, by the right rule."""

from __future__ import annotations

from conformance.mutants.score_server import score_server


def test_every_scenario_passes_on_a_right_server_and_fails_on_its_wrong_one() -> None:
    score = score_server()

    assert not score.alarms
    assert not score.survivors
    assert score.planted.total() >= 120
