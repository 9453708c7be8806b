"""The catalogue: every rule is checked or excluded with a reason, every scenario and consequence exists."""

from __future__ import annotations

import json
from importlib import resources

import pytest

from conformance.checker.scenarios import all_scenarios
from conformance.grammar import PROTOCOLS, load_grammar
from conformance.requirements import PROFILES, consequence_of, levels_for, load_requirements


def test_every_requirement_is_checked_or_excluded_with_a_reason() -> None:
    scenarios = {scenario.name for scenario in all_scenarios()}
    for rule in load_requirements().values():
        how, _, name = rule.check.partition(" ")
        assert how in {"grammar", "law", "transport", "unary", "scenario", "excluded"}, rule
        assert (how == "excluded") == bool(rule.reason), rule
        assert how != "scenario" or name in scenarios or name == "errors", rule


def test_every_rule_that_a_scenario_names_exists() -> None:
    known = set(load_requirements())
    assert {rule for scenario in all_scenarios() for rule in scenario.rules} <= known


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_rule_in_a_grammar_exists(protocol: str) -> None:
    text = json.dumps(load_grammar(protocol).source)
    known = set(load_requirements())
    named = {word for word in text.replace('"', " ").replace(",", " ").replace("]", " ").split() if _looks_like_a_rule(word)}

    assert named <= known
    assert named


def test_consequences_name_clients_for_what_was_measured() -> None:
    assert "opencode" in consequence_of("RS13")
    assert "Claude Code" in consequence_of("AN2")
    for rule in load_requirements():
        assert consequence_of(rule)


def test_profiles_move_levels() -> None:
    assert levels_for("deepseek")["CH17"] == "OFF"
    assert levels_for("openresponses")["RS18"] == "MUST"
    assert all(levels_for(profile) for profile in PROFILES)
    with pytest.raises(ValueError, match="allowed default"):
        levels_for("nobody")


def test_measured_deviations_behind_the_consequences_exist() -> None:
    data = json.loads(resources.files("conformance.requirements").joinpath("consequences.json").read_text())
    for row in data["rules"].values():
        for deviation in row.get("deviations", ()):
            protocol, _, name = deviation.partition("/")
            assert name in data["measured"][protocol]


def _looks_like_a_rule(word: str) -> bool:
    letters = word.rstrip("0123456789")
    return letters != word and letters in {"T", "CH", "RS", "AN", "WS"}
