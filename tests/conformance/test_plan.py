"""The plan of the goldens decides every cell, and the goldens are what it plans."""

from __future__ import annotations

import pytest

from conformance.golden.build import PROTOCOLS, accept_cases
from conformance.golden.plan import counts_of, features, plan_rows, row_of, rules_of
from conformance.grammar import load_grammar
from conformance.requirements import load_requirements


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_kind_of_event_is_planned_in_the_features_that_hold_it_and_in_no_other(protocol: str) -> None:
    wrong = []
    for kind, row in counts_of(protocol, accept_cases(protocol)).items():
        planned = row_of(protocol, kind)
        if planned is None or planned.features != set(row):
            wrong.append(f"{kind}: planned {sorted(planned.features) if planned else None}, there in {sorted(row)}")

    assert wrong == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_kind_of_event_stands_on_rules_that_name_their_sources(protocol: str) -> None:
    cases = list(accept_cases(protocol))
    rules = load_requirements()

    for kind in counts_of(protocol, cases):
        cited = rules_of(protocol, kind, cases)
        assert cited, kind
        assert all(rules[rule].source for rule in cited), kind


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_empty_cell_has_a_reason(protocol: str) -> None:
    names = {case.id.split("/")[2] for case in accept_cases(protocol)}

    assert names <= set(features())
    assert [row.kinds for row in plan_rows(protocol) if row.features != names and not row.elsewhere] == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_plan_names_no_kind_that_has_no_case_and_leaves_none_of_the_grammar_out(protocol: str) -> None:
    there = counts_of(protocol, accept_cases(protocol))

    assert {kind.split(" ")[0] for kind in there} >= set(load_grammar(protocol).events) - {"chunk"}
    unused = [row.kinds for row in plan_rows(protocol) if not any(row_of(protocol, kind) == row for kind in there)]
    assert unused == []
