"""The command line: one module a command, each with `add_parser(subparsers)` and `run(args) -> exit code`.

Knows how to turn arguments into settings and results into text for a person. Must never know how anything is done.
Imports of heavy rooms happen inside `run`, so that `--help` is quick and a missing extra is told in one line.
"""
