"""`python -m zllm_ref COMMAND`: finds the command's module and runs it."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from zllm_ref import __version__

COMMANDS = ("serve", "doctor", "bench", "models", "dialect", "fence", "cache", "cache_lab")


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 done, 1 the command's own no, 2 it could not run."""
    parser = argparse.ArgumentParser(prog="python -m zllm_ref", description="A reference LLM server, exact to the bit.")
    parser.add_argument("--version", action="version", version=__version__)
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        importlib.import_module(f"zllm_ref.commands.{name}").add_parser(subparsers)
    args = parser.parse_args(arguments)
    try:
        return int(args.run(args))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("zllm_ref"):
            raise
        print(
            f"zllm_ref {args.command}: the package {error.name!r} is not installed; allowed after: "
            "python -m pip install 'zllm-ref[server]'",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
