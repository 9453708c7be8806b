"""The committed goldens are what their script writes."""

from __future__ import annotations

from pathlib import Path

from conformance.golden.build import build
from conformance.golden.case import golden_root


def test_the_committed_files_are_what_the_script_writes(tmp_path: Path) -> None:
    build(tmp_path)
    written = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    root = golden_root()
    committed = {
        path.relative_to(root): path.read_text()
        for path in [root / "PLAN.md", *root.rglob("accept/**/*.jsonl"), *root.rglob("reject/**/*.jsonl")]
    }

    assert written == committed
