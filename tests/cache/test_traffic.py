"""A small day of agent traffic: what two tiers reuse, write and keep, against a cache that forgets nothing."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

CONVERSATIONS, REQUESTS, SCALE = 20, 6, 0.2


@pytest.fixture(scope="module")
def traffic() -> ModuleType:
    place = Path(__file__).resolve().parents[2] / "ci" / "cache_traffic.py"
    spec = importlib.util.spec_from_file_location("cache_traffic", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["cache_traffic"] = module
    spec.loader.exec_module(module)
    return module


def two_tiers(traffic: ModuleType, root: Path, conversations: int, ssd_bytes: int = 1 << 40) -> object:
    """The day on a resident budget of so many average conversations, and room to run the longest request."""
    lengths = [len(request.ids) for request in traffic.day(CONVERSATIONS, REQUESTS, scale=SCALE)]
    resident = conversations * sum(lengths) // len(lengths) + max(lengths)
    return traffic.simulate(traffic.day(CONVERSATIONS, REQUESTS, scale=SCALE), len(lengths), root, resident, ssd_bytes)


def test_two_tiers_with_a_tenth_of_the_memory_reuse_nearly_all_that_could_be_reused(traffic: ModuleType, tmp_path: Path) -> None:
    tiered = two_tiers(traffic, tmp_path, conversations=2)

    unlimited = traffic.simulate_unlimited(traffic.day(CONVERSATIONS, REQUESTS, scale=SCALE), CONVERSATIONS * REQUESTS)
    assert tiered.evictions > 20
    assert tiered.reused_from_ssd > 0
    assert tiered.hit_rate >= 0.9 * unlimited.hit_rate
    assert 1.0 <= tiered.write_amplification < 1.3


def test_without_ssd_the_same_memory_reuses_less(traffic: ModuleType, tmp_path: Path) -> None:
    """The figure above is not reached by doing nothing."""
    tiered = two_tiers(traffic, tmp_path / "with", conversations=2)
    alone = two_tiers(traffic, tmp_path / "without", conversations=2, ssd_bytes=0)

    assert alone.hit_rate < 0.9 * tiered.hit_rate


def test_the_rows_that_are_counted_are_the_rows_that_exist(traffic: ModuleType) -> None:
    """Counted the plain way: one number for each prefix."""
    requests = list(traffic.day(12, 4, scale=0.01))

    prefixes = {hash(request.ids[: end + 1].tobytes()) for request in requests for end in range(len(request.ids))}

    assert sum(request.new_tokens for request in requests) == len(prefixes)
