"""The commands of `python -m conformance`, one module each: `add_arguments(parser)` and `run(arguments) -> exit code`.

Exit codes are the same everywhere: 0 conforming, 1 not, 2 could not run.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

_COMMANDS = {
    "check": "judge recorded streams: no server, no model",
    "run": "judge a server",
    "report": "render the reports of runs, or one matrix of several",
    "mutants": "plant faults and see every check fall",
    "recordings": "judge recordings of real services",
    "record": "record exchange goldens from a server through the official SDKs",
    "rules": "list the requirements",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. Only the chosen command's module is imported: `check` starts fast."""
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="python -m conformance", description="Conformance of LLM servers to three protocols.")
    subparsers = parser.add_subparsers(dest="command", required=True)
    chosen = {argv[0]} & set(_COMMANDS) if argv else set()
    for name, text in _COMMANDS.items():
        if name not in chosen:
            subparsers.add_parser(name, help=text)
            continue
        importlib.import_module(f"conformance.commands.{name}").add_arguments(
            subparsers.add_parser(name, help=text, description=text)
        )
    arguments = parser.parse_args(argv)
    code: int = importlib.import_module(f"conformance.commands.{arguments.command}").run(arguments)
    return code
