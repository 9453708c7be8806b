"""`recordings`: recorded streams of real services as the judge of the rules, and the services as judged by the rules.

The folder holds INDEX.jsonl and, per entry, `<protocol>/<slug>/response.sse`. Entries that were written by hand are left
out; where the source did not keep the bytes, rules about framing are left out. An alarm on a stream of the protocol's own
vendor means that a rule is wrong; on others it is the vendor's deviation, listed with `--write docs/recordings.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conformance.checker.stream_check import check_file
from conformance.checker.unary_check import check_error_body, check_unary
from conformance.grammar import Violation
from conformance.requirements import load_requirements

_OWN: Final = {"chat": "api.openai.com", "responses": "api.openai.com", "messages": "api.anthropic.com"}
_FRAMING_RULES: Final = frozenset({"T2", "T4", "T5", "T8", "RS18", "AN16"})
_SCRUBBED_RULES: Final = frozenset({"CH1", "CH2", "RS6", "RS16", "AN7"})
"""Rules about ids and times, which a scrubbing recorder has replaced."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One judged recording."""

    slug: str
    protocol: str
    provider: str
    is_stream: bool
    violations: tuple[Violation, ...]

    @property
    def is_own_vendor(self) -> bool:
        return _OWN[self.protocol] == self.provider


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--recordings", type=Path, help="folder with INDEX.jsonl (default: $ZLLM_RECORDINGS)")
    parser.add_argument("--write", type=Path, nargs="?", const=Path("docs/recordings.md"), help="write the table of deviations")


def run(arguments: argparse.Namespace) -> int:
    folder = arguments.recordings or Path(os.environ.get("ZLLM_RECORDINGS", "recordings"))
    if not (folder / "INDEX.jsonl").is_file():
        print(f"conformance recordings: unproven: {folder}/INDEX.jsonl is not there", file=sys.stderr)
        return 2
    recordings = list(judge(folder))
    own = [(one, violation) for one in recordings if one.is_own_vendor for violation in one.violations]
    for recording, violation in own:
        print(f"{recording.protocol} {recording.provider} {recording.slug}: {violation}")
    deviating = sum(bool(one.violations) for one in recordings if not one.is_own_vendor)
    num_must = sum(violation.level == "MUST" and one.is_stream for one, violation in own)
    vendors = f"the protocols' own vendors: {num_must} MUST in streams, {len(own) - num_must} other alarms"
    print(f"{len(recordings)} recordings; {vendors}; {deviating} others deviate")
    if arguments.write:
        arguments.write.write_text(render(recordings), encoding="utf-8")
    return 1 if num_must else 0


def judge(folder: Path) -> Iterator[Recording]:
    """Every entry that tells something about a service."""
    for line in (folder / "INDEX.jsonl").read_text(encoding="utf-8").strip().split("\n"):
        row = json.loads(line)
        if not row["synthetic"]:
            yield _judge_one(folder / row["protocol"] / row["slug"], row)


def render(recordings: list[Recording]) -> str:
    """The table of deviations, by protocol, provider and rule."""
    requirements = load_requirements()
    lines = [
        "# What recorded services do otherwise",
        "",
        "Written by `python -m conformance recordings --write`. Each row: how many recorded answers of a provider break a rule.",
        "A recording is one moment of one model behind one service, made by the projects that published it; a row is a",
        "deviation seen, not a verdict on a service today. Rules about framing are judged only where the bytes were kept.",
        "",
    ]
    for protocol in ("chat", "responses", "messages"):
        ours = [one for one in recordings if one.protocol == protocol]
        streams = [one for one in ours if one.is_stream]
        own = [one for one in ours if one.is_own_vendor]
        clean = sum(not one.violations for one in own)
        lines += [
            f"## {protocol}",
            "",
            f"{len(streams)} streams and {len(ours) - len(streams)} unary answers. "
            f"{_OWN[protocol]}: {clean} of {len(own)} without any alarm.",
            "",
            "| provider | answers | rule | level | broken in | what the rule says | first seen |",
            "|---|---|---|---|---|---|---|",
        ]
        totals = Counter(one.provider for one in ours)
        rows: Counter[tuple[str, str, str]] = Counter()
        examples: dict[tuple[str, str, str], str] = {}
        for one in ours:
            for rule, level in sorted({(violation.rule, violation.level) for violation in one.violations}):
                rows[one.provider, rule, level] += 1
                first = next(violation for violation in one.violations if violation.rule == rule)
                examples.setdefault((one.provider, rule, level), first.at)
        for (provider, rule, level), count in sorted(rows.items(), key=lambda row: (-totals[row[0][0]], row[0])):
            example = examples[provider, rule, level].replace("|", "\\|").replace("\n", " ")[:90]
            lines.append(
                f"| {provider} | {totals[provider]} | {rule} | {level} | {count} | {requirements[rule].sentence} | `{example}` |"
            )
        lines.append("")
    return "\n".join(lines)


def _judge_one(folder: Path, row: dict[str, Any]) -> Recording:
    request = _read(folder / "request.json")
    if row["stream"]:
        found: list[Violation] = check_file(folder / "response.sse", row["protocol"], request=request).violations
    else:
        body = _read(folder / "response.json")
        status = row["http_status"]
        is_error = isinstance(status, int) and status >= 400
        found = check_error_body(row["protocol"], status, body) if is_error else check_unary(row["protocol"], body)
    is_wire = str(row.get("framing", "")).startswith("wire")
    skipped = frozenset[str]() if is_wire else _FRAMING_RULES
    if row.get("ids_redacted"):
        skipped = skipped | _SCRUBBED_RULES
    kept = tuple(one for one in found if one.rule not in skipped)
    return Recording(row["slug"], row["protocol"], row["provider"], row["stream"], kept)


def _read(path: Path) -> Any:
    return json.loads(path.read_bytes()) if path.is_file() else None
