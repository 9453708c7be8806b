"""Captured requests of real clients, made sendable again: cut strings get text, what another server gave out is given out anew.

A capture is a JSON file of scenarios, each a list of requests in their order, with long strings as `<str:LENGTH>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zllm_ref.protocols.seal import Seal

_CUT = re.compile(r"<str:(\d+)>")
_OF_THE_CONNECTION = ("accept-encoding", "connection", "content-length", "content-type", "host", "transfer-encoding")
_LARK = "start: /(.|\\n)+/"
_WORDS = "the file is read line by line and every word is kept as it stands; "


@dataclass(frozen=True)
class Scenario:
    client: str
    name: str
    requests: tuple[dict[str, Any], ...]

    def __str__(self) -> str:
        return f"{self.client}/{self.name}"


def scenarios(folder: Path) -> Iterator[Scenario]:
    for path in sorted(folder.glob("*.json")):
        for name, requests in json.loads(path.read_text("utf-8")).items():
            yield Scenario(path.stem, name, tuple(requests))


def model_names(found: list[Scenario]) -> list[str]:
    return sorted({request["body"]["model"] for one in found for request in one.requests if "model" in request.get("body", {})})


def filled(value: Any, key: str = "") -> Any:
    """Cut strings as text of that length, the same one for the same length; a cut grammar as one that reads anything."""
    if isinstance(value, dict):
        return {name: filled(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [filled(item, key) for item in value]
    match = _CUT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return value
    if key == "definition":
        return _LARK
    length = int(match[1])
    return (f"{length} " + _WORDS * (length // len(_WORDS) + 1))[:length]


def headers_of(request: Mapping[str, Any]) -> dict[str, str]:
    """The client's own headers, without those that belong to its connection."""
    given = filled(request.get("headers", {}))
    return {name: str(value).strip() for name, value in given.items() if name.lower() not in _OF_THE_CONNECTION}


def signed(body: Any, seal: Seal) -> Any:
    """Signatures and sealed reasoning as this server would have given them out for the same thoughts."""
    if isinstance(body, list):
        return [signed(item, seal) for item in body]
    if not isinstance(body, dict):
        return body
    found = {name: signed(item, seal) for name, item in body.items()}
    if found.get("type") == "thinking" and found.get("signature"):
        found["signature"] = seal.sign(found["thinking"]) if found["thinking"] else seal.seal("hm")
    if found.get("type") == "reasoning" and found.get("encrypted_content"):
        found["encrypted_content"] = seal.seal("".join(part["text"] for part in found.get("summary") or ()))
    return found


class Known:
    """What this server answered before, so that references to another server's responses, items and calls become ones to ours."""

    def __init__(self) -> None:
        self.responses: list[dict[str, Any]] = []

    def referred(self, body: dict[str, Any]) -> dict[str, Any]:
        changed = dict(body)
        if "previous_response_id" in body and self.responses:
            changed["previous_response_id"] = self.responses[-1]["id"]
        if isinstance(body.get("input"), list):
            own = {item.get("call_id") for item in body["input"] if str(item.get("type", "")).endswith("_call")}
            changed["input"] = [self._item(item, own) for item in body["input"]]
        return changed

    def _item(self, item: dict[str, Any], own_calls: set[Any]) -> dict[str, Any]:
        output = self.responses[-1]["output"] if self.responses else []
        if item.get("type") == "item_reference":
            prefix = item["id"].partition("_")[0]
            return {**item, "id": next(one["id"] for one in output if one["id"].startswith(prefix))}
        if str(item.get("type", "")).endswith("_call_output") and item["call_id"] not in own_calls:
            return {**item, "call_id": next(one["call_id"] for one in output if "call_id" in one)}
        return item
