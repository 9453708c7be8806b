"""What one scenario on one target came to.

    pass          every rule that it touches held
    fail          a MUST rule broke: on the wire, or in what the scenario asked for
    unsupported   the target refused the feature in a clean error
    inconclusive  the model did not do what the scenario needs (no call under auto, no reasoning): no verdict on the server
    unproven      the scenario could not be put to this target at all (no script, no key to try)
    error         the suite or the network broke

Only `pass` is green.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    UNSUPPORTED = "unsupported"
    INCONCLUSIVE = "inconclusive"
    UNPROVEN = "unproven"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule looked at once. `trace` names the exchange's file, `curl` repeats it."""

    rule: str
    level: str
    is_broken: bool
    where: str
    expected: str = ""
    got: str = ""
    event: int = 0
    raw: str = ""
    """The bytes of the event at fault, shortened."""
    consequence: str = ""
    trace: str = ""
    curl: str = ""


@dataclass
class Outcome:
    """A scenario's result; a line of the report."""

    scenario: str
    protocol: str
    feature: str
    verdict: Verdict
    reason: str = ""
    findings: list[Finding] = field(default_factory=list)
    traces: list[str] = field(default_factory=list)
    seconds: float = 0.0
    is_known: bool = False
    """Listed in the known-failing file."""
    absence: str = ""
    """The protocol, or `websocket`, that the target does not serve: many scenarios then have this one cause."""

    @property
    def id(self) -> str:
        return f"{self.protocol}/{self.scenario}"

    @property
    def broken(self) -> list[Finding]:
        return [one for one in self.findings if one.is_broken]

    def row(self) -> dict[str, Any]:
        """The outcome as the report's JSON line; rules that held are named only."""
        return {
            "scenario": self.scenario,
            "protocol": self.protocol,
            "feature": self.feature,
            "verdict": self.verdict.value,
            "reason": self.reason,
            "known_failing": self.is_known,
            "absence": self.absence,
            "seconds": round(self.seconds, 3),
            "held": sorted({one.rule for one in self.findings if not one.is_broken} - {one.rule for one in self.broken}),
            "broken": [asdict(one) for one in self.broken],
            "traces": self.traces,
        }


class StopError(Exception):
    """Ends a scenario with a verdict that is neither pass nor fail."""

    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict = verdict
        self.reason = reason
