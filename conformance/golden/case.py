"""A golden file: a head line, the frames, and the unary answer where there is one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from conformance.golden.story import Frame, encode


@dataclass(frozen=True, slots=True)
class Case:
    """`expect` of a reject case: the rule that must fall, and at which event where that is known."""

    id: str
    protocol: str
    kind: str
    title: str
    rules: tuple[str, ...]
    frames: tuple[Frame, ...]
    profile: str = "default"
    unary: dict[str, Any] | None = None
    expect: dict[str, Any] | None = None

    def encode(self) -> bytes:
        """The body as a server would have sent it."""
        return encode(list(self.frames))

    def dump(self) -> str:
        """The file's text."""
        head: dict[str, Any] = {
            "case": self.id,
            "protocol": self.protocol,
            "kind": self.kind,
            "title": self.title,
            "rules": list(self.rules),
            "profile": self.profile,
        }
        if self.expect is not None:
            head["expect"] = self.expect
        lines = [head, *(_dump_frame(frame) for frame in self.frames)]
        if self.unary is not None:
            lines.append({"unary": self.unary})
        return "".join(json.dumps(line, ensure_ascii=True) + "\n" for line in lines)


def load_case(path: Path) -> Case:
    """Reads a golden file. Raises ValueError with the line at fault."""
    head: dict[str, Any] = {}
    frames: list[Frame] = []
    unary: dict[str, Any] | None = None
    for number, line in enumerate(path.read_text(encoding="utf-8").strip().split("\n"), 1):
        row = json.loads(line)
        if "case" in row:
            head = row
        elif "unary" in row:
            unary = row["unary"]
        elif "comment" in row:
            frames.append(Frame(None, row["comment"], is_comment=True))
        elif "data" in row:
            frames.append(Frame(row.get("event"), row["data"]))
        else:
            raise ValueError(f"{path}:{number}: got keys {sorted(row)}, allowed case, data, comment, unary")
    return Case(
        head["case"],
        head["protocol"],
        head["kind"],
        head["title"],
        tuple(head["rules"]),
        tuple(frames),
        head["profile"],
        unary,
        head.get("expect"),
    )


def golden_root() -> Path:
    return Path(str(resources.files("conformance.golden")))


def load_cases(protocol: str, kind: str) -> Iterator[Case]:
    """All committed cases of one protocol and kind, in the order of their paths."""
    for path in sorted((golden_root() / protocol / kind).rglob("*.jsonl")):
        yield load_case(path)


def _dump_frame(frame: Frame) -> dict[str, Any]:
    if frame.is_comment:
        return {"comment": frame.data}
    return {"data": frame.data} if frame.event is None else {"event": frame.event, "data": frame.data}
