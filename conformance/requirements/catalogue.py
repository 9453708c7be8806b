"""Reads the requirements and the measured consequences."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any, Final

PROFILES: Final = ("default", "openai", "openresponses", "anthropic", "deepseek", "codex", "claude-code", "strict", "compat")
"""Named sets of levels. `default` follows the vendors' own services; the others move single rules (column `profiles`)."""


@dataclass(frozen=True, slots=True)
class Requirement:
    id: str
    level: str
    sentence: str
    source: str
    check: str
    """`grammar`, `law`, `transport`, `unary`, `scenario NAME`, or `excluded`."""
    reason: str = ""
    """Why it is excluded."""
    severity: str = ""
    """S1 an official SDK raises, S2 it is silently wrong, S3 it copes and others may not."""
    needs: str = ""
    """What a capture must hold before the rule counts as seen, by the names of `checker/exercise.py`; `|` means any of them."""
    protocols: tuple[str, ...] = ()
    """The protocols that a rule with a shared prefix (T, E, K) speaks of; empty: all."""
    profiles: tuple[tuple[str, str], ...] = ()
    """(profile, level) where a profile moves the level; level `OFF` switches the rule off."""


@lru_cache(maxsize=1)
def load_requirements() -> Mapping[str, Requirement]:
    """All requirements by id, in the order of the file."""
    rows: list[dict[str, Any]] = _read("rules.json")["requirements"]
    return {
        row["id"]: Requirement(
            **{**row, "profiles": tuple(row.get("profiles", {}).items()), "protocols": tuple(row.get("protocols", ()))}
        )
        for row in rows
    }


@cache
def levels_for(profile: str) -> Mapping[str, str]:
    """Rule to level under `profile`. Raises ValueError with the profiles that exist."""
    if profile not in PROFILES:
        raise ValueError(f"profile: got {profile!r}, allowed {', '.join(PROFILES)}")
    return {rule.id: dict(rule.profiles).get(profile, rule.level) for rule in load_requirements().values()}


@lru_cache(maxsize=1)
def _consequences() -> Mapping[str, Any]:
    data: dict[str, Any] = _read("consequences.json")
    return data


def consequence_of(rule: str) -> str:
    """Which clients break on this rule and how, in one sentence; measured where a row of the table stands behind it."""
    data = _consequences()
    parts: list[str] = []
    for row in data["rules"].get(rule, {}).get("deviations", ()):
        protocol, _, deviation = row.partition("/")
        outcomes = data["measured"][protocol][deviation]
        by_effect: dict[str, list[str]] = {}
        for client, code in outcomes.items():
            if code != ".":
                by_effect.setdefault(data["codes"][code], []).append(data["clients"].get(client, client))
        if by_effect:
            told = "; ".join(f"{', '.join(clients)}: {effect}" for effect, clients in by_effect.items())
            parts.append(f"[{deviation}] {told}")
    note = data["rules"].get(rule, {}).get("note", "")
    requirement = load_requirements().get(rule)
    severity = data["severities"].get(requirement.severity, "") if requirement else ""
    return " ".join(piece for piece in (note, *parts) if piece) or severity or "no client was measured with this fault"


def _read(name: str) -> Any:
    return json.loads(resources.files("conformance.requirements").joinpath(name).read_text(encoding="utf-8"))
