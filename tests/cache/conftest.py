"""The resident tier with a state that can be cut, and with one that cannot."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cache.plain_session import make_cache
from zllm_ref.cache import PrefixCache


@pytest.fixture
def cache() -> Iterator[PrefixCache]:
    cache = make_cache()
    yield cache
    cache.check()
    assert cache.pinned_bytes == cache.reserved_bytes == 0, "idle, and something is still held"
