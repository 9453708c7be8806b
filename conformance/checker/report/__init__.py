"""Reports, all rendered from the one truth, `results.jsonl`: terminal, JUnit, JSON summary, HTML matrix.

A head line says which run it is; each further line is a scenario's outcome, with every rule that held and every finding of
one that broke. Knows how to show, decides nothing.
"""

from __future__ import annotations

from pathlib import Path

from conformance.checker.report.junit import junit_of
from conformance.checker.report.matrix import write_matrix
from conformance.checker.report.results import read_results
from conformance.checker.report.summary import summary_of
from conformance.checker.report.terminal import print_absence, print_outcome, print_summary

__all__ = ["print_absence", "print_outcome", "print_summary", "read_results", "write_matrix", "write_reports"]


def write_reports(folder: Path) -> None:
    """summary.json, junit.xml and matrix.html beside results.jsonl."""
    results = read_results(folder)
    (folder / "summary.json").write_text(summary_of(results), encoding="utf-8")
    (folder / "junit.xml").write_text(junit_of(results), encoding="utf-8")
    write_matrix([folder], folder / "matrix.html")
