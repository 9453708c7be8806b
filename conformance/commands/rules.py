"""`rules`: the requirements, as a table or as JSON."""

from __future__ import annotations

import argparse
import dataclasses
import json

from conformance.requirements import load_requirements


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true")


def run(arguments: argparse.Namespace) -> int:
    for requirement in load_requirements().values():
        if arguments.json:
            print(json.dumps(dataclasses.asdict(requirement), ensure_ascii=False))
        else:
            print(f"{requirement.id:5} {requirement.level:6} {requirement.check:28} {requirement.sentence}")
    return 0
