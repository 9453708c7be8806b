"""Runs scenarios against a target and writes the report's one truth: a line a scenario."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from conformance.checker.absence import Surfaces
from conformance.checker.client import Client, Exchange, TargetError
from conformance.checker.probe import run_probe
from conformance.checker.scenarios import Scenario, all_scenarios
from conformance.checker.verdict import Outcome, Verdict
from conformance.grammar.fields import show
from conformance.requirements import load_requirements


@dataclass(frozen=True)
class RunOptions:
    """What to run against whom. Empty protocols or features mean all."""

    base_url: str
    model: str
    api_key: str | None = None
    protocols: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    profile: str = "default"
    known_failing: dict[str, str] = field(default_factory=dict)
    """Scenario (`chat/text`) or rule (`CH2`) to the reason why it is known to fail."""
    report_dir: Path | None = None
    timeout_seconds: float = 120.0
    target_name: str = ""


def select(options: RunOptions) -> list[Scenario]:
    """The scenarios that the options ask for."""
    return [
        row
        for row in all_scenarios()
        if (not options.protocols or row.protocol in options.protocols)
        and (not options.features or row.feature in options.features)
    ]


class Run:
    """One run against one target. Outcomes are written as they come."""

    def __init__(self, options: RunOptions) -> None:
        self.options = options
        self.client = Client(options.base_url, options.model, options.api_key, options.timeout_seconds)
        self.outcomes: list[Outcome] = []
        self._surfaces = Surfaces(self.client)
        self._file = None
        if options.report_dir is not None:
            options.report_dir.mkdir(parents=True, exist_ok=True)
            self._file = (options.report_dir / "results.jsonl").open("w", encoding="utf-8")
            self._write(self.head())

    def head(self) -> dict[str, Any]:
        return {
            "run": self.options.target_name or self.options.base_url,
            "base_url": self.options.base_url,
            "model": self.options.model,
            "profile": self.options.profile,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def run_one(self, scenario: Scenario) -> Outcome:
        """Runs a scenario; a known failure is marked, a known failure that passes becomes a failure."""
        outcome = self._absent(scenario) or run_probe(
            scenario.run, self.client, scenario.protocol, self.options.profile, scenario.feature, scenario.name,
            scenario.is_optional, self.options.report_dir, frozenset(self.options.known_failing),
        )  # fmt: skip
        known = self.options.known_failing.get(outcome.id)
        if known is not None:
            passes = outcome.verdict is Verdict.PASS and not any(one.level == "MUST" for one in outcome.broken)
            outcome.is_known = not passes
            if passes:
                outcome.verdict = Verdict.FAIL
                outcome.reason = f"passes, but is listed as known failing ({known}): take it off the list"
        self.outcomes.append(outcome)
        self._write(outcome.row())
        return outcome

    def _absent(self, scenario: Scenario) -> Outcome | None:
        """The outcome where the scenario's protocol is not served at all: unsupported, with the exchange that shows it."""
        try:
            absence = self._surfaces.absence(scenario.protocol, scenario.feature)
        except TargetError:
            return None  # the scenario will meet the same, and tell it as its own
        if absence is None:
            return None
        outcome = Outcome(scenario.name, scenario.protocol, scenario.feature, Verdict.UNSUPPORTED, absence.reason)
        outcome.absence = absence.what
        if self.options.report_dir is not None:
            folder = self.options.report_dir / "traces" / "absent"
            outcome.traces = [str(Path(absence.evidence.save(folder, absence.what)).relative_to(self.options.report_dir))]
        return outcome

    def run_all(self) -> Iterator[Outcome]:
        for scenario in select(self.options):
            yield self.run_one(scenario)

    def close(self) -> None:
        self.client.close()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, row: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
            self._file.flush()


def find_model(base_url: str, api_key: str | None, patience_seconds: float = 120.0) -> str:
    """The first model that the target lists. While it lists none it may still be loading: asked again for so long.

    Raises TargetError.
    """
    client = Client(base_url, "", api_key)
    deadline = time.monotonic() + patience_seconds
    try:
        while (name := _first_model(client.send("chat", "GET", "/models"))) is None:
            if time.monotonic() > deadline:
                raise TargetError(f"{base_url}: no model in /models; name one with --model")
            time.sleep(0.05)
    finally:
        client.close()
    return name


def _first_model(exchange: Exchange) -> str | None:
    """None: there is none yet. Raises TargetError for what no waiting changes."""
    if exchange.status in (429, 503, 529):
        return None
    body = exchange.json()
    rows = body.get("data") if isinstance(body, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) and isinstance(row.get("id"), str) for row in rows):
        raise TargetError(f"/models: got {exchange.status} {show(body)}, allowed a list of models; name one with --model")
    return str(rows[0]["id"]) if rows else None


def read_known_failing(path: Path) -> dict[str, str]:
    """`protocol/scenario  # why` or `RULE  # why`, one a line. Raises ValueError on what does not exist."""
    known: dict[str, str] = {}
    ids = {scenario.id for scenario in all_scenarios()} | set(load_requirements())
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        name, _, why = line.partition("#")
        if name.strip():
            if name.strip() not in ids:
                allowed = "protocol/scenario as `conformance run --list` prints, or a rule"
                raise ValueError(f"{path}:{number}: got {name.strip()!r}, allowed {allowed}")
            known[name.strip()] = why.strip() or "no reason given"
    return known


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """0 conforming, 1 not, 2 could not run. Where not one scenario passed or is known to fail, nothing was judged: 2."""
    counted = [one.verdict for one in outcomes if not one.is_known]
    if Verdict.FAIL in counted:
        return 1
    was_judged = Verdict.PASS in counted or len(counted) < len(outcomes)
    return 0 if was_judged and Verdict.ERROR not in counted else 2
