"""Reads `results.jsonl`, and folds its lines into one verdict a rule."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conformance.requirements import load_requirements


@dataclass(frozen=True)
class Results:
    """One run: its head and its outcomes, as they were written."""

    folder: Path
    head: dict[str, Any]
    rows: list[dict[str, Any]]


@dataclass(frozen=True)
class RuleResult:
    """What a run says of a rule: held, broken, lapsed, unsupported (its protocol is not served), unproven (not exercised)."""

    rule: str
    state: str
    finding: dict[str, Any] | None = None
    scenario: str = ""
    trace: str = ""


_FAMILIES: Final = {"chat": ("CH",), "responses": ("RS", "C", "WS"), "messages": ("AN", "K"), "websocket": ("WS",)}
"""The rules of a protocol that may be absent."""


def read_results(folder: Path) -> Results:
    lines = (folder / "results.jsonl").read_text(encoding="utf-8").strip().split("\n")
    head, *rows = (json.loads(line) for line in lines)
    return Results(folder, head, rows)


def rules_of(results: Results) -> dict[str, RuleResult]:
    """Every requirement's state in a run. One broken look outweighs all that held."""
    states: dict[str, RuleResult] = {}
    for row in results.rows:
        name = f"{row['protocol']}/{row['scenario']}"
        trace = row["traces"][0] if row["traces"] else ""
        for rule in row["held"]:
            states.setdefault(rule, RuleResult(rule, "held", None, name, trace))
        for finding in row["broken"]:
            before = states.get(finding["rule"])
            if before is None or before.state == "held":
                state = "broken" if finding["level"] == "MUST" else "lapsed"
                states[finding["rule"]] = RuleResult(finding["rule"], state, finding, name, finding["trace"] or trace)
    for row in results.rows:
        for rule in _rules_without_a_target(row):
            trace = row["traces"][0] if row["traces"] else ""
            states.setdefault(rule, RuleResult(rule, "unsupported", None, f"{row['protocol']}/{row['scenario']}", trace))
    for requirement in load_requirements().values():
        state = "excluded" if requirement.check == "excluded" else "unproven"
        states.setdefault(requirement.id, RuleResult(requirement.id, state))
    return states


def _rules_without_a_target(row: dict[str, Any]) -> list[str]:
    """The rules that cannot be put to a target which does not serve their protocol."""
    families = _FAMILIES.get(row.get("absence", ""), ())
    return [
        rule.id for rule in load_requirements().values() if rule.check != "excluded" and rule.id.rstrip("0123456789") in families
    ]
