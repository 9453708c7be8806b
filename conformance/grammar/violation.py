"""One broken rule at one place of one stream."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """`event` counts the frames of the stream from 1; 0 stands for the exchange as a whole (status, headers, unary body)."""

    rule: str
    event: int
    at: str
    """Where: `block[1] is TEXT`, `field message.id`, `joined text of item 0`."""
    expected: str
    got: str
    level: str = "MUST"

    def __str__(self) -> str:
        return f"{self.level} {self.rule} event {self.event}: {self.at}: got {self.got}, allowed {self.expected}"
