"""`python -m zllm_ref cache ls|show|verify|gc`: the snapshots of a directory, beside a running server or without one.

`ls`, `show` and `verify` only look, and need no lock; `gc` owns the directory while it works.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from zllm_ref.commands.argument_numbers import byte_count


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("cache", help="look at the snapshots of a directory, check and clean them")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text in (
        ("ls", "one line a snapshot"),
        ("show", "all that one snapshot's manifest says"),
        ("verify", "read every chunk from end to end; exit code 1 if one is damaged"),
        ("gc", "sweep leftovers, remove damaged snapshots, and the oldest beyond --ssd-bytes"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("--ssd-dir", type=Path, required=True)
        action.add_argument("--json", action="store_true", help="one JSON object on stdout and nothing else")
        if name == "show":
            action.add_argument("cache_id")
        if name == "gc":
            action.add_argument("--ssd-bytes", type=byte_count, default=None, help="keep at most so much, e.g. 20GiB")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0: done. 1: damaged, or not found. 2: the directory cannot be used."""
    from zllm_ref.commands.cache_actions import act  # needs packages of the server

    return act(args)
