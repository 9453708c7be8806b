"""`report`: renders the reports of one run, or one matrix of several."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from conformance.checker.report import write_matrix, write_reports


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="REPORT_DIR", help="folders with results.jsonl")
    parser.add_argument("--html", type=Path, help="one matrix of all runs (default: render each run in its folder)")


def run(arguments: argparse.Namespace) -> int:
    missing = [folder for folder in arguments.runs if not (folder / "results.jsonl").is_file()]
    if missing:
        print(f"conformance report: no results.jsonl in {', '.join(map(str, missing))}", file=sys.stderr)
        return 2
    if arguments.html is not None:
        write_matrix(arguments.runs, arguments.html)
        return 0
    for folder in arguments.runs:
        write_reports(folder)
    return 0
