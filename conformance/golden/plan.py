"""The plan of the goldens: which kinds of event stand in which feature, and why not in the others.

`plan.json` is written by hand and decides each cell: planned, or empty for a reason. `PLAN.md` is the same as a table with
what is there. A kind of a chunk is what it carries; a kind of a block or delta of Messages includes its type.
"""

from __future__ import annotations

import fnmatch
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from typing import Any

from conformance.golden.case import Case
from conformance.golden.session_case import PROTOCOL as SESSIONS
from conformance.golden.session_case import SessionCase
from conformance.golden.story import Frame
from conformance.grammar import load_grammar
from conformance.mutants.systematic import kind_of_frame


@dataclass(frozen=True, slots=True)
class Row:
    """`features` hold a case of each kind that matches; elsewhere there is none, for the reason."""

    kinds: tuple[str, ...]
    features: frozenset[str]
    elsewhere: str


def plan_rows(protocol: str) -> list[Row]:
    rows: list[dict[str, Any]] = _source()["rows"][protocol]
    parts = [Row((kind,), frozenset(there), row["elsewhere"]) for row in rows for kind, there in row.get("parts", {}).items()]
    return parts + [Row(tuple(row["kinds"]), frozenset(row["in"]), row.get("elsewhere", "")) for row in rows]


def row_of(protocol: str, kind: str) -> Row | None:
    """The first row that names the kind."""
    return next(
        (row for row in plan_rows(protocol) if any(fnmatch.fnmatchcase(_plain(kind), _plain(one)) for one in row.kinds)), None
    )


def features() -> dict[str, str]:
    """Feature to what it varies."""
    named: dict[str, str] = _source()["features"]
    return named


def counts_of(protocol: str, cases: Iterable[Case]) -> dict[str, Counter[str]]:
    """Kind to feature to the number of cases that hold it."""
    table: dict[str, Counter[str]] = {}
    for case in cases:
        for kind in {label(protocol, frame) for frame in case.frames}:
            table.setdefault(kind, Counter())[case.id.split("/")[2]] += 1
    return table


def label(protocol: str, frame: Frame) -> str:
    """The kind of a frame as the plan names it."""
    if frame.is_comment:
        return "comment"
    kind = kind_of_frame(protocol, frame)
    if protocol != "messages" or not isinstance(frame.data, dict) or not kind.startswith("content_block_"):
        return kind
    inner = frame.data.get("content_block") or frame.data.get("delta") or {}
    return f"{kind} {inner['type']}" if "type" in inner else kind


def render_plan(accepted: dict[str, list[Case]], connections: list[SessionCase]) -> str:
    """PLAN.md."""
    lines = [
        "# Plan of the goldens",
        "",
        "Written by `python -m conformance.golden.build` from `plan.json`: accept cases of a feature that contain a kind of",
        "event. A cell without a number has none, for the reason in the last column. `reject` holds faults of these, `exchange`",
        "what was recorded.",
        "",
    ]
    for protocol, cases in accepted.items():
        lines += [f"## {protocol}", "", f"Sources: {load_grammar(protocol).source['source']}.", ""]
        lines += [*_table(protocol, cases), ""]
    lines += [*_connections(connections), "", "## Features", "", "| feature | what it varies |", "|---|---|"]
    lines += [f"| {name} | {meaning} |" for name, meaning in features().items()]
    return "\n".join(lines) + "\n"


def rules_of(protocol: str, kind: str, cases: Iterable[Case]) -> list[str]:
    """The rules that the cases with this kind stand on, the most cited first; `rules.json` names the source of each."""
    cited = Counter(rule for case in cases if kind in {label(protocol, frame) for frame in case.frames} for rule in case.rules)
    return [rule for rule, _ in cited.most_common(4)]


def _table(protocol: str, cases: list[Case]) -> list[str]:
    table = counts_of(protocol, cases)
    names = [name for name in features() if any(name in row for row in table.values())]
    head = f"| event kind | {' | '.join(names)} | rules | why not elsewhere |"
    lines = [head, f"|---|{'---|' * len(names)}---|---|"]
    for kind in sorted(table, key=lambda kind: _place(protocol, kind)):
        cells = " | ".join(str(table[kind][name] or "–") for name in names)
        row = row_of(protocol, kind)
        lines.append(f"| `{kind}` | {cells} | {' '.join(rules_of(protocol, kind, cases))} | {row.elsewhere if row else ''} |")
    return lines


def _connections(cases: list[SessionCase]) -> list[str]:
    table: dict[str, Counter[str]] = {}
    for case in cases:
        for kind in {f"{'→ ' if side == 'sent' else ''}{message['type']}" for side, message in case.lines}:
            table.setdefault(kind, Counter())[case.id.split("/")[2]] += 1
    own = ("turns", "chain", "warm-up", "lanes", "steer", "errors")
    lines = [
        f"## {SESSIONS}",
        "",
        "Each right stream of Responses stands as a turn on a connection too, but for what only SSE has (`error` events,",
        "`keepalive`, `[DONE]`, comments), under the feature's name above. What only a connection has (→ sent by the client):",
        "",
        f"| message | {' | '.join(own)} |",
        f"|---|{'---|' * len(own)}",
    ]
    for kind, row in sorted(table.items()):
        if any(row[name] for name in own):
            lines.append(f"| `{kind}` | {' | '.join(str(row[name] or '–') for name in own)} |")
    return lines


def _place(protocol: str, kind: str) -> tuple[int, str]:
    row = row_of(protocol, kind)
    return (plan_rows(protocol).index(row) if row else -1, kind)


def _plain(text: str) -> str:
    return text.replace("[", "(")


def _source() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(resources.files("conformance.golden").joinpath("plan.json").read_text(encoding="utf-8"))
    return data
