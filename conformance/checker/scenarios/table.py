"""The table of scenarios. A module registers its own with `@scenario`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

from conformance.checker.probe import Probe

THREE: Final = ("chat", "responses", "messages")
_MODULES: Final = ("text", "tools", "state", "usage", "errors", "websocket", "clients", "load", "faults")


@dataclass(frozen=True, slots=True)
class Scenario:
    """`feature` groups scenarios for `--features`; an optional one may be refused cleanly (unsupported)."""

    name: str
    protocol: str
    feature: str
    rules: tuple[str, ...]
    is_optional: bool
    run: Callable[[Probe], None]

    @property
    def id(self) -> str:
        return f"{self.protocol}/{self.name}"


Entry = Callable[[Callable[[Probe], None]], Callable[[Probe], None]]


class Table:
    """Scenarios of one module, in the order of the file."""

    def __init__(self) -> None:
        self.rows: list[Scenario] = []

    def scenario(
        self, name: str, feature: str, rules: str, protocols: tuple[str, ...] = THREE, is_optional: bool = False
    ) -> Entry:
        """Registers the function under this name for each protocol."""

        def register(run: Callable[[Probe], None]) -> Callable[[Probe], None]:
            self.rows += [Scenario(name, protocol, feature, tuple(rules.split()), is_optional, run) for protocol in protocols]
            return run

        return register


@cache
def all_scenarios() -> tuple[Scenario, ...]:
    """Every scenario for every protocol it is told in."""
    rows: list[Scenario] = []
    for name in _MODULES:
        table: Table = importlib.import_module(f"conformance.checker.scenarios.{name}").TABLE
        rows += table.rows
    return tuple(rows)
