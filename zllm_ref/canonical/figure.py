"""A number that a room reports about itself, for `/metrics` and whoever looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Figure:
    """`is_total`: only ever grows since the start. Names are in Prometheus' form, with their unit, without a prefix."""

    name: str
    explanation: str
    value: float
    is_total: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
