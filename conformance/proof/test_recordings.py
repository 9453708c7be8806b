"""Recordings of real services judge the rules. Where they are not at hand this says so: unproven, not green."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conformance.commands.recordings import judge, render


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest) -> Path:
    given = request.config.getoption("--recordings", default=None) or os.environ.get("ZLLM_RECORDINGS")
    if not given or not (Path(given) / "INDEX.jsonl").is_file():
        pytest.skip("unproven: no recordings here (--recordings DIR or ZLLM_RECORDINGS)")
    return Path(given)


def test_streams_of_the_protocols_own_vendors_break_no_must_rule(folder: Path) -> None:
    broken = [
        f"{one.slug}: {violation}"
        for one in judge(folder)
        if one.is_own_vendor and one.is_stream
        for violation in one.violations
        if violation.level == "MUST"
    ]

    assert not broken


def test_the_table_of_deviations_is_the_committed_one(folder: Path) -> None:
    committed = Path(__file__).parents[2] / "docs" / "recordings.md"

    assert committed.read_text(encoding="utf-8") == render(list(judge(folder)))
