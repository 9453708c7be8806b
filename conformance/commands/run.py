"""Placeholder."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true")


def run(arguments: argparse.Namespace) -> int:
    return 2
