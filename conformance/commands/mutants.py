"""`mutants`: plants every fault and prints, per rule, how many were planted and how many were seen."""

from __future__ import annotations

import argparse
import json
import sys

from conformance.mutants.score import rules_without_a_fault, score_all
from conformance.mutants.score_server import score_server


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object a rule, nothing else on stdout")
    parser.add_argument("--exhaustive", action="store_true", help="every field of every event of every golden (minutes)")


def run(arguments: argparse.Namespace) -> int:
    score = score_all(arguments.exhaustive)
    server = score_server()
    score.survivors += server.survivors
    score.alarms += server.alarms
    missing = rules_without_a_fault(score.planted, server.planted)
    streams, servers = score.planted.total(), server.planted.total()
    streams_killed, servers_killed = score.killed.total(), server.killed.total()
    score.planted += server.planted
    score.killed += server.killed
    for rule, planted, killed, systematic in score.rows():
        if arguments.json:
            print(json.dumps({"rule": rule, "planted": planted, "killed": killed, "systematic": systematic}))
        else:
            share = f"{100 * killed / planted:.0f} %" if planted else "-"
            print(f"{rule:6} planted {planted:3}  killed {killed:3}  {share:>6}   sees {systematic:5} systematic mutants")
    out = sys.stderr if arguments.json else sys.stdout
    for survivor in score.survivors:
        print(f"SURVIVED {survivor}", file=out)
    for alarm in score.alarms:
        print(f"FALSE ALARM {alarm}", file=out)
    for rule in missing:
        print(f"NO FAULT PLANTED for {rule}", file=out)
    total = streams + score.num_systematic + servers
    total_killed = streams_killed + score.num_systematic_killed + servers_killed
    print(f"faults in streams {streams_killed}/{streams}; wrong servers {servers_killed}/{servers}", file=out)
    same = f"{score.num_equivalent} more mean the same, see mutants/equivalent.json"
    print(f"systematic {score.num_systematic_killed}/{score.num_systematic} ({same})", file=out)
    print(f"score {100 * total_killed / total:.2f} %", file=out)
    return 0 if score.is_perfect and not missing else 1
