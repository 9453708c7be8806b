"""A small day of agent traffic: what two tiers reuse, write and keep, against a cache that forgets nothing."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def day() -> ModuleType:
    place = Path(__file__).resolve().parents[2] / "ci" / "cache_traffic.py"
    spec = importlib.util.spec_from_file_location("cache_traffic", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["cache_traffic"] = module
    spec.loader.exec_module(module)
    return module


def test_two_tiers_with_a_tenth_of_the_memory_reuse_nearly_all_that_could_be_reused(day: ModuleType, tmp_path: Path) -> None:
    requests = day.traffic(conversations=8, rounds=4)

    unlimited = day.simulate_unlimited(requests)
    tiered = day.simulate(requests, tmp_path, resident_tokens=30_000, ssd_bytes=1 << 40)

    assert tiered.evictions > 5
    assert tiered.reused_from_ssd > 0
    assert tiered.hit_rate >= 0.9 * unlimited.hit_rate
    assert 1.0 <= tiered.write_amplification < 1.3


def test_without_ssd_the_same_memory_reuses_less(day: ModuleType, tmp_path: Path) -> None:
    """The figure above is not reached by doing nothing."""
    requests = day.traffic(conversations=8, rounds=4)

    tiered = day.simulate(requests, tmp_path / "with", resident_tokens=30_000, ssd_bytes=1 << 40)
    alone = day.simulate(requests, tmp_path / "without", resident_tokens=30_000, ssd_bytes=0)

    assert alone.hit_rate < tiered.hit_rate
