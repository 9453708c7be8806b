"""The JSON summary: counts by verdict and by rule state."""

from __future__ import annotations

import json
from collections import Counter

from conformance.checker.report.results import Results, rules_of


def summary_of(results: Results) -> str:
    states = rules_of(results)
    document = {
        **results.head,
        "verdicts": Counter(row["verdict"] for row in results.rows),
        "known_failing": sum(row["known_failing"] for row in results.rows),
        "rules": {rule: result.state for rule, result in states.items()},
        "rule_states": Counter(result.state for result in states.values()),
    }
    return json.dumps(document, indent=1) + "\n"
