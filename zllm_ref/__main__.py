"""`python -m zllm_ref COMMAND`: finds the command's module and runs it."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any

from zllm_ref import __version__

COMMANDS = ("serve", "explain", "doctor", "bench", "bench-draft", "draft", "models", "dialect", "fence", "cache", "cache-lab")


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 done, 1 the command's own no, 2 it could not run."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m zllm_ref", description="A reference LLM server, exact to the bit.")
    parser.add_argument("--version", action="version", version=__version__)
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    # Only the chosen command's module is imported: `serve` does not wait for what `bench` needs.
    for name in COMMANDS if not given or given[0] not in COMMANDS else given[:1]:
        _add_command(subparsers, name)
    args = parser.parse_args(given)
    try:
        return int(args.run(args))
    except ModuleNotFoundError as error:
        return _tell_missing(args.command, error)
    except KeyboardInterrupt:
        return 130


def _add_command(subparsers: Any, name: str) -> None:
    """The command's own parser; where a package for it is missing, one that says so."""
    try:
        importlib.import_module(f"zllm_ref.commands.{name.replace('-', '_')}").add_parser(subparsers)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("zllm_ref"):
            raise
        missing = error
        parser = subparsers.add_parser(name, help=f"needs the extra [server] ({error.name} is not installed)", add_help=False)
        parser.add_argument("rest", nargs=argparse.REMAINDER)
        parser.set_defaults(run=lambda args: _tell_missing(name, missing))


def _tell_missing(command: str, error: ModuleNotFoundError) -> int:
    if error.name is None or error.name.startswith("zllm_ref"):
        raise error
    print(
        f"zllm_ref {command}: the package {error.name!r} is not installed; allowed after: "
        "python -m pip install 'zllm-ref[server]'",
        file=sys.stderr,
    )
    return 2


if __name__ == "__main__":
    sys.exit(main())
