"""What users of other servers reported, each with the rule that it broke and the test that would see it here."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from conformance.requirements import load_requirements

ROOT = Path(__file__).parents[2]
REPORTS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("field_reports.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", REPORTS, ids=lambda row: row["report"])
def test_a_report_names_its_rules_and_a_test_that_exists(row: dict[str, Any]) -> None:
    known = load_requirements()

    assert all(rule in known for rule in row["rules"]), row["rules"]
    if "test" in row:
        path, _, name = row["test"].partition("::")
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    else:
        assert row["reason"]


def test_no_report_stands_twice() -> None:
    names = [name for row in REPORTS for name in row["report"].split()]

    assert len({row["report"] for row in REPORTS}) == len(REPORTS) == 78
    assert len(names) >= 78
