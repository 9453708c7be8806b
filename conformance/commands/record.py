"""`record`: exchange goldens, recorded from a server through the official SDKs."""

from __future__ import annotations

import argparse
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path

from conformance.checker.client import TargetError
from conformance.checker.reference import KEY, reference_server
from conformance.checker.run import find_model
from conformance.golden.build import PROTOCOLS
from conformance.golden.case import golden_root


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--base-url", help="default: the reference server, started for this")
    parser.add_argument("--model")
    parser.add_argument("--api-key")
    parser.add_argument("--out", type=Path, default=None, help="default: the suite's own golden folder")


def run(arguments: argparse.Namespace) -> int:
    from conformance.golden.dialogues import dialogues
    from conformance.golden.exchanges import wanted_for
    from conformance.golden.recorder import record
    from conformance.golden.session_case import PROTOCOL as SESSIONS
    from conformance.golden.session_recorder import record_sessions

    root = arguments.out or golden_root()
    key = arguments.api_key or (None if arguments.base_url else KEY)
    try:
        with nullcontext(arguments.base_url) if arguments.base_url else reference_server() as base_url:
            model = arguments.model or find_model(base_url, key)
            for protocol in PROTOCOLS:
                shutil.rmtree(root / protocol / "exchange", ignore_errors=True)
                cases = record(protocol, wanted_for(protocol), base_url, model, key or "none")
                count = 0
                for case in cases:
                    path = root / f"{case.id}.jsonl"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(case.dump(), encoding="utf-8")
                    count += 1
                print(f"{protocol}: {count} exchanges recorded from {model}")
            shutil.rmtree(root / SESSIONS / "exchange", ignore_errors=True)
            count = 0
            for session in record_sessions(dialogues(), base_url, model, key or "none"):
                path = root / f"{session.id}.jsonl"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(session.dump(), encoding="utf-8")
                count += 1
            print(f"{SESSIONS}: {count} exchanges recorded from {model}")
    except (TargetError, ValueError) as error:
        print(f"conformance record: {error}", file=sys.stderr)
        return 2
    return 0
