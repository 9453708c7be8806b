"""`run`: the suite against a server. Without `--base-url` it starts the reference server."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext
from pathlib import Path

from conformance.checker.client import TargetError
from conformance.checker.reference import KEY, reference_server
from conformance.checker.report import print_absence, print_outcome, print_summary, write_reports
from conformance.checker.run import Run, RunOptions, exit_code, find_model, read_known_failing, select
from conformance.checker.scenarios import all_scenarios
from conformance.requirements import PROFILES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--base-url", help="e.g. http://127.0.0.1:8000 or https://host/v1")
    parser.add_argument("--model", help="default: the first that /models lists")
    parser.add_argument("--api-key")
    parser.add_argument("--protocols", default="", help="comma list of chat, responses, messages (default: all)")
    parser.add_argument("--features", default="", help="comma list; see --list (default: all)")
    parser.add_argument("--profile", default="default", choices=PROFILES)
    parser.add_argument("--known-failing", type=Path, help="file of protocol/scenario  # why")
    parser.add_argument("--report-dir", type=Path, help="results.jsonl, summary.json, junit.xml, matrix.html, traces/")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds a request may take")
    parser.add_argument("--name", default="", help="how the report calls this target")
    parser.add_argument("--json", action="store_true", help="one JSON object a scenario, nothing else on stdout")
    parser.add_argument("--list", action="store_true", help="list scenarios and leave")


def run(arguments: argparse.Namespace) -> int:
    if arguments.list:
        for scenario in all_scenarios():
            print(f"{scenario.id:36} {scenario.feature:14} {' '.join(scenario.rules)}")
        return 0
    try:
        known = read_known_failing(arguments.known_failing) if arguments.known_failing else {}
        key = arguments.api_key or (None if arguments.base_url else KEY)
        with nullcontext(arguments.base_url) if arguments.base_url else reference_server() as base_url:
            options = RunOptions(
                base_url,
                arguments.model or find_model(base_url, key),
                key,
                tuple(filter(None, arguments.protocols.split(","))),
                tuple(filter(None, arguments.features.split(","))),
                arguments.profile,
                known,
                arguments.report_dir,
                arguments.timeout,
                arguments.name or ("" if arguments.base_url else "zllm_ref"),
            )
            return _run(options, arguments.json)
    except (TargetError, ValueError, OSError) as error:
        print(f"conformance run: {error}", file=sys.stderr)
        return 2


def _run(options: RunOptions, as_json: bool) -> int:
    if not select(options):
        raise ValueError("no scenario is left by --protocols and --features")
    suite = Run(options)
    told_absent: set[str] = set()
    try:
        for outcome in suite.run_all():
            if as_json:
                print(json.dumps(outcome.row(), ensure_ascii=False), flush=True)
            elif not outcome.absence:
                print_outcome(outcome)
            elif outcome.absence not in told_absent:
                told_absent.add(outcome.absence)
                print_absence(outcome)
    finally:
        suite.close()
    if options.report_dir is not None:
        write_reports(options.report_dir)
    if not as_json:
        print_summary(suite.outcomes)
    return exit_code(suite.outcomes)
