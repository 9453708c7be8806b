"""The suite as pytest sees it: a test a scenario and protocol. Only a pass is green."""

from __future__ import annotations

import pytest

from conformance.checker.report.terminal import text_of
from conformance.checker.run import Run
from conformance.checker.scenarios import Scenario
from conformance.checker.verdict import Verdict


def test_server(suite: Run, scenario: Scenario) -> None:
    outcome = suite.run_one(scenario)
    if outcome.is_known:
        pytest.xfail(f"known failing: {outcome.reason}")
    if outcome.verdict in (Verdict.UNSUPPORTED, Verdict.INCONCLUSIVE, Verdict.UNPROVEN):
        pytest.skip(f"{outcome.verdict.value}: {outcome.reason}")
    must = [finding for finding in outcome.broken if finding.level == "MUST"]
    assert outcome.verdict is Verdict.PASS, f"{outcome.verdict.value}: {outcome.reason}\n" + "\n".join(map(text_of, must[:5]))
