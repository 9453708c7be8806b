"""Reads `results.jsonl`, and folds its lines into one verdict a rule."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.requirements import load_requirements


@dataclass(frozen=True)
class Results:
    """One run: its head and its outcomes, as they were written."""

    folder: Path
    head: dict[str, Any]
    rows: list[dict[str, Any]]


@dataclass(frozen=True)
class RuleResult:
    """What a run says of a rule: held, broken, or unproven (nothing exercised it)."""

    rule: str
    state: str
    finding: dict[str, Any] | None = None
    scenario: str = ""
    trace: str = ""


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
    for requirement in load_requirements().values():
        state = "excluded" if requirement.check == "excluded" else "unproven"
        states.setdefault(requirement.id, RuleResult(requirement.id, state))
    return states
