"""Puts every wrong server to the scenario that must see it, and the right one to all of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from conformance.checker.client import Client
from conformance.checker.probe import run_probe
from conformance.checker.scenarios import all_scenarios
from conformance.checker.verdict import Verdict
from conformance.mutants.scenario_faults import SCENARIO_FAULTS
from conformance.mutants.server import MODEL, right_server

_TIMEOUT_SECONDS = 120.0
_WRONG_TIMEOUT_SECONDS = 45.0
"""Shorter: one of the wrong servers never answers, which costs all of it."""
_KEY = "right-key"


@dataclass
class ServerScore:
    """`alarms`: scenarios that the right server does not pass. `survivors`: wrongs that nobody saw."""

    planted: Counter[str] = field(default_factory=Counter)
    killed: Counter[str] = field(default_factory=Counter)
    alarms: list[str] = field(default_factory=list)
    survivors: list[str] = field(default_factory=list)


def score_server() -> ServerScore:
    score = ServerScore()
    scenarios = {scenario.id: scenario for scenario in all_scenarios()}
    with right_server("needs-key") as url:
        client = Client(url, MODEL, _KEY, _TIMEOUT_SECONDS)
        for scenario in all_scenarios():
            outcome = run_probe(
                scenario.run, client, scenario.protocol, "default", scenario.feature, scenario.name, scenario.is_optional, None
            )
            if outcome.verdict is not Verdict.PASS or outcome.broken:
                score.alarms.append(
                    f"{outcome.id}: {outcome.verdict.value} {outcome.reason} {[one.rule for one in outcome.broken]}"
                )
        client.close()
    for wrong, name, rule in SCENARIO_FAULTS:
        scenario = scenarios[name]
        with right_server("needs-key", wrong) as url:
            client = Client(url, MODEL, _KEY, _WRONG_TIMEOUT_SECONDS)
            outcome = run_probe(
                scenario.run, client, scenario.protocol, "default", scenario.feature, scenario.name, scenario.is_optional, None
            )
            client.close()
        score.planted[rule] += 1
        if rule in {one.rule for one in outcome.broken}:
            score.killed[rule] += 1
        else:
            told = sorted({one.rule for one in outcome.broken})
            score.survivors.append(f"{wrong}: {name} should break {rule}; {outcome.verdict.value} {outcome.reason[:200]} {told}")
    return score
