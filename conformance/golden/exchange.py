"""An exchange golden: a request, the frames that came, and the object that the official SDK made of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.checker.client import Client
from conformance.checker.sse import SseDecoder
from conformance.golden.match import Matcher

HEADERS = {"x-tokens-per-step": "8"}
"""Asks a scripted target for eight tokens a step, so that the files stay short; others may ignore it."""


@dataclass(frozen=True, slots=True)
class ExchangeCase:
    """`frames` are (event line, data) with matchers; `final` is the SDK's object with matchers."""

    id: str
    protocol: str
    title: str
    rules: tuple[str, ...]
    sdk: str
    request: dict[str, Any]
    frames: tuple[tuple[str | None, Any], ...]
    final: dict[str, Any]

    def dump(self) -> str:
        head = {
            "case": self.id,
            "protocol": self.protocol,
            "kind": "exchange",
            "title": self.title,
            "rules": list(self.rules),
            "profile": "default",
            "sdk": self.sdk,
        }
        rows: list[dict[str, Any]] = [head, {"request": self.request, "headers": HEADERS}]
        rows += [{"data": data} if event is None else {"event": event, "data": data} for event, data in self.frames]
        rows.append({"final": self.final})
        return "".join(json.dumps(row) + "\n" for row in rows)


def load_exchange(path: Path) -> ExchangeCase:
    head, asked, *rows = (json.loads(line) for line in path.read_text(encoding="utf-8").strip().split("\n"))
    frames = tuple((row.get("event"), row["data"]) for row in rows if "data" in row)
    return ExchangeCase(
        head["case"],
        head["protocol"],
        head["title"],
        tuple(head["rules"]),
        head["sdk"],
        asked["request"],
        frames,
        rows[-1]["final"],
    )


def frames_of(body: bytes) -> list[tuple[str | None, Any]]:
    """The frames of a stream as a case holds them."""
    decoder = SseDecoder()
    frames = [*decoder.feed(body), *decoder.finish()]
    return [(frame.event, frame.data if frame.data == "[DONE]" else json.loads(frame.data)) for frame in frames]


def replay(case: ExchangeCase, client: Client) -> list[str]:
    """Asks again and compares; returns what differs."""
    request = {key: client.model if value == {"$model": True} else value for key, value in case.request.items()}
    exchange = client.ask(case.protocol, request, headers=HEADERS)
    if exchange.status != 200:
        return [f"{case.id}: got status {exchange.status} {exchange.body[:200]!r}, allowed 200"]
    frames = frames_of(exchange.body)
    matcher = Matcher(client.model)
    told = []
    for number, (expected, got) in enumerate(zip(case.frames, frames, strict=False), 1):
        difference = matcher.difference(list(expected), list(got))
        if difference is not None:
            told.append(f"{case.id}: event {number}: {difference}")
    if len(frames) != len(case.frames):
        told.append(f"{case.id}: got {len(frames)} frames, allowed {len(case.frames)}")
    return told
