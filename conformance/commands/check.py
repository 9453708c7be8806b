"""`check`: recorded streams in, violations out. `NAME.sse` is compared with `NAME.unary.json` beside it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conformance.checker.stream_check import check_file
from conformance.checker.websocket_check import check_websocket_file
from conformance.grammar import Violation
from conformance.requirements import PROFILES, consequence_of

_LEVELS = {"may": ("MUST", "SHOULD", "MAY"), "should": ("MUST", "SHOULD"), "must": ("MUST",)}


class CannotRunError(Exception):
    """Something outside the streams is wrong: a file that is not there, JSON that is none."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE|DIR", help=".sse, WebSocket .jsonl, or folders of them")
    parser.add_argument("--protocol", required=True, choices=("chat", "responses", "messages"))
    parser.add_argument("--unary", type=Path, help="the unary answer of the same generation")
    parser.add_argument("--request", type=Path, help="the request; also found beside the stream")
    parser.add_argument("--profile", default="default", choices=PROFILES)
    parser.add_argument("--level", default="should", choices=tuple(_LEVELS), help="lowest level that counts (default: should)")
    parser.add_argument("--json", action="store_true", help="one JSON object a violation, nothing else on stdout")


def run(arguments: argparse.Namespace) -> int:
    try:
        files = list(_files(arguments.paths, arguments.protocol))
        results = [(path, *_check(path, arguments)) for path in files]
    except CannotRunError as error:
        print(f"conformance check: {error}", file=sys.stderr)
        return 2
    num_violations = 0
    for path, found, num_suppressed, num_events in results:
        counted = [one for one in found if one.level in _LEVELS[arguments.level]]
        num_violations += len(counted)
        for violation in counted:
            if arguments.json:
                print(json.dumps(as_row(path, violation), ensure_ascii=False))
            else:
                _print_violation(path, violation)
        if not arguments.json:
            print(
                f"{path}: {len(counted)} violations in {num_events} events"
                + (f", {num_suppressed} more of the same rules" * bool(num_suppressed))
            )
    return 1 if num_violations else 0


def as_row(path: Path, violation: Violation) -> dict[str, Any]:
    """A violation as `--json` prints it."""
    return {
        "file": str(path),
        "rule": violation.rule,
        "level": violation.level,
        "event": violation.event,
        "expected": f"{violation.at}: {violation.expected}",
        "got": violation.got,
        "consequence": consequence_of(violation.rule),
    }


def _check(path: Path, arguments: argparse.Namespace) -> tuple[list[Violation], int, int]:
    try:
        if path.suffix == ".jsonl":
            session = check_websocket_file(path, arguments.profile)
            return session.violations, 0, session.num_events
        unary = _read_json(arguments.unary or _beside(path, ".unary.json"), arguments.unary is not None)
        request = _read_json(arguments.request or _request_of(path), arguments.request is not None)
        check = check_file(path, arguments.protocol, arguments.profile, request, unary)
    except OSError as error:
        raise CannotRunError(f"{path}: {error.strerror}") from error
    return check.violations, check.num_suppressed, check.num_events


def _files(paths: list[Path], protocol: str) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            endings = (".sse", ".jsonl") if protocol == "responses" else (".sse",)
            found = sorted(file for file in path.rglob("*") if file.suffix in endings and file.is_file() and _is_capture(file))
            if not found:
                raise CannotRunError(f"{path}: got no file, allowed {' or '.join(endings)}")
            yield from found
        elif not path.is_file():
            raise CannotRunError(f"{path}: no such file")
        elif path.suffix == ".jsonl" and protocol != "responses":
            raise CannotRunError(f"{path}: WebSocket captures are checked with --protocol responses, got {protocol}")
        else:
            yield path


def _is_capture(path: Path) -> bool:
    """Other `.jsonl` files may lie in a folder; a WebSocket capture says the type or the direction of its messages."""
    if path.suffix != ".jsonl":
        return True
    with path.open("rb") as file:
        line = file.readline(1 << 20)
    return b'"type"' in line or b'"direction"' in line


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name.removesuffix(path.suffix) + ending)


def _request_of(path: Path) -> Path:
    return path.with_name("request.json") if path.name == "response.sse" else _beside(path, ".request.json")


def _read_json(path: Path, is_required: bool) -> dict[str, Any] | None:
    if not is_required and not path.is_file():
        return None
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise CannotRunError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise CannotRunError(f"{path}: {error}") from error
    if not isinstance(value, dict):
        raise CannotRunError(f"{path}: got {type(value).__name__}, allowed a JSON object")
    return value


def _print_violation(path: Path, violation: Violation) -> None:
    print(f"{path}: event {violation.event}: {violation.level} {violation.rule}: {violation.at}")
    print(f"    allowed  {violation.expected}")
    print(f"    got      {violation.got}")
    print(f"    hurts    {consequence_of(violation.rule)}")
