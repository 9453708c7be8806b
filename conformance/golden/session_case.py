"""A golden of a WebSocket connection: the messages of both sides in order, and what the SDK made of what it was sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conformance.checker.websocket_check import WebSocketCheck
from conformance.golden.case import golden_root

PROTOCOL: Final = "responses_websocket"
Line = tuple[str, Any]
"""(`sent` or `received`, the message; a text where the frame was no JSON object)."""


@dataclass(frozen=True, slots=True)
class SessionCase:
    """`expect` of a reject case names the rule and the number of the line, counted from 1 after the head."""

    id: str
    kind: str
    title: str
    rules: tuple[str, ...]
    lines: tuple[Line, ...]
    profile: str = "default"
    expect: dict[str, Any] | None = None
    sdk: str = ""
    finals: tuple[dict[str, Any], ...] | None = None

    def dump(self) -> str:
        """The file's text."""
        head: dict[str, Any] = {
            "case": self.id,
            "protocol": PROTOCOL,
            "kind": self.kind,
            "title": self.title,
            "rules": list(self.rules),
            "profile": self.profile,
        }
        if self.sdk:
            head["sdk"] = self.sdk
        if self.expect is not None:
            head["expect"] = self.expect
        rows: list[dict[str, Any]] = [head, *({side: message} for side, message in self.lines)]
        if self.finals is not None:
            rows.append({"finals": list(self.finals)})
        return "".join(json.dumps(row) + "\n" for row in rows)

    def check(self) -> WebSocketCheck:
        """The checker after the whole connection."""
        check = WebSocketCheck(self.profile)
        for side, message in self.lines:
            check.observe(json.dumps({"direction": side, "message": message}))
        check.finish()
        return check


def load_session(path: Path) -> SessionCase:
    """Reads a file. Raises ValueError with the line at fault."""
    head, *rows = (json.loads(line) for line in path.read_text(encoding="utf-8").strip().split("\n"))
    lines: list[Line] = []
    finals: tuple[dict[str, Any], ...] | None = None
    for number, row in enumerate(rows, 2):
        (side, message), *more = row.items()
        if more or side not in ("sent", "received", "finals"):
            raise ValueError(f"{path}:{number}: got keys {sorted(row)}, allowed one of sent, received, finals")
        if side == "finals":
            finals = tuple(message)
        else:
            lines.append((side, message))
    return SessionCase(
        head["case"], head["kind"], head["title"], tuple(head["rules"]), tuple(lines), head["profile"], head.get("expect"),
        head.get("sdk", ""), finals,
    )  # fmt: skip


def load_sessions(kind: str) -> Iterator[SessionCase]:
    """All committed cases of one kind, in the order of their paths."""
    for path in sorted((golden_root() / PROTOCOL / kind).rglob("*.jsonl")):
        yield load_session(path)
